"""Lines of a file that are not records. A separate column carries them to the step that rejects records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import pyarrow as pa

BAD_LINE = "_tidewheel_bad_line"
"""The column with an encoded `BadLine` for each row that is not a record; null for records."""


class BadLine(NamedTuple):
    """A line of a file that is not a record."""

    file: str
    line: int
    """The line number in the file, from 1 on; for a file without lines, the number of the record."""
    column: str | None
    """The column whose value is invalid; None if the whole line is not a record."""
    reason: str
    text: str
    """The text of the line; bytes that are not UTF-8 are shown as `\\xff`."""

    @property
    def where(self) -> str:
        """The position of the line, for errors."""
        column = "" if self.column is None else f", column {self.column!r}"
        return f"line {self.line} of {self.file}{column}"


_decode = msgspec.json.Decoder(BadLine).decode


def with_bad_lines(records: pa.RecordBatch, lines: Sequence[BadLine]) -> pa.RecordBatch:
    """Return the records, followed by the bad lines in the given order."""
    if not lines:
        return records
    schema = records.schema.append(pa.field(BAD_LINE, pa.string()))
    texts = pa.array([msgspec.json.encode(line).decode() for line in lines], pa.string())
    arrays = [pa.concat_arrays([column, pa.nulls(len(lines), column.type)]) for column in records.columns]
    return pa.RecordBatch.from_arrays(
        [*arrays, pa.concat_arrays([pa.nulls(records.num_rows, pa.string()), texts])], schema=schema
    )


def parted(columns: pa.RecordBatch) -> tuple[pa.RecordBatch, list[BadLine]]:
    """Separate the bad lines from the records; return the records without the column of bad lines."""
    position = columns.schema.get_field_index(BAD_LINE)
    if position < 0:
        return columns, []
    lines = columns.column(position)
    records = columns.remove_column(position)
    if lines.null_count == len(lines):
        return records, []
    return records.filter(lines.is_null()), [_decode(line) for line in lines.drop_null().to_pylist()]
