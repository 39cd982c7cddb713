"""files: the files of a folder or an object store, and those that are added to it."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa

from tidewheel._checkpoint.manifest import Position, SeenFile
from tidewheel._checkpoint.spark_log import OldPosition
from tidewheel._connectors.files.choose import Limits, Order
from tidewheel._connectors.files.extensions import (
    check_folder,
    check_format,
    check_format_name,
    check_header,
    inferred_format,
    is_there,
    listed_files,
    no_folder,
)
from tidewheel._connectors.files.file_splits import COLUMNAR, FileSplits
from tidewheel._connectors.files.input_file import InputFile
from tidewheel._connectors.files.json_columns import absent_columns
from tidewheel._connectors.files.listing import Listing, Pattern, listing
from tidewheel._connectors.files.options import FileOptions, file_options, milliseconds
from tidewheel._connectors.files.partition_columns import inferred
from tidewheel._connectors.files.paths import local_path
from tidewheel._connectors.files.reader import FilesReader, Taken
from tidewheel._connectors.files.taken import TakenFiles
from tidewheel._connectors.files.text_values import is_convertible
from tidewheel._connectors.schema import declared_schema
from tidewheel._connectors.source import Source, SourceReader, other_kind
from tidewheel._core.urls import without_login
from tidewheel._time.duration import Duration
from tidewheel._values import Shape
from tidewheel.errors import ConfigError

_AGE_OF_SPARK_MS = 7 * 24 * 3600 * 1000
"""The default of Spark's `maxFileAge`."""


def files(
    path: str | os.PathLike[str],
    format: str | None = None,
    *,
    schema: Any = None,
    max_files_per_trigger: int | None = None,
    max_bytes_per_trigger: int | None = None,
    glob: str | None = None,
    recursive: bool = False,
    max_age: Duration | None = None,
    newest_first: bool = False,
    settle: Duration | None = None,
    order: Order = "time",
    ordered: bool | None = None,
    **options: Any,
) -> Source:
    """Read the files of a folder or an object store, also files that are added later, each file once.

    Records come in the order of the files (by time of modification, then by path) and of the lines in them. Files must appear
    complete (written elsewhere, then renamed), must never change, and must stay until the batch that reads them is committed.

    - `format`: Parquet, ORC, Avro, Arrow, JSON lines, CSV or text. By default it follows from the names of the files:
      `.parquet`, `.orc`, `.avro`, `.arrow`, `.arrows`, `.feather`, `.ipc`, `.json`, `.jsonl`, `.ndjson`, `.csv`, `.tsv`, `.txt`,
      also compressed (`.json.gz`, `.csv.zst`). Give it for a folder that is still empty.
    - `schema`: a DDL string ("user string, amount long"), a StructType, a dataclass or a `msgspec.Struct`. By default it is the
      declared type of the source (`type=…`), or the columns that Parquet, ORC, Avro and Arrow files contain.
    - `max_files_per_trigger`, `max_bytes_per_trigger`: the maximum size of a batch.
    - `newest_first`: take the newest files first. `order="name"` orders files by path instead of time.
    - `glob`: patterns that the names of the files must match. `recursive`: also read the files in all folders below. Folders
      such as `day=7` are columns.
    - `max_age`: leave out files that are older than the newest one by more than this.
    - `settle`: take a file when it has not changed for this long; then files need not appear complete.
    - `options`: how CSV, JSON and text files are written. docs/files.md lists the options and the exact rules.
    """
    if ordered is not None:
        warnings.warn(
            "files(ordered=…) is not needed any more: records come in the order of files and lines. For the order of names give "
            'order="name"',
            DeprecationWarning,
            stacklevel=2,
        )
        order = "name" if ordered else order
    limits = Limits(
        max_files_per_trigger,
        max_bytes_per_trigger,
        None if max_age is None else milliseconds(max_age, "max_age"),
        0 if settle is None else milliseconds(settle, "settle"),
        newest_first,
        order,
    )
    where = without_login(os.fspath(path), "a source of files")
    where = where if ":" in where.split("/")[0] else os.path.abspath(where)
    return FileSource(where, format, schema, file_options(limits, Pattern(glob, recursive), options))


class FileSource(Source):
    """The files of a folder or an object store."""

    kind = "files"

    def __init__(self, path: str, format: str | None, schema: Any, options: FileOptions) -> None:
        self.path, self.format, self.schema, self.options = path, format, schema, options
        if format is not None:
            check_format_name(format)
            options.check_format(format)

    def declared(self, shape: Shape) -> Source:
        """Use the columns of the declared type unless a schema is given."""
        if self.schema is not None or shape.schema() is None:
            return self
        return FileSource(self.path, self.format, shape.schema(), self.options)

    @cached_property
    def resolved(self) -> FileSource:
        """The same source with the format that its files have, if the program gives none."""
        if self.format is not None:
            return self
        return FileSource(self.path, inferred_format(self.path, self.options.pattern), self.schema, self.options)

    @property
    def _format(self) -> str:
        assert self.format is not None, "the format of a resolved source is known"
        return self.format

    def fields(self) -> dict[str, pa.DataType | None] | None:
        local = local_path(self.path)
        # Folders such as day=7 add columns of their own.
        if self.schema is None or local is None or any(Path(local).glob("*=*")):
            return None
        return {field.name: field.type for field in declared_schema(self.schema)}

    def check(self) -> None:
        check_folder(self.path)
        source = self.resolved
        check_format(self.path, source._format, self.options.pattern)
        columns = source._declared_columns()
        if source.format == "csv" and columns is not None:
            check_header(self.path, columns.names, self.options.pattern, self.options.csv)

    def check_program(self) -> None:
        if is_there(self.path):
            self.check()
        elif self.format is not None:
            self._declared_columns()

    def warnings(self) -> list[str]:
        if not is_there(self.path):
            return [no_folder(self.path)]
        fields = self.fields()
        if self.resolved.format != "json" or not fields or self.options.multi_line or local_path(self.path) is None:
            return []
        return absent_columns(listed_files(self.path, self.options.pattern), fields)

    def _declared_columns(self) -> pa.Schema | None:
        """Return the declared columns, or None if the files have their own; refuse columns that the format cannot have."""
        if self.schema is None:
            if self.format == "text":
                return declared_schema("value string")
            if self.format not in COLUMNAR:
                raise ConfigError(
                    f"{self.format} files in {self.path} do not tell their columns; give schema='user string, amount long', "
                    "or declare a dataclass, type=…, at the source"
                )
            return None
        columns = declared_schema(self.schema)
        if self.format == "csv":
            for field in columns:
                if not is_convertible(field.type):
                    raise ConfigError(
                        f"the CSV column {field.name!r} is declared as {field.type}, and a field of CSV is text, a number, a "
                        "boolean, a time or a day; declare it as string, and decode it in the program"
                    )
        if self.format == "text" and (len(columns) != 1 or not pa.types.is_string(columns.types[0])):
            raise ConfigError("text files have one column of text; leave out schema, or give schema='value string'")
        return columns

    def seen_age_ms(self) -> int | None:
        return self.options.limits.max_age_ms

    def describe(self) -> str:
        return f"{self.format} files in {self.path}" if self.format else f"files in {self.path}"

    def open(self) -> SourceReader:
        check_folder(self.path)
        source = self.resolved
        source.options.check_format(source._format)
        found = listing(self.path, self.options.pattern, watches=True)
        schema = source._columns(found)
        splits = FileSplits(source._format, schema, self.options)
        return FilesReader(found, self.options.limits, splits, by_name_only=self.options.by_name_only)

    def adopt(self, old: OldPosition, seen: Sequence[SeenFile]) -> Position | None:
        if old.kinds == ("ordered-files",):
            position: Position | None = None if old.text is None else json.loads(old.text)
            return position
        if old.kinds != ("files",):
            raise other_kind(self.kind, old.kinds)
        return Taken(len(seen), self._forgotten_before_ms(seen)).position()

    def _forgotten_before_ms(self, seen: Sequence[SeenFile]) -> int | None:
        """Return the time before which a version with Spark's reader forgot files, and read none; None: it forgot none."""
        limits = self.options.limits
        limited = limits.max_files is not None or limits.max_bytes is not None
        if not seen or (limits.newest_first and limited):
            return None
        age = _AGE_OF_SPARK_MS if limits.max_age_ms is None else limits.max_age_ms
        return max(file.modified_ms for file in seen) - age

    def _columns(self, found: Listing) -> pa.Schema:
        """Return the columns of the records: the declared ones or those of the first file, then the partition columns."""
        there = sorted(found.files(TakenFiles()))
        columns = self._declared_columns()
        if columns is None:
            if not there:
                raise ConfigError(
                    f"there is no {self.format} file in {self.path} yet to learn the columns from; "
                    "give schema='user string, amount long', or declare type=… at the source"
                )
            place, store = found.place(there[0].path)
            columns = COLUMNAR[self._format].schema_of(InputFile(place, there[0].size, there[0].modified_ms, store))
        if self.options.pattern.recursive:
            return columns
        folders = inferred(found.relative(file.path) for file in there)
        more = [pa.field(name, kind) for name, kind in folders.items() if name not in columns.names]
        return pa.schema([*columns, *more])
