"""What Spark runs for `files(ordered=True)`: a Python data source whose offsets are names of files."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql.types import StructType

from tidewheel._connectors.files.extensions import names_columns, taken_for_a_record
from tidewheel._connectors.files.ordered import Position, next_file, visible_files
from tidewheel._connectors.schema import arrow_schema
from tidewheel._connectors.stream_reader import DataSource, InputPartition, ReadLimit, StreamReader
from tidewheel.errors import StorageError, TidewheelError

NAME = "tidewheel-ordered-files"
_TEXT_LINES = 10_000
_BLOCK_BYTES = 2**20


class OrderedStream(DataSource):
    """The data source that Spark knows by its name."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return NAME

    def streamReader(self, schema: StructType) -> StreamReader:
        """Return the reader."""
        options = self.options
        header = options["header"].lower() == "true" if "header" in options else None
        return OrderedReader(
            options["path"], options["read"], arrow_schema(schema), header=header, separator=options.get("sep", ",")
        )


class OrderedReader(StreamReader):
    """A batch is a file; the same offsets give the same file."""

    def __init__(
        self, path: str, format: str, schema: pa.Schema, *, header: bool | None = None, separator: str = ","
    ) -> None:
        self.path, self.format, self.schema = path, format, schema
        self.header, self.separator = header, separator
        self._last: str | None = None

    def initialOffset(self) -> dict[str, Any]:
        """Begin before the first name."""
        return _offset(Position())

    def prepareForTriggerAvailableNow(self) -> None:
        """Let no file behind the last one that is there now come."""
        self._last = max(visible_files(self.path), default="")

    def batch_end(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        return _offset(next_file(visible_files(self.path), msgspec.convert(start, Position), self._last))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the file, as one partition."""
        return [InputPartition(end["file"])] if end["file"] > start["file"] else []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Give the file's records in their order."""
        path = os.path.join(self.path, partition.value)
        try:
            for batch in self._batches(path):
                if batch.num_rows:
                    yield self._fitted(batch)
        except FileNotFoundError as error:
            raise StorageError(
                f"{path} is gone, and a batch that was not committed has to read it; put it back"
            ) from error
        except (pa.ArrowException, ValueError) as error:
            raise TidewheelError(f"{path} cannot be read as {self.format}: {error}") from error

    def _batches(self, path: str) -> Iterator[pa.RecordBatch]:
        if self.format == "parquet":
            from pyarrow import parquet

            with parquet.ParquetFile(path) as file:
                present = [name for name in self.schema.names if name in file.schema_arrow.names]
                yield from file.iter_batches(columns=present)
        elif self.format == "arrow":
            from tidewheel._connectors.files.arrow_split import ArrowSplit

            yield from ArrowSplit(path, 0, self.schema).read()
        elif self.format == "json":
            yield from self._json(path)
        elif self.format == "csv":
            yield from self._csv(path)
        else:
            yield from _lines(path, self.schema)

    def _json(self, path: str) -> Iterator[pa.RecordBatch]:
        from pyarrow import json

        if os.path.getsize(path):
            read = json.ReadOptions(block_size=_block_size(path))
            parse = json.ParseOptions(explicit_schema=self.schema, unexpected_field_behavior="ignore")
            yield from json.open_json(path, read_options=read, parse_options=parse)

    def _csv(self, path: str) -> Iterator[pa.RecordBatch]:
        from pyarrow import csv as arrow_csv

        if os.path.getsize(path):
            self._check_header(path)
            names = None if self.header else self.schema.names
            read = arrow_csv.ReadOptions(column_names=names, block_size=_block_size(path))
            convert = arrow_csv.ConvertOptions(
                column_types=self.schema,
                include_columns=self.schema.names,
                include_missing_columns=True,
                strings_can_be_null=True,
            )
            parse = arrow_csv.ParseOptions(delimiter=self.separator)
            yield from arrow_csv.open_csv(path, read_options=read, parse_options=parse, convert_options=convert)

    def _check_header(self, path: str) -> None:
        """Refuse a file whose first line does not name all columns, or does where the program does not say that it may."""
        if self.header is False:
            return
        with pa.input_stream(path, compression="detect") as text:
            line = text.read(_BLOCK_BYTES).partition(b"\n")[0].decode(errors="replace")
        if self.header is None:
            if names_columns(line, self.schema.names, self.separator):
                raise TidewheelError(f"the first line of {path} {taken_for_a_record(line)}")
            return
        names = next(csv.reader([line], delimiter=self.separator), [])
        absent = [name for name in self.schema.names if name not in names]
        if absent:
            raise TidewheelError(
                f"the first line of {path} names the columns {', '.join(names)}, and the source reads {absent[0]!r}, which is "
                "not among them; correct the line, or the schema"
            )

    def _fitted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Put the columns into the schema's order and types; one that the file lacks is null, as with Spark."""
        arrays = [
            batch.column(field.name).cast(field.type)
            if field.name in batch.schema.names
            else pa.nulls(batch.num_rows, field.type)
            for field in self.schema
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def _offset(position: Position) -> dict[str, Any]:
    return {"file": position.file, "read": position.read}


def _block_size(path: str) -> int:
    """Return the size of blocks in which each line of a file fits: Arrow refuses a longer one."""
    longest = line = 0
    with pa.input_stream(path, compression="detect") as text:
        while data := text.read(_BLOCK_BYTES):
            first, *others = map(len, data.split(b"\n"))
            longest = max(longest, line + first, *others)
            line = others[-1] if others else line + first
    return min(max(_BLOCK_BYTES, longest + 2), 2**31 - 1)


def _lines(path: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    with open(path, encoding="utf-8", newline="\n") as file:
        while lines := [
            line.removesuffix("\n").removesuffix("\r") for _, line in zip(range(_TEXT_LINES), file, strict=False)
        ]:
            yield pa.RecordBatch.from_arrays([pa.array(lines, schema.field(0).type)], [schema.field(0).name])
