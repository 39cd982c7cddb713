"""Convert columns to a declared type: its fields, in its order, with its types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidewheel._values.columns import is_encoded_text
from tidewheel._values.records import field_types
from tidewheel._values.shape import Shape, arrow_type, unwrap_optional
from tidewheel.errors import GraphError, StepError

_FITS: dict[pa.DataType, tuple[Callable[[pa.DataType], bool], ...]] = {
    pa.int64(): (pa.types.is_integer,),
    pa.float64(): (pa.types.is_floating, pa.types.is_integer),
    pa.string(): (pa.types.is_string, pa.types.is_large_string),
    pa.binary(): (pa.types.is_binary, pa.types.is_large_binary),
    pa.bool_(): (pa.types.is_boolean,),
    pa.date32(): (pa.types.is_date,),
    pa.timestamp("us", tz="UTC"): (pa.types.is_timestamp,),
}
"""The types that can be read as a plain declared type without a change of meaning."""


def as_declared(columns: pa.RecordBatch, shape: Shape) -> pa.RecordBatch:
    """Return the declared fields of the columns; raise a `StepError` that names a missing field or wrong type.

    Nested columns, and types without a column type, are checked when each record is converted. For a plain value only
    the column's name is checked.
    """
    names = columns.schema.names
    missing = [name for name in shape.columns() or () if name not in names]
    if missing:
        raise StepError(
            f"the records lack the column {', '.join(missing)} of {shape.describe()}; they have {', '.join(names)}"
        )
    if shape.kind == "scalar":
        return columns.select([shape.column])
    kinds = field_types(shape.type)
    arrays = [_fitted(columns.column(names.index(name)), name, kind, shape) for name, kind in kinds.items()]
    return pa.RecordBatch.from_arrays(arrays, list(kinds))


def _fitted(column: pa.Array, name: str, declared: Any, shape: Shape) -> pa.Array:
    try:
        declared_type = arrow_type(declared)
    except GraphError:
        return column
    if is_encoded_text(column.type) and pa.types.is_string(declared_type):
        return column
    if column.type == declared_type or (pa.types.is_nested(declared_type) and not pa.types.is_null(column.type)):
        return column
    if pa.types.is_null(column.type) or any(fits(column.type) for fits in _FITS.get(declared_type, ())):
        return column.cast(declared_type)
    raise StepError(
        f"the column {name!r} is of type {column.type}, and {shape.describe()} declares {declared_type}; cast it at the source, "
        "declare the type that it has, or, in a test, pass values of the declared type"
    )


def unfilled(columns: pa.RecordBatch, shape: Shape) -> dict[int, str]:
    """Return the positions of records, or of plain values, that lack a required value, each with the column's name."""
    positions: dict[int, str] = {}
    kinds = field_types(shape.type) if shape.kind == "record" else {shape.column: shape.type}
    for name, kind in kinds.items():
        column: Any = columns.column(columns.schema.get_field_index(name))
        if column.null_count and not unwrap_optional(kind)[1]:
            positions.update(dict.fromkeys(pc.indices_nonzero(column.is_null()).to_pylist(), name))
    return dict(sorted(positions.items()))
