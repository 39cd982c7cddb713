"""Write Parquet and JSON-lines files, and compute their size and checksum while writing."""

from __future__ import annotations

import io
import os
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import numpy as np
import pyarrow as pa
from pyarrow import compute
from xxhash import xxh64

from tidewheel._values.columns import values

if TYPE_CHECKING:
    from pyarrow import parquet

Format = Literal["parquet", "json"]

GROUP_ROWS = 128 * 1024
GROUP_BYTES = 32 * 1024 * 1024
_SAMPLE, _UNIQUE = 4096, 0.95
"""How many rows decide whether a column has a dictionary, and from which part of distinct values it has none."""


class CheckedFile(io.FileIO):
    """A file to write that computes the size and the checksum of its content."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor, "wb")
        self._digest = xxh64()
        self.size = 0

    @property
    def checksum(self) -> int:
        """The xxh64 of all that was written."""
        return int(self._digest.intdigest())

    def write(self, data: Any, /) -> int:
        """Write all of the bytes."""
        view = memoryview(data).cast("B")
        self._digest.update(view)
        length = len(view)
        self.size += length
        while view:
            view = view[super().write(view) :]
        return length

    def close(self) -> None:
        """Write the file to the disk and close it."""
        if not self.closed:
            try:
                os.fsync(self.fileno())
            finally:
                self.discard()

    def discard(self) -> None:
        """Close the file without writing it to the disk."""
        super().close()

    def __del__(self) -> None:
        # A failed task leaves its files to the garbage collector; its worker continues and must not run out of descriptors.
        self.discard()


@dataclass(frozen=True)
class EncodedRows:
    """Rows that are ready to be written."""

    columns: pa.RecordBatch
    lines: bytes = b""
    """The lines of a text format."""


class RowWriter(ABC):
    """Writes rows of one schema to a file, and closes the file."""

    def __init__(self, file: CheckedFile) -> None:
        self.file = file
        self.rows = 0

    @property
    def size(self) -> int:
        """How large the file is so far, about."""
        return self.file.size

    @abstractmethod
    def write(self, rows: EncodedRows) -> None:
        """Write rows."""

    @abstractmethod
    def close(self) -> None:
        """Write buffered rows, and close the file."""


class ParquetWriter(RowWriter):
    """Parquet, in row groups of a useful size however small the batches are.

    Columns whose values hardly repeat have no dictionary: building one takes longer than writing the column, and the file
    would be larger.
    """

    def __init__(self, file: CheckedFile, schema: pa.Schema, compression: str) -> None:
        super().__init__(file)
        self._schema, self._compression = schema, compression
        self._footer: list[parquet.FileMetaData] = []
        self._writer: parquet.ParquetWriter | None = None
        self._held: list[pa.RecordBatch] = []
        self._held_rows = self._held_bytes = 0

    def write(self, rows: EncodedRows) -> None:
        """Write rows, a row group at a time."""
        columns = rows.columns
        self.rows += columns.num_rows
        self._held.append(columns)
        self._held_rows += columns.num_rows
        self._held_bytes += columns.nbytes
        if self._held_rows >= GROUP_ROWS or self._held_bytes >= GROUP_BYTES:
            self._write_group()

    @property
    def metadata(self) -> Any:
        """The metadata of the closed file, with the statistics of its columns (`parquet.FileMetaData`)."""
        return self._footer[0]

    def _write_group(self) -> None:
        held, self._held, self._held_rows, self._held_bytes = self._held, [], 0, 0
        if held:
            rows = pa.Table.from_batches(held)
            self._opened(rows).write_table(rows)

    def _opened(self, rows: pa.Table) -> parquet.ParquetWriter:
        if self._writer is None:
            from pyarrow import parquet

            self._writer = parquet.ParquetWriter(
                self.file,
                self._schema,
                compression=self._compression,
                metadata_collector=self._footer,
                use_dictionary=_repeating(rows),
            )
        return self._writer

    def close(self) -> None:
        """Write the last row group and the footer, and close the file."""
        self._write_group()
        self._opened(pa.Table.from_batches([], self._schema)).close()
        self.file.close()


class JsonWriter(RowWriter):
    """A JSON object per line: times as RFC 3339, bytes as base64, decimals as text, NaN as null."""

    def write(self, rows: EncodedRows) -> None:
        self.rows += rows.columns.num_rows
        self.file.write(rows.lines)

    def close(self) -> None:
        self.file.close()


def row_writer(form: Format, file: CheckedFile, schema: pa.Schema, compression: str) -> RowWriter:
    """Return a writer of the format."""
    return ParquetWriter(file, schema, compression) if form == "parquet" else JsonWriter(file)


_json_lines = msgspec.json.Encoder().encode_lines


def encoded(form: Format, columns: pa.RecordBatch) -> EncodedRows:
    """Return rows in the form that the writer of a format needs. Rows that cannot be written raise here, not later."""
    if form == "parquet":
        _check_parquet(columns.schema)
        return EncodedRows(columns)
    record = _record(tuple(columns.schema.names))
    return EncodedRows(columns, _json_lines(list(map(record, *map(values, columns.columns)))))


def _repeating(rows: pa.Table) -> bool | list[str]:
    """Return the columns of a file that should have a dictionary, by a sample of its first row group. True stands for all."""
    if rows.num_rows < _SAMPLE:
        return True
    # One row of each part, at a random place, so that a regular pattern in the rows does not decide.
    step = rows.num_rows / _SAMPLE
    places = ((np.arange(_SAMPLE) + np.random.default_rng(0).random(_SAMPLE)) * step).astype(np.int64)
    unique = {
        field.name
        for number, field in enumerate(rows.schema)
        if _can_count(field.type)
        and compute.count_distinct(rows.column(number).take(places), mode="all").as_py() > _UNIQUE * _SAMPLE
    }
    return [path for path in _check_parquet(rows.schema) if path not in unique] if unique else True


def _can_count(kind: pa.DataType) -> bool:
    kinds = pa.types
    texts = (kinds.is_string, kinds.is_large_string, kinds.is_binary, kinds.is_large_binary, kinds.is_fixed_size_binary)
    return bool(kinds.is_primitive(kind) or kinds.is_decimal(kind)) or any(each(kind) for each in texts)


@lru_cache(maxsize=64)
def _check_parquet(schema: pa.Schema) -> tuple[str, ...]:
    """Refuse columns that Parquet does not have, such as a struct without fields. Return the paths of the stored columns."""
    from pyarrow import parquet

    file = pa.BufferOutputStream()
    parquet.ParquetWriter(file, schema).close()
    stored = parquet.read_metadata(pa.BufferReader(file.getvalue())).schema
    return tuple(stored.column(number).path for number in range(len(stored)))


@lru_cache(maxsize=64)
def _record(names: tuple[str, ...]) -> Any:
    # A record as a dict takes ten times as long to make and to encode.
    fields = {f"column{number}": name for number, name in enumerate(names)}
    return msgspec.defstruct("Record", list(fields), rename=fields, gc=False)
