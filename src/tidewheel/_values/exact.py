"""Values as columns that give the very same values back: how values cross a shuffle without a pickle of each."""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter, itemgetter
from typing import Any

import pyarrow as pa

from tidewheel._values.records import is_record
from tidewheel._values.row import Row, row_class
from tidewheel._values.shape import takes_positions

_PLAIN = {int, str, float, bytes, bool}


def plain_array(values: list[Any]) -> pa.Array | None:
    """Return values that are all of one plain type as a column, or None where they are not, or no column holds them."""
    kinds = set(map(type, values))
    return _array(values) if len(kinds) == 1 and kinds <= _PLAIN else None


def optional_array(values: list[Any]) -> pa.Array | None:
    """As `plain_array`, but there may be None among the values, or nothing else."""
    kinds = set(map(type, values)) - {type(None)}
    return _array(values) if len(kinds) <= 1 and kinds <= _PLAIN else None


def _array(values: list[Any]) -> pa.Array | None:
    try:
        return pa.array(values)
    except (ValueError, OverflowError):
        # An integer that no column holds, or text that is not valid Unicode.
        return None


def exact_columns(values: list[Any]) -> tuple[type, pa.RecordBatch] | None:
    """Return rows or records that are all of one class and have plain fields as that class and columns, else None.

    The class of rows is `Row`: the columns tell which rows.
    """
    kind = type(values[0])
    if any(type(value) is not kind for value in values):
        return None
    names, columns = _fields(kind, values)
    arrays = []
    for column in columns:
        array = optional_array(column)
        if array is None:
            return None
        arrays.append(array)
    if not arrays:
        return None
    return Row if issubclass(kind, Row) else kind, pa.RecordBatch.from_arrays(arrays, list(names))


def _fields(kind: Any, values: list[Any]) -> tuple[tuple[str, ...], Iterator[list[Any]]]:
    """Return the names of the fields and the values of each, or nothing where a value is more than its fields."""
    if issubclass(kind, Row):
        return kind._columns, map(list, zip(*values, strict=True))
    names = takes_positions(kind) if is_record(kind) and not hasattr(kind, "__post_init__") else ()
    if not names or not hasattr(values[0], "__dict__"):
        return names, (list(map(attrgetter(name), values)) for name in names)
    attributes = list(map(vars, values))
    # A record can have attributes besides its fields.
    if {*map(len, attributes)} != {len(names)}:
        return (), iter(())
    return names, (list(map(itemgetter(name), attributes)) for name in names)


def from_exact(kind: Any, columns: pa.RecordBatch) -> list[Any]:
    """Return the values that `exact_columns` was given."""
    make_value = row_class(tuple(columns.schema.names)) if kind is Row else kind
    return list(map(make_value, *(column.to_pylist() for column in columns.columns)))
