"""Columns of Arrow: their kinds, and the Python values in them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyarrow import types as kinds


def records(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """Return one dict per row."""
    names = batch.schema.names
    return [dict(zip(names, row, strict=True)) for row in zip(*map(values, batch.columns), strict=True)]


def values(column: pa.Array) -> list[Any]:
    """Return a column's Python values, maps as dicts."""
    # Asking for dicts takes twenty times as long, also where there are none.
    return column.to_pylist(maps_as_pydicts="strict") if _has_maps(column.type) else column.to_pylist()  # type: ignore[no-any-return]


def is_bytes(kind: pa.DataType) -> bool:
    """Tell whether values of a type are bytes, however Arrow lays them out."""
    return bool(
        kinds.is_binary(kind)
        or kinds.is_large_binary(kind)
        or kinds.is_fixed_size_binary(kind)
        or kinds.is_binary_view(kind)
    )


def _has_maps(kind: pa.DataType) -> bool:
    return kinds.is_map(kind) or any(_has_maps(kind.field(at).type) for at in range(kind.num_fields))
