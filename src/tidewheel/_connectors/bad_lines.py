"""Lines of a file that are no records: they travel in a column of their own, to where a record can be rejected.

Spark would make a record of nulls of such a line, which nobody can tell from a record that has nothing.
"""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa

BAD_LINE = "_tidewheel_bad_line"
"""The column of a line that is not what the schema says: the URL of its file, a line break, its text. Null for every record."""


class BadLine(NamedTuple):
    """A line of a file that is no record."""

    file: str
    """The URL of the file."""
    text: str


def parted(columns: pa.RecordBatch) -> tuple[pa.RecordBatch, list[BadLine]]:
    """Return the records without that column, and the lines that are none."""
    position = columns.schema.get_field_index(BAD_LINE)
    if position < 0:
        return columns, []
    lines = columns.column(position)
    records = columns.remove_column(position)
    if lines.null_count == len(lines):
        return records, []
    return records.filter(lines.is_null()), [_parsed(line) for line in lines.drop_null().to_pylist()]


def _parsed(line: str) -> BadLine:
    file, _, text = line.partition("\n")  # A URL has no line break.
    return BadLine(file, text)
