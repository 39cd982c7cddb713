"""State as typed columns: the key first, then the fields of the value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from tidewheel._checkpoint.tools.text import shown
from tidewheel._values.shape import VALUE, Shape, shape_of, to_columns
from tidewheel.errors import StateError

KEY = "key"
_MAX_FIELDS = 200
SAMPLE = 1000
"""How many values the schema is taken from where no type is given."""


class Columns:
    """How the keys and values of one operator become columns.

    A declared type fixes the columns. Without one, a sample decides: a value with fields gets a column for each field, any
    other value is the column `value`. Values without a column type become JSON text.
    """

    def __init__(self, declared: Any, names: Sequence[str], keys: list[Any], values: list[Any]) -> None:
        """Take the declared type, the names of a packed value's numbers, and a sample."""
        self.shape: Shape = shape_of(declared)
        self.names = tuple(names)
        self.json: set[str] = set()
        sample = self._values(values)
        fields = [pa.field(KEY, self._type(KEY, _plain_keys(keys)))]
        declared_schema = self.shape.schema()
        if declared_schema is not None:
            fields += list(declared_schema)
        elif self._has_fields(sample):
            self.names = tuple(dict.fromkeys(name for value in sample for name in value))
            fields += [pa.field(n, self._type(n, [value.get(n) for value in sample])) for n in self.names]
        else:
            self.names = ()
            fields.append(pa.field(VALUE, self._type(VALUE, sample)))
        self.schema = pa.schema([fields[0], *(_renamed(field) for field in fields[1:])])

    def batch(self, keys: list[Any] | pa.Array, values: list[Any]) -> pa.RecordBatch:
        """Return keys, which may be a column already, and values as one record batch of the schema."""
        try:
            kind = self.schema.field(0).type
            if not isinstance(keys, list) and keys.type != kind:
                keys = keys.to_pylist()
            arrays = [self._array(KEY, _plain_keys(keys), kind) if isinstance(keys, list) else keys]
            if self.shape.schema() is not None:
                arrays += to_columns(values, self.shape).columns
            elif self.names:
                records = self._values(values)
                for at, name in enumerate(self.names, 1):
                    arrays.append(self._array(name, [value.get(name) for value in records], self.schema.field(at).type))
            else:
                arrays.append(self._array(VALUE, self._values(values), self.schema.field(1).type))
        except (pa.ArrowInvalid, pa.ArrowTypeError, AttributeError, OverflowError) as error:
            raise StateError(
                f"a value does not fit the columns {', '.join(self.schema.names)}, which were taken from a sample of the state "
                f"({error}); say what the state is with type=, such as type=dict[str, float] or your own class"
            ) from None
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _values(self, values: list[Any]) -> list[Any]:
        """Give the numbers of a packed value their names."""
        if self.names and values and isinstance(values[0], list):
            return [dict(zip(self.names, value, strict=True)) for value in values]
        return values

    def _has_fields(self, sample: list[Any]) -> bool:
        if not sample or not all(isinstance(value, dict) for value in sample):
            return False
        names = {name for value in sample for name in value}
        return 0 < len(names) <= _MAX_FIELDS and all(isinstance(name, str) for name in names)

    def _type(self, name: str, sample: list[Any]) -> pa.DataType:
        try:
            kind = pa.array(sample).type
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError):
            kind = pa.null()
        if _unknown(kind):
            self.json.add(name)
            return pa.string()
        return kind

    def _array(self, name: str, values: list[Any], kind: pa.DataType) -> pa.Array:
        if name in self.json:
            values = [None if value is None else shown(value) for value in values]
        return pa.array(values, kind)


def _renamed(field: pa.Field) -> pa.Field:
    return field.with_name(f"value_{KEY}") if field.name == KEY else field


def _plain_keys(keys: list[Any]) -> list[Any]:
    """Make tuples structs: their parts have types of their own."""
    if any(isinstance(key, tuple) for key in keys):
        return [{f"_{at}": part for at, part in enumerate(key)} if isinstance(key, tuple) else key for key in keys]
    return keys


def _unknown(kind: pa.DataType) -> bool:
    return pa.types.is_null(kind) or any(_unknown(kind.field(at).type) for at in range(kind.num_fields))
