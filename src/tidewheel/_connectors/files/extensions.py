"""The format of a source's files by their extensions, and checks before the files are read."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from difflib import get_close_matches

from tidewheel._connectors.files.csv_fields import CsvForm
from tidewheel._connectors.files.input_file import COMPRESSED
from tidewheel._connectors.files.listing import Pattern, is_glob, listing
from tidewheel._connectors.files.paths import local_path
from tidewheel._connectors.files.taken import TakenFiles
from tidewheel.errors import ConfigError

_EXTENSIONS = {
    "arrow": ("arrow", "arrows", "feather", "ipc"),
    "avro": ("avro",),
    "csv": ("csv", "tsv"),
    "json": ("json", "jsonl", "ndjson"),
    "orc": ("orc",),
    "parquet": ("parquet",),
    "text": ("txt",),
}
"""The formats that there are readers for, and the extensions of their files."""
_BY_EXTENSION = {extension: format for format, extensions in _EXTENSIONS.items() for extension in extensions}
_HEADER_CHARACTERS = 64 * 1024
"""How many characters of a first line are read."""
_LOOKED_AT = 1000
"""The number of files whose first line is checked before a run starts; the others are checked when they are read."""
_LINES = frozenset({"csv", "json", "text"})
"""Formats with a record per line: such a file may be read as text, and a text file as any of them."""


def format_by_name(name: str) -> str | None:
    """Return the format of files with this file's extension; None if it is unknown.

    >>> format_by_name("part-0.snappy.parquet"), format_by_name("clicks.jsonl.gz"), format_by_name("clicks")
    ('parquet', 'json', None)
    """
    extensions = name.lower().split(".")[1:]
    while extensions and f".{extensions[-1]}" in COMPRESSED:
        extensions.pop()
    return _BY_EXTENSION.get(extensions[-1]) if extensions else None


def check_format_name(format: str) -> None:
    """Refuse a format that there is no reader for.

    >>> check_format_name("json")
    """
    if format in _EXTENSIONS:
        return
    near = get_close_matches(format.lower(), _EXTENSIONS, 1)
    hint = f'; did you mean format="{near[0]}"?' if near else f". There are {', '.join(_EXTENSIONS)}."
    raise ConfigError(
        f"there is no format {format!r}{hint} For a format of Spark's own or of a connector use "
        f'sources.dataframe(lambda spark: spark.readStream.format("{format}").load(path))'
    )


def inferred_format(path: str, pattern: Pattern) -> str:
    """Return the format of the files of a folder; raise a `ConfigError` if it does not follow from their names."""
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
        raise ConfigError(f"the format of {unknown} in {path} does not follow from its name; {_OFFER}")
    if not examples:
        raise ConfigError(f"the folder {path} is still empty, so the format of its files is unknown; {_OFFER}")
    return next(iter(examples))


def check_format(path: str, format: str, pattern: Pattern) -> None:
    """Raise a `ConfigError` for a missing folder, and for a file whose extension belongs to another format."""
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
    """Refuse a CSV file with a header if the program does not say whether its files have one."""
    if form.header is not None or local_path(path) is None:
        return
    plain = sorted(file for file in listed_files(path, pattern) if file.endswith((".csv", ".tsv")))
    for file in plain[:_LOOKED_AT]:
        with open(file, encoding="utf-8", errors="replace") as lines:
            line = lines.readline(_HEADER_CHARACTERS)
        if is_header(line, columns, form.separator):
            raise ConfigError(f"the first line of {file} {header_error(line)}")


def is_header(line: str, columns: Collection[str], separator: str = ",") -> bool:
    """Return whether a line is the names of the columns, ignoring case.

    >>> is_header('"User", country', ["user", "country"])
    True
    """
    names = [name.strip().strip('"').lower() for name in line.removeprefix("\ufeff").split(separator)]
    return names == [name.lower() for name in columns]


def header_error(line: str) -> str:
    """Return the end of the error about an undeclared header."""
    return (
        f"is the names of the columns, {line.strip()}, and would be read as a record; give header=True, or header=False if it "
        "is one"
    )


def is_there(path: str) -> bool:
    """Return whether a path is a folder. True also for URLs and globs, which are not checked."""
    local = local_path(path)
    return local is None or is_glob(local) or os.path.isdir(local)


def check_folder(path: str) -> None:
    """Raise a `ConfigError` for a local path that is not a folder."""
    if not is_there(path):
        raise ConfigError(no_folder(path))


def no_folder(path: str) -> str:
    """Return the error text for a path that is not a folder."""
    if os.path.isfile(local_path(path) or ""):
        return f"{path} is a file, and a source reads a folder; pass the folder of the file"
    return f"there is no folder {path}; make it, or correct the path of the source"


def listed_files(path: str, pattern: Pattern = Pattern()) -> Iterator[str]:  # noqa: B008
    """Yield the paths of the files that a source would read."""
    return (file.path for file in listing(path, pattern).files(TakenFiles()))


_OFFER = 'give format="json", "csv", "parquet", "orc", "avro", "arrow" or "text"'
