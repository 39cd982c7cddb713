"""Shape: what the values of a stream look like, and how columns become values and values columns."""

from __future__ import annotations

import dataclasses
import datetime
import types
import typing
from collections.abc import Callable, Sequence
from typing import Any, Literal

import msgspec
import pyarrow as pa

from tidewheel.errors import GraphError
from tidewheel.values.row import Row, row_class

VALUE = "value"
"""The column of a value that is a plain number, string and so on."""

_SCALARS = (bool, int, float, str, bytes, datetime.datetime, datetime.date)
_ARROW: dict[Any, pa.DataType] = {
    bool: pa.bool_(),
    int: pa.int64(),
    float: pa.float64(),
    str: pa.string(),
    bytes: pa.binary(),
    datetime.datetime: pa.timestamp("us", tz="UTC"),
    datetime.date: pa.date32(),
}


@dataclasses.dataclass(frozen=True)
class Shape:
    """What the values of a stream look like.

    `row`, `dict` and `record` (a dataclass or `msgspec.Struct`) have columns; a `scalar` is one column named `value`;
    `any` is a Python object that nobody declared.
    """

    kind: Literal["row", "dict", "record", "scalar", "any"]
    type: Any = None

    def describe(self) -> str:
        """Return a short name for messages and graphs."""
        return getattr(self.type, "__name__", None) or self.kind

    def columns(self) -> tuple[str, ...] | None:
        """Return the columns that the declared type has, or None where only the data can tell."""
        if self.kind == "record":
            return tuple(_field_types(self.type))
        return (VALUE,) if self.kind == "scalar" else None

    def schema(self) -> pa.Schema | None:
        """Return the Arrow schema of the declared type, or None where only the data can tell."""
        if self.kind == "record":
            return pa.schema([(name, arrow_type(kind)) for name, kind in _field_types(self.type).items()])
        if self.kind == "scalar" and self.type is not None:
            return pa.schema([(VALUE, arrow_type(self.type))])
        return None

    def values(self, columns: pa.RecordBatch) -> list[Any]:
        """Return one Python value per row of the columns."""
        if self.kind == "scalar":
            return typing.cast(list[Any], columns.column(0).to_pylist())
        lists = [column.to_pylist() for column in columns.columns]
        names = columns.schema.names
        if self.kind == "dict" or (self.kind == "any" and names):
            return [dict(zip(names, row, strict=True)) for row in zip(*lists, strict=True)]
        if self.kind == "row":
            return list(map(row_class(tuple(names))._make, zip(*lists, strict=True)))  # type: ignore[attr-defined]
        return _record_values(self.type, names, lists)


ANY = Shape("any")
ROW = Shape("row", Row)
DICT = Shape("dict", dict)
SCALAR = Shape("scalar")


def shape_of(declared: Any) -> Shape:
    """Return the shape of values of a declared type; None means that nothing was declared."""
    if declared is None or declared is Any or declared is typing.NoReturn:
        return ANY
    if declared is Row:
        return ROW
    if declared is dict or typing.get_origin(declared) is dict:
        return DICT
    if _is_record(declared):
        return Shape("record", declared)
    if _unwrap_optional(declared)[0] in _SCALARS:
        return Shape("scalar", declared)
    return ANY


def arrow_type(declared: Any) -> pa.DataType:
    """Return the Arrow type for a Python type annotation.

    >>> arrow_type(list[int])
    ListType(list<item: int64>)
    """
    declared, _ = _unwrap_optional(declared)
    if declared in _ARROW:
        return _ARROW[declared]
    origin, arguments = typing.get_origin(declared), typing.get_args(declared)
    if origin in (list, Sequence, set, frozenset) and arguments:
        return pa.list_(arrow_type(arguments[0]))
    if origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
        return pa.list_(arrow_type(arguments[0]))
    if origin is dict and len(arguments) == 2:
        return pa.map_(arrow_type(arguments[0]), arrow_type(arguments[1]))
    if _is_record(declared):
        return pa.struct([(name, arrow_type(kind)) for name, kind in _field_types(declared).items()])
    raise GraphError(
        f"the type {declared!r} has no column type; use bool, int, float, str, bytes, datetime, date, "
        "list[…], dict[…, …], a dataclass or a msgspec.Struct"
    )


def to_columns(values: list[Any], shape: Shape) -> pa.RecordBatch:
    """Return the values as columns: by the declared type where there is one, else as the values themselves show.

    A value without fields becomes the one column `value`.
    """
    schema = shape.schema()
    if shape.kind == "scalar" or (values and not _has_fields(values[0])) or (not values and schema is None):
        kind = schema.field(0).type if schema is not None else None
        return pa.RecordBatch.from_arrays([pa.array(values, kind)], [VALUE])
    if schema is not None:
        return _by_fields(values, schema.names, schema)
    if isinstance(values[0], dict):
        names = list(dict.fromkeys(name for value in values for name in value))
        return pa.RecordBatch.from_arrays([pa.array([value.get(name) for value in values]) for name in names], names)
    return _by_fields(values, list(_fields(values[0])), None)


def _by_fields(values: list[Any], names: Sequence[str], schema: pa.Schema | None) -> pa.RecordBatch:
    arrays = []
    for position, name in enumerate(names):
        if isinstance(values[0], dict):
            column = [value.get(name) for value in values]
        else:
            column = [_plain(getattr(value, name)) for value in values]
        arrays.append(pa.array(column, schema.field(position).type if schema is not None else None))
    return pa.RecordBatch.from_arrays(arrays, list(names))


def _plain(value: Any) -> Any:
    """Turn nested records into dicts, which Arrow takes as structs."""
    return (
        msgspec.to_builtins(value, builtin_types=(bytes, datetime.datetime, datetime.date))
        if _has_fields(value)
        else value
    )


def _has_fields(value: Any) -> bool:
    return isinstance(value, dict | msgspec.Struct) or hasattr(value, "_fields") or dataclasses.is_dataclass(value)


def _fields(value: Any) -> tuple[str, ...]:
    if isinstance(value, msgspec.Struct):
        return value.__struct_fields__
    if dataclasses.is_dataclass(value):
        return tuple(field.name for field in dataclasses.fields(value))
    return typing.cast(tuple[str, ...], value._fields)


def _is_record(declared: Any) -> bool:
    return isinstance(declared, type) and (issubclass(declared, msgspec.Struct) or dataclasses.is_dataclass(declared))


def _field_types(record: Any) -> dict[str, Any]:
    hints = typing.get_type_hints(record)
    if issubclass(record, msgspec.Struct):
        return {name: hints[name] for name in record.__struct_fields__}
    return {field.name: hints[field.name] for field in dataclasses.fields(record)}


def _unwrap_optional(declared: Any) -> tuple[Any, bool]:
    if typing.get_origin(declared) in (typing.Union, types.UnionType):
        inner = [argument for argument in typing.get_args(declared) if argument is not type(None)]
        if len(inner) == 1:
            return inner[0], True
    return declared, False


def _record_values(record: Any, names: Sequence[str], lists: list[list[Any]]) -> list[Any]:
    """Build records by position when their columns stand in the order of the fields and are plain; else by conversion."""
    kinds = _field_types(record)
    if tuple(kinds) == tuple(names) and all(_unwrap_optional(kind)[0] in _SCALARS for kind in kinds.values()):
        return list(map(record, *lists))
    build: Callable[[dict[str, Any]], Any] = lambda fields: msgspec.convert(fields, record)  # noqa: E731
    wanted = [(name, lists[names.index(name)]) for name in kinds if name in names]
    chosen = [name for name, _ in wanted]
    return [build(dict(zip(chosen, row, strict=True))) for row in zip(*(column for _, column in wanted), strict=True)]
