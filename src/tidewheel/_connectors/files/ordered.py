"""Files in the order of their names, one per batch, each read by one task from its first line to its last."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec

from tidewheel._checkpoint.manifest import Position as SourcePosition
from tidewheel._connectors.files.extensions import check_format, check_header, inferred_format, is_there, no_folder
from tidewheel._connectors.files.json_columns import absent_columns
from tidewheel._connectors.files.waiting import unread_files, visible
from tidewheel._connectors.schema import known_fields, spark_schema
from tidewheel._connectors.source import Source, Unread
from tidewheel._values import Shape
from tidewheel.errors import ConfigError, StateError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

FORMATS = ("arrow", "parquet", "json", "csv", "text")
_CSV_OPTIONS = {"header", "sep"}


class Position(msgspec.Struct, frozen=True):
    """How far files have been read: the last one, and how many there were up to it."""

    file: str = ""
    read: int = 0


def next_file(names: Sequence[str], at: Position, last: str | None = None) -> Position:
    """Return the position after the file that comes next, or the same if there is none, none up to `last`.

    `names` is what the folder has now. Files that were read may have been removed; more of them than were read is a file
    that turned up too late, which would be left out, and so an error.

    >>> next_file(["b", "a"], Position()), next_file(["b", "a"], Position("a", 1)), next_file(["a"], Position("a", 1))
    (Position(file='a', read=1), Position(file='b', read=2), Position(file='a', read=1))
    """
    behind = [name for name in names if name <= at.file]
    if len(behind) > at.read:
        raise StateError(
            f"files are read in the order of their names; up to {at.file!r}, {at.read} were, and now there are {len(behind)} "
            f"up to there: one of {', '.join(sorted(behind)[-5:])} came too late. Give it a name behind {at.file!r}"
        )
    ahead = [name for name in names if name > at.file and (last is None or name <= last)]
    return Position(min(ahead), at.read + 1) if ahead else at


def visible_files(folder: str) -> list[str]:
    """Return the names of a folder's files, without those that begin with `.` or `_`."""
    return [entry.name for entry in visible(folder, deep=False)]


class OrderedFiles(Source):
    """One file per batch, in the order of names."""

    def __init__(self, path: str, format: str | None, schema: Any, options: dict[str, Any]) -> None:
        self.path, self.format, self.schema, self.options = path, format, schema, options
        if format is not None:
            self._check_options(format)

    def _check_options(self, format: str) -> None:
        if format not in FORMATS:
            raise ConfigError(
                f"ordered=True reads {', '.join(FORMATS)}, not {format}; leave it out, or convert the files"
            )
        known = _CSV_OPTIONS if format == "csv" else set()
        unknown = [name for name in self.options if name not in known]
        if unknown:
            offer = f"; it knows {', '.join(sorted(known))}" if known else ""
            raise ConfigError(f"ordered=True does not know the option {', '.join(unknown)} for {format}{offer}")

    @cached_property
    def resolved(self) -> OrderedFiles:
        """The same source with the format that its files have, if the program gives none."""
        if self.format is not None:
            return self
        return OrderedFiles(self.path, inferred_format(self.path, {}), self.schema, self.options)

    def check(self) -> None:
        check_format(self.path, str(self.resolved.format), {})
        columns = None if self.schema is None else known_fields(self.schema)
        check_header(self.path, str(self.resolved.format), columns, self.options)

    def check_program(self) -> None:
        if is_there(self.path):
            self.check()

    def doubts(self) -> list[str]:
        if not is_there(self.path):
            return [no_folder(self.path)]
        columns = None if self.schema is None else known_fields(self.schema)
        return absent_columns(self.path, columns, {}) if self.resolved.format == "json" else []

    def declared(self, shape: Shape) -> Source:
        """Take the columns from what the program declares, if nothing else tells them."""
        if self.schema is not None or shape.schema() is None:
            return self
        return OrderedFiles(self.path, self.format, shape.schema(), self.options)

    def describe(self) -> str:
        files = f"{self.format} files" if self.format else "files"
        return f"{files} in {self.path}, in the order of their names"

    def unread(self, offsets: SourcePosition) -> Mapping[str, Unread]:
        last = msgspec.json.decode(str(offsets), type=Position).file
        return unread_files(visible(self.path, deep=False), lambda entry: entry.name > last)

    def load(self, spark: SparkSession) -> DataFrame:
        from tidewheel._connectors.files.ordered_stream import NAME, OrderedStream
        from tidewheel._connectors.stream_reader import HAS_LIMITS

        if not HAS_LIMITS:
            raise ConfigError(
                "files(ordered=True) reads one file a batch, which Spark allows since 4.2; use a newer Spark, or leave "
                "out ordered=True"
            )
        try:
            names = visible_files(self.path)
        except OSError as error:
            raise ConfigError(f"the folder {self.path} of the source cannot be read: {error.strerror}") from error
        spark.dataSource.register(OrderedStream)
        options = {
            "path": self.path,
            "read": self.resolved.format,
            **{name: str(value) for name, value in self.options.items()},
        }
        return spark.readStream.format(NAME).schema(self.resolved._schema(names)).options(**options).load()

    def _schema(self, names: list[str]) -> StructType:
        if self.schema is not None:
            return spark_schema(self.schema)
        if self.format == "text":
            return spark_schema("value string")
        if self.format == "parquet" and names:
            from pyarrow import parquet

            return spark_schema(parquet.read_schema(os.path.join(self.path, min(names))).remove_metadata())
        if self.format == "arrow" and names:
            from tidewheel._connectors.files.arrow_split import arrow_columns

            return spark_schema(arrow_columns(os.path.join(self.path, min(names))))
        raise ConfigError(
            f"{self.describe()}: nothing tells their columns; give schema='user string, amount long', "
            "or declare value=… at the source"
        )
