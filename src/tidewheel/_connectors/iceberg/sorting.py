"""The sort order of an Iceberg table, as Arrow sorts by it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidewheel._connectors.files.sorting import Positions, RowOrder

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyiceberg.table.sorting import SortField, SortOrder
    from pyiceberg.transforms import Transform
    from pyiceberg.types import IcebergType

Transformed = Callable[[pa.Array], pa.Array]

_FIELD = b"PARQUET:field_id"


def field_id(field: pa.Field) -> bytes:
    """Return the field id of a column; empty if it has none."""
    found: bytes = (field.metadata or {}).get(_FIELD, b"")
    return found


def computed(transform: Transform[Any, Any], kind: IcebergType, arrow: pa.DataType) -> Transformed | None:
    """Return the function of a transform for a type; None if pyiceberg cannot compute it."""
    from pyiceberg.exceptions import NotInstalledError

    try:
        function = transform.pyarrow_transform(kind)
        # For some types only a call fails.
        function(pa.array([], arrow))
    except (NotInstalledError, NotImplementedError, ValueError):
        return None
    return function


def row_order(table: Table, columns: pa.Schema) -> RowOrder | None:
    """Return the sort order of a table with these columns; None if it has none, or if it cannot be computed."""
    order = table.sort_order()
    values = [_values(table, each, columns) for each in order.fields]
    known = [each for each in values if each is not None]
    if not values or len(known) < len(values):
        return None
    return RowOrder(_texts(order), lambda batches: _positions(batches, order, known))


def order_id(table: Table, fields: tuple[str, ...]) -> int | None:
    """Return the id of the sort order with these fields, which may be an earlier one of the table; None if there is none."""
    return next((each.order_id for each in table.metadata.sort_orders if fields and _texts(each) == fields), None)


def _texts(order: SortOrder) -> tuple[str, ...]:
    return tuple(str(each) for each in order.fields)


def _values(table: Table, field: SortField, columns: pa.Schema) -> Callable[[pa.RecordBatch], pa.Array] | None:
    """Return the function that computes the values of a field of a sort order; None if there is none."""
    path = _path(columns, str(field.source_id).encode())
    if not path:
        return None

    def column(batch: pa.RecordBatch) -> pa.Array:
        values = batch.column(path[0])
        return pc.struct_field(values, path[1:]) if path[1:] else values

    kind = column(pa.RecordBatch.from_pylist([], columns)).type
    function = computed(field.transform, table.schema().find_type(field.source_id), kind)
    return None if function is None else lambda batch: function(column(batch))


def _path(fields: Iterable[pa.Field], source: bytes) -> list[int]:
    """Return the places that lead to the field with an id, through structs only; empty if there is none."""
    for place, field in enumerate(fields):
        if field_id(field) == source:
            return [place]
        if pa.types.is_struct(field.type) and (rest := _path(field.type, source)):
            return [place, *rest]
    return []


def _positions(
    batches: Sequence[pa.RecordBatch], order: SortOrder, values: Sequence[Callable[[pa.RecordBatch], pa.Array]]
) -> Positions:
    keys: dict[str, pa.ChunkedArray] = {}
    directions = {}
    for number, (field, of) in enumerate(zip(order.fields, values, strict=True)):
        column = pa.chunked_array([of(batch) for batch in batches])
        if column.null_count:
            # Arrow has one place for the nulls of all keys.
            keys[f"null {number}"] = column.is_null()
            directions[f"null {number}"] = "descending" if field.null_order.value == "nulls-first" else "ascending"
        keys[str(number)] = _comparable(column)
        directions[str(number)] = f"{field.direction.value}ending"
    positions: Positions = pc.sort_indices(pa.table(keys), sort_keys=list(directions.items())).to_numpy()
    return positions


def _comparable(column: pa.ChunkedArray) -> pa.ChunkedArray | pa.Array:
    """Return values that Arrow orders as Iceberg does."""
    if isinstance(column.type, pa.BaseExtensionType):
        return column.cast(column.type.storage_type)
    if not pa.types.is_floating(column.type):
        return column
    # Iceberg has the total order of IEEE 754, in which NaN is the largest number and -0.0 is less than 0.0.
    floats = column.fill_null(0).to_numpy()
    bits = floats.view(np.int64 if floats.itemsize == 8 else np.int32)
    return pa.array(bits ^ ((bits >> (8 * floats.itemsize - 1)) & np.iinfo(bits.dtype).max))
