"""Lines of a file that are no records: they travel in a column of their own, to where a record can be rejected."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import pyarrow as pa

BAD_LINE = "_tidewheel_bad_line"
"""The column with a `BadLine`, encoded, where a row is no record; null for every record."""


class BadLine(NamedTuple):
    """A line of a file that is no record."""

    file: str
    line: int
    """The number of the line in its file, from 1 on; of a file that has no lines, the number of the record."""
    column: str | None
    """The column whose value does not fit; None: the line as a whole is no record."""
    reason: str
    text: str
    """The line as it stands in the file; bytes that are no UTF-8 as `\\xff`."""

    @property
    def where(self) -> str:
        """Where the fault is, for errors."""
        column = "" if self.column is None else f", column {self.column!r}"
        return f"line {self.line} of {self.file}{column}"


_decode = msgspec.json.Decoder(BadLine).decode


def with_bad_lines(records: pa.RecordBatch, lines: Sequence[BadLine]) -> pa.RecordBatch:
    """Return the records with the lines that are none behind them, in the order in which they are given."""
    if not lines:
        return records
    schema = records.schema.append(pa.field(BAD_LINE, pa.string()))
    texts = pa.array([msgspec.json.encode(line).decode() for line in lines], pa.string())
    arrays = [pa.concat_arrays([column, pa.nulls(len(lines), column.type)]) for column in records.columns]
    return pa.RecordBatch.from_arrays(
        [*arrays, pa.concat_arrays([pa.nulls(records.num_rows, pa.string()), texts])], schema=schema
    )


def parted(columns: pa.RecordBatch) -> tuple[pa.RecordBatch, list[BadLine]]:
    """Return the records without that column, and the lines that are none."""
    position = columns.schema.get_field_index(BAD_LINE)
    if position < 0:
        return columns, []
    lines = columns.column(position)
    records = columns.remove_column(position)
    if lines.null_count == len(lines):
        return records, []
    return records.filter(lines.is_null()), [_decode(line) for line in lines.drop_null().to_pylist()]
