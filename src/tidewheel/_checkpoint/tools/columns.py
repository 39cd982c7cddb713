"""State as typed columns: the key first, then the fields of the value."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from tidewheel._checkpoint.tools.text import shown
from tidewheel._values.shape import VALUE, Shape, shape_of, to_columns
from tidewheel.errors import StateError

KEY = "key"
_MAX_FIELDS = 200
_NO_COLUMN = (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError)
"""The errors of Arrow for values without a common column type."""
_SCALARS = (pa.bool_(), pa.int64(), pa.float64(), pa.string(), pa.binary())

Chunk = tuple[list[Any], list[Any]]
"""Keys, and the value of each."""


class Columns:
    """The mapping of one step's keys and values to columns.

    A declared type determines the columns. Otherwise they are inferred from all values: values with fields get one
    column per field, other values the column `value`. Values without a column type become JSON text.
    """

    def __init__(self, declared: Any, names: Sequence[str], chunks: Iterable[Chunk]) -> None:
        """Use the declared type, the names of a packed value's numbers, and all keys and values."""
        self.shape: Shape = shape_of(declared)
        self.names = tuple(names)
        self.json: set[str] = set()
        declared_schema = self.shape.schema()
        key_type, values = _Type(), _ValueTypes()
        for keys, found in chunks:
            key_type.add(_plain_keys(keys))
            if declared_schema is None:
                values.add(self._values(found))
        fields = [self._field(KEY, key_type)]
        if declared_schema is not None:
            fields += list(declared_schema)
        else:
            self.names = tuple(values.fields) if values.has_fields else ()
            types = values.fields if values.has_fields else {VALUE: values.whole}
            fields += [self._field(name, kind) for name, kind in types.items()]
        self.is_exact = key_type.is_exact and values.is_exact and declared_schema is None
        """Whether keys and values are certain to be read back unchanged."""
        self.schema = pa.schema([fields[0], *(_renamed(field) for field in fields[1:])])

    def batch(self, keys: list[Any] | pa.Array, values: list[Any]) -> pa.RecordBatch:
        """Return keys, which may already be a column, and values as one record batch of the schema."""
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
        except (AttributeError, *_NO_COLUMN) as error:
            raise StateError(
                f"a value does not fit the columns {', '.join(self.schema.names)} ({error}); say what the state is with type=, "
                "such as type=dict[str, float] or your own class"
            ) from None
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _values(self, values: list[Any]) -> list[Any]:
        """Name the numbers of a packed value."""
        if self.names and values and isinstance(values[0], list):
            return [dict(zip(self.names, value, strict=True)) for value in values]
        return values

    def _field(self, name: str, found: _Type) -> pa.Field:
        if found.kind is None or _unknown(found.kind):
            self.json.add(name)
            return pa.field(name, pa.string())
        return pa.field(name, found.kind)

    def _array(self, name: str, values: list[Any], kind: pa.DataType) -> pa.Array:
        if name in self.json:
            values = [None if value is None else shown(value) for value in values]
        return pa.array(values, kind)


class _Type:
    """The common column type of all values of a column."""

    def __init__(self) -> None:
        self.kind: pa.DataType | None = pa.null()
        """None: the values have no common type."""
        self.is_exact = True
        """Whether all values are scalars of one type, which Arrow returns unchanged."""

    def add(self, values: list[Any]) -> None:
        if self.kind is None or not values:
            return
        try:
            found = pa.array(values).type
            both = pa.unify_schemas([_one(self.kind), _one(found)], promote_options="permissive").field(0).type
        except _NO_COLUMN:
            self.kind, self.is_exact = None, False
            return
        if pa.types.is_null(found):
            return
        # Arrow converts integers among floats to floats.
        kinds = set(map(type, values)) - {type(None)}
        self.is_exact = self.is_exact and both in _SCALARS and both in (found, pa.null()) and len(kinds) < 2
        self.is_exact = self.is_exact and self.kind in (both, pa.null())
        self.kind = both


class _ValueTypes:
    """The column types of values: by field while all values have fields, otherwise as a whole."""

    def __init__(self) -> None:
        self.fields: dict[str, _Type] = {}
        self.whole = _Type()
        self._others = False
        self._names: set[frozenset[str]] = set()

    @property
    def has_fields(self) -> bool:
        return 0 < len(self.fields) <= _MAX_FIELDS and not self._others

    @property
    def is_exact(self) -> bool:
        if not self.has_fields:
            return self.whole.is_exact and self.whole.kind is not None and not self.fields
        # A field called key or value would collide with the column names.
        return (
            len(self._names) == 1
            and not {KEY, VALUE} & self.fields.keys()
            and all(each.is_exact for each in self.fields.values())
        )

    def add(self, values: list[Any]) -> None:
        if not all(isinstance(value, dict) and all(isinstance(name, str) for name in value) for value in values):
            if self.fields:
                self.whole.kind = None  # Some values have fields and others have none.
            self._others = True
        if self._others:
            self.whole.add(values)
            return
        self._names |= {frozenset(value) for value in values}
        for name in dict.fromkeys(name for value in values for name in value):
            if len(self.fields) <= _MAX_FIELDS:
                self.fields.setdefault(name, _Type()).add([value.get(name) for value in values])
        if len(self.fields) > _MAX_FIELDS or not self.fields:
            self.whole.kind = None


def _one(kind: pa.DataType) -> pa.Schema:
    return pa.schema([pa.field(VALUE, kind)])


def _renamed(field: pa.Field) -> pa.Field:
    return field.with_name(f"value_{KEY}") if field.name == KEY else field


def _plain_keys(keys: list[Any]) -> list[Any]:
    """Convert tuples to structs, because their parts have different types."""
    if any(isinstance(key, tuple) for key in keys):
        return [{f"_{at}": part for at, part in enumerate(key)} if isinstance(key, tuple) else key for key in keys]
    return keys


def _unknown(kind: pa.DataType) -> bool:
    # Parquet does not support a struct without fields.
    empty = pa.types.is_struct(kind) and not kind.num_fields
    return pa.types.is_null(kind) or empty or any(_unknown(kind.field(at).type) for at in range(kind.num_fields))
