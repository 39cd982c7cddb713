"""Parquet and JSON files read by the tasks themselves, with the values that Spark would give."""

from __future__ import annotations

import io
import os
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyarrow import json, parquet

from tidewheel._connectors.direct import DirectReader, ReadBySpark, SourceBatch, Split
from tidewheel._connectors.files.paths import local_path
from tidewheel.errors import StorageError, TidewheelError

_ROWS = 250_000
"""Records of one Arrow batch: enough to share the cost of a batch, and still small in memory."""
_LARGE = 32 * 1024 * 1024
"""Files above this many bytes may be read by several tasks."""
_LEGACY_CALENDAR = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")
_SPARK_VERSION = b"org.apache.spark.version"
_PLAIN_JSON = (pa.types.is_int64, pa.types.is_float64, pa.types.is_string, pa.types.is_boolean)
"""Types of JSON columns for which Arrow and Spark agree on every text that Arrow takes."""


def readable(format: str, columns: pa.Schema, options: dict[str, object]) -> str | None:
    """Return why files of this format and these columns cannot be read directly; None if they can."""
    unknown = [name for name in options if name.lower() != "maxfilespertrigger"]
    if unknown:
        return f"the option {unknown[0]} is Spark's own"
    if format == "json":
        for field in columns:
            if not any(is_plain(field.type) for is_plain in _PLAIN_JSON):
                return f"the JSON column {field.name!r} is neither string, long, double nor boolean"
        return None
    return None if format == "parquet" else f"{format} files are Spark's to read"


class FilesReader(DirectReader):
    """Reads local files; a folder between the source's and the file may be a partition column, which Spark fills in."""

    def __init__(self, root: str, format: str, columns: pa.Schema) -> None:
        """Take the folder of the source and the columns that the job reads."""
        self.root, self.format, self.columns = root, format, columns

    def splits(self, batch: SourceBatch, tasks: int) -> list[Split]:
        splits: list[Split] = []
        for file in batch.files:
            path = local_path(file.url)
            if path is None or "=" in os.path.relpath(os.path.dirname(path), self.root):
                raise ReadBySpark(f"{file.url} is not local, or is in a folder that is a column")
            size = _size(path, file.changed_at)
            if self.format == "json":
                splits.append(JsonSplit(path, size, self.columns))
            elif size < _LARGE or tasks == 1:
                splits.append(ParquetSplit(path, size, self.columns))
            else:
                splits += _by_row_groups(path, self.columns)
        return splits


@dataclass(frozen=True)
class ParquetSplit(Split):
    """Some row groups of a Parquet file; None: all of it."""

    path: str
    size: int
    columns: pa.Schema
    groups: tuple[int, ...] | None = None

    def read(self) -> Iterator[pa.RecordBatch]:
        try:
            # In nanoseconds, Arrow's own unit for an INT96, the years after 2262 have no place.
            with parquet.ParquetFile(self.path, coerce_int96_timestamp_unit="us") as file:
                fitting = _Fitting(self.path, file, self.columns)
                groups = None if self.groups is None else list(self.groups)
                batches = file.iter_batches(_ROWS, groups, columns=fitting.wanted, use_threads=False)
                for batch in batches:
                    yield fitting.fitted(batch)
        except FileNotFoundError as error:
            raise _gone(self.path) from error
        except (pa.ArrowException, OSError) as error:
            raise TidewheelError(f"{self.path} cannot be read as a Parquet file: {error}") from error


@dataclass(frozen=True)
class JsonSplit(Split):
    """A file with a JSON object a line."""

    path: str
    size: int
    columns: pa.Schema

    def read(self) -> Iterator[pa.RecordBatch]:
        parse = json.ParseOptions(explicit_schema=self.columns, unexpected_field_behavior="ignore")
        if self.size == 0:
            return
        rows = 0
        try:
            with _CountedLines(self.path) as lines:
                for batch in json.open_json(lines, parse_options=parse):
                    batch.validate(full=True)  # Arrow takes text as it is; it may be no Unicode.
                    rows += batch.num_rows
                    yield batch.select(self.columns.names)
        except FileNotFoundError as error:
            raise _gone(self.path) from error
        except (pa.ArrowException, ValueError, OSError) as error:
            # A line that Arrow refuses may be one that Spark takes, such as a number where text is declared.
            raise ReadBySpark(f"{self.path}: {error}") from error
        if rows != lines.count:
            # Spark takes one object of each line. Arrow takes all, and also those that are on several lines.
            raise ReadBySpark(f"{self.path} has {rows} objects on {lines.count} lines")


class _CountedLines(io.RawIOBase):
    """The text of a file, decompressed as its name says, and how many lines of it were read."""

    def __init__(self, path: str) -> None:
        self._stream = pa.input_stream(path, compression="detect")
        self._breaks = 0
        self._last = b"\n"

    @property
    def count(self) -> int:
        return self._breaks + (self._last != b"\n")

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        data: bytes = self._stream.read(None if size < 0 else size)
        self._breaks += data.count(b"\n")
        self._last = data[-1:] or self._last
        return data

    def close(self) -> None:
        self._stream.close()
        super().close()


class _Fitting:
    """How the columns of one file become those of the source: by name, cast where no value can change, null where absent."""

    def __init__(self, path: str, file: parquet.ParquetFile, columns: pa.Schema) -> None:
        self.path, self.columns = path, columns
        _check_calendar(path, file.metadata.metadata or {})
        present = file.schema_arrow
        folded = {name.lower(): name for name in present.names}
        if len(folded) < len(present.names):
            raise ReadBySpark(f"{path} has columns whose names differ in case alone")
        leaves = [file.schema.column(number) for number in range(len(file.schema))]
        int96 = {leaf.path for leaf in leaves if leaf.physical_type == "INT96"}
        self.names: list[str | None] = []
        for field in columns:
            name = field.name if field.name in present.names else folded.get(field.name.lower())
            self.names.append(name)
            if name is not None:
                if any(leaf.startswith(f"{name}.") for leaf in int96):
                    raise ReadBySpark(f"{path} has an INT96 inside the column {name!r}")
                _check_type(path, present.field(name).type, field.type, name in int96)
        self.wanted = [name for name in self.names if name is not None]

    def fitted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        arrays = [
            pa.nulls(batch.num_rows, field.type) if name is None else self._cast(batch.column(name), field)
            for name, field in zip(self.names, self.columns, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.columns)

    def _cast(self, array: pa.Array, field: pa.Field) -> pa.Array:
        if array.type == field.type:
            return array
        try:
            return array.cast(field.type)
        except pa.ArrowInvalid as error:
            raise ReadBySpark(
                f"{self.path}: the column {field.name!r} is of type {array.type}, the source's is {field.type}: {error}"
            ) from error


def _check_calendar(path: str, metadata: Mapping[bytes, bytes]) -> None:
    """Refuse files whose days before 1582 are of another calendar: those of Spark 2, and those that say so."""
    version = metadata.get(_SPARK_VERSION, b"")
    if version.startswith((b"1.", b"2.")) or any(name in metadata for name in _LEGACY_CALENDAR):
        raise ReadBySpark(f"{path} has the calendar of Spark 2")


def _check_type(path: str, given: pa.DataType, wanted: pa.DataType, int96: bool) -> None:
    """Refuse types for which a cast of Arrow and a reading of Spark may differ."""
    if given == wanted and not int96:
        return
    if pa.types.is_timestamp(given) and pa.types.is_timestamp(wanted):
        # An INT96 has no zone in Arrow and is an instant to Spark; any other time without a zone is a local one.
        zoned = (given.tz is not None or int96) == (wanted.tz is not None)
        if zoned and (int96 or given.unit in ("us", "ms")):
            return
    widens = (
        (
            pa.types.is_signed_integer(given)
            and pa.types.is_signed_integer(wanted)
            and given.bit_width < wanted.bit_width
        )
        or (pa.types.is_float32(given) and pa.types.is_float64(wanted))
        or (pa.types.is_large_string(given) and pa.types.is_string(wanted))
        or (pa.types.is_large_binary(given) and pa.types.is_binary(wanted))
    )
    if not widens:
        raise ReadBySpark(f"{path} has {given} where the source has {wanted}")


def _by_row_groups(path: str, columns: pa.Schema) -> list[Split]:
    try:
        with parquet.ParquetFile(path) as file:
            meta = file.metadata
            sizes = [meta.row_group(number).total_byte_size for number in range(meta.num_row_groups)]
    except (pa.ArrowException, OSError) as error:
        raise TidewheelError(f"{path} cannot be read as a Parquet file: {error}") from error
    return [ParquetSplit(path, size, columns, (number,)) for number, size in enumerate(sizes)]


def _size(path: str, changed_at: int) -> int:
    try:
        status = os.stat(path)
    except FileNotFoundError as error:
        raise _gone(path) from error
    if status.st_mtime_ns // 1_000_000 != changed_at:
        raise StorageError(
            f"{path} was changed after Spark had listed it for a batch; files of a source must appear whole and never change. "
            "Put the file back as it was, and give the changed one another name"
        )
    return status.st_size


def _gone(path: str) -> StorageError:
    where = socket.gethostname()
    return StorageError(
        f"{path} is gone, or is not on the host {where}, and a batch that is not committed has to read it; put it back. Tasks on "
        "other hosts need the folder under the same path"
    )
