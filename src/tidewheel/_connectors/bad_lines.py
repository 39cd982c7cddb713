"""Lines of a file that are no records: they travel in a column of their own, to where a record can be rejected.

Spark would make a record of nulls of such a line, which nobody can tell from a record that has nothing.
"""

from __future__ import annotations

import pyarrow as pa

BAD_LINE = "_tidewheel_bad_line"
"""The column of the text of a line that is not what the schema says; null for every record."""


def parted(columns: pa.RecordBatch) -> tuple[pa.RecordBatch, list[str]]:
    """Return the records without that column, and the text of the lines that are none."""
    position = columns.schema.get_field_index(BAD_LINE)
    if position < 0:
        return columns, []
    lines = columns.column(position)
    records = columns.remove_column(position)
    if lines.null_count == len(lines):
        return records, []
    return records.filter(lines.is_null()), lines.drop_null().to_pylist()
