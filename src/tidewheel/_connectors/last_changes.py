"""Reduce several changes of a key to the last one."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyarrow import compute


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
