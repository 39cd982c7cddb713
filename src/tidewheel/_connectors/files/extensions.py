"""The format of a source's files, by their extensions, and what can be said about them before they are read."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator

from tidewheel._connectors.files.csv_fields import CsvForm
from tidewheel._connectors.files.listing import Pattern, is_glob, listing
from tidewheel._connectors.files.paths import local_path
from tidewheel.errors import ConfigError

_BY_EXTENSION = {
    "arrow": "arrow",
    "arrows": "arrow",
    "avro": "avro",
    "csv": "csv",
    "feather": "arrow",
    "ipc": "arrow",
    "json": "json",
    "jsonl": "json",
    "ndjson": "json",
    "orc": "orc",
    "parquet": "parquet",
    "tsv": "csv",
    "txt": "text",
}
FORMATS = frozenset(_BY_EXTENSION.values())
"""The formats that a file's name may tell."""
_COMPRESSED = ("gz", "bz2", "zst", "lz4", "snappy", "deflate", "xz")
_HEADER_CHARACTERS = 64 * 1024
"""How much of a first line is looked at."""
_LOOKED_AT = 1000
"""Of how many files the first line is looked at before a run starts; the others are looked at when they are read."""
_LINES = frozenset({"csv", "json", "text"})
"""Formats of lines: files of one may be read as plain text, and plain text may be any of them."""


def format_by_name(name: str) -> str | None:
    """Return the format that a file's name tells, None if it tells none.

    >>> format_by_name("part-0.snappy.parquet"), format_by_name("clicks.jsonl.gz"), format_by_name("clicks")
    ('parquet', 'json', None)
    """
    extensions = name.lower().split(".")[1:]
    while extensions and extensions[-1] in _COMPRESSED:
        extensions.pop()
    return _BY_EXTENSION.get(extensions[-1]) if extensions else None


def inferred_format(path: str, pattern: Pattern) -> str:
    """Return the one format that the files of a folder have; a `ConfigError` if they do not tell one."""
    check_folder(path)
    examples: dict[str, str] = {}
    unknown = ""
    for name in map(os.path.basename, listed_files(path, pattern)):
        format = format_by_name(name)
        if format is None:
            unknown = unknown or name
        else:
            examples.setdefault(format, name)
    if len(examples) > 1:
        both = ", ".join(f"{format} ({name})" for format, name in sorted(examples.items()))
        raise ConfigError(f"the folder {path} has files of several formats: {both}; keep one in it, or {_OFFER}")
    if not examples and unknown:
        raise ConfigError(f"the name of {unknown} in {path} tells no format; {_OFFER}")
    if not examples:
        raise ConfigError(f"the folder {path} is empty yet, so nothing tells the format of its files; {_OFFER}")
    return next(iter(examples))


def check_format(path: str, format: str, pattern: Pattern) -> None:
    """Refuse, with a `ConfigError`, a missing folder and one with a file whose name tells another format than the one given."""
    check_folder(path)
    if local_path(path) is None:
        return
    for name in map(os.path.basename, listed_files(path, pattern)):
        other = format_by_name(name)
        if (
            other is not None
            and other != format
            and not (other in _LINES and format in _LINES and "text" in (other, format))
        ):
            raise ConfigError(
                f"the source reads {format} files in {path}, and {name} is {other} by its name; "
                f'give format="{other}", or keep files of one format in the folder'
            )


def check_header(path: str, columns: Collection[str], pattern: Pattern, form: CsvForm) -> None:
    """Refuse a CSV file whose first line is the names of the columns, where the program does not say whether it is a record."""
    if form.header is not None or local_path(path) is None:
        return
    plain = sorted(file for file in listed_files(path, pattern) if file.endswith((".csv", ".tsv")))
    for file in plain[:_LOOKED_AT]:
        with open(file, encoding="utf-8", errors="replace") as lines:
            line = lines.readline(_HEADER_CHARACTERS)
        if names_columns(line, columns, form.separator):
            raise ConfigError(f"the first line of {file} {taken_for_a_record(line)}")


def names_columns(line: str, columns: Collection[str], separator: str = ",") -> bool:
    """Tell whether a line is the names of the columns, whatever their case.

    >>> names_columns('"User", country', ["user", "country"])
    True
    """
    names = [name.strip().strip('"').lower() for name in line.removeprefix("\ufeff").split(separator)]
    return names == [name.lower() for name in columns]


def taken_for_a_record(line: str) -> str:
    """Return what is wrong with a line that is the names of the columns, and what to do."""
    return (
        f"is the names of the columns, {line.strip()}, and would be read as a record; give header=True, or header=False if it "
        "is one"
    )


def is_there(path: str) -> bool:
    """Tell whether a path is a folder, or one of which that cannot be told."""
    local = local_path(path)
    return local is None or is_glob(local) or os.path.isdir(local)


def check_folder(path: str) -> None:
    """Refuse a local path that is no folder."""
    if is_there(path):
        return
    if os.path.isfile(local_path(path) or ""):
        raise ConfigError(f"{path} is a file, and a source reads a folder; give the folder that it is in")
    raise ConfigError(no_folder(path))


def no_folder(path: str) -> str:
    """Return what to do about a folder that is not there."""
    return f"there is no folder {path}; make it, or correct the path of the source"


def listed_files(path: str, pattern: Pattern = Pattern()) -> Iterator[str]:  # noqa: B008
    """Yield the paths of the files that a source would read."""
    return (file.path for file in listing(path, pattern).files(lambda _: False))


_OFFER = 'give format="json", "csv", "parquet", "orc", "avro", "arrow" or "text"'
