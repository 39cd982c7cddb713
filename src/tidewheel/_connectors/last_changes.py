"""Changes of rows by key: which of them delete a row, and the last change of each key."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyarrow import compute

from tidewheel._values.expressions import Expression, evaluated
from tidewheel.errors import StepError

DELETE = "__tidewheel_delete"
"""The column of staged changes that says whether the row of the key is deleted."""


def deletions(columns: pa.RecordBatch, delete: str | Expression | None, who: str) -> pa.Array:
    """Return which records delete the row of their key, by a boolean column or an expression."""
    if delete is None:
        return pa.array([False] * columns.num_rows, pa.bool_())
    try:
        flags = columns.column(delete) if isinstance(delete, str) else evaluated(columns, [delete])[0]
    except (KeyError, pa.ArrowException) as error:
        raise StepError(f"{who}: delete is {delete}, but the records have {', '.join(columns.schema.names)}") from error
    if pa.types.is_null(flags.type):
        flags = flags.cast(pa.bool_())
    if not pa.types.is_boolean(flags.type):
        raise StepError(f"{who}: delete is {delete}, which has the type {flags.type} and is not a boolean")
    return compute.fill_null(flags, False)


def last_of_each(table: pa.Table, key: Sequence[str], by: str | None) -> pa.Table:
    """Return one row per key: the last one, or the last of those that have the highest value in the column `by`."""
    if by is not None:
        # The sort is stable; a row without a value never beats one with it.
        order = pa.table({"valued": compute.is_valid(table[by]), "by": table[by]})
        table = table.take(compute.sort_indices(order, [("valued", "ascending"), ("by", "ascending")]))
    position = "tidewheel position"
    numbered = table.append_column(position, pa.array(range(table.num_rows), pa.int64()))
    last = numbered.group_by(list(key)).aggregate([(position, "max")])[f"{position}_max"]
    return table.take(last.combine_chunks().sort()) if len(last) < table.num_rows else table
