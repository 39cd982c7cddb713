"""Shape: the form of a stream's values, and the conversion between columns and values."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import inspect
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Any, Literal

import msgspec
import numpy as np
import pyarrow as pa

from tidewheel._core.bytecode_reads import FieldsRead
from tidewheel._values.columns import values as column_values
from tidewheel._values.lossless import alike_times, check_times, check_whole
from tidewheel._values.records import (
    field_names,
    field_of,
    field_types,
    has_fields,
    is_record,
    is_transparent,
    optional_field,
)
from tidewheel._values.row import Row, rows_of
from tidewheel.errors import GraphError, StepError

VALUE = "value"
"""The column of a plain value, such as a number or a string."""

_DEEPEST = 30
"""The maximum nesting depth of a value in a column. Arrow's messages allow 64, Parquet files about half of that."""
_SCALARS = (bool, int, float, str, bytes, datetime.datetime, datetime.date)
_SIMPLE = {*_SCALARS, type(None)}
_NUMBERS: dict[type, Any] = {int: np.int64, float: np.float64}
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
    """The form of a stream's values.

    `row`, `dict` and `record` (a dataclass or `msgspec.Struct`) have columns; a `scalar` is one column; `any` is a
    Python object of an undeclared type.
    """

    kind: Literal["row", "dict", "record", "scalar", "any"]
    type: Any = None
    column: str = VALUE
    """The name of a scalar's only column."""
    fields: Mapping[str, pa.DataType | None] | None = dataclasses.field(default=None, compare=False, repr=False)
    """The declared columns of rows and dicts, if the source declares them; a type of None is unknown."""

    def describe(self) -> str:
        """Return a short name for messages and graphs."""
        return getattr(self.type, "__name__", None) or self.kind

    def columns(self) -> tuple[str, ...] | None:
        """Return the columns of the declared type, or None if they depend on the data."""
        if self.kind == "record":
            return tuple(field_types(self.type))
        if self.kind == "scalar":
            return (self.column,)
        return None if self.fields is None else tuple(self.fields)

    def column_type(self, column: str) -> pa.DataType | None:
        """Return the Arrow type of a column, or None if it depends on the data."""
        if self.fields is not None:
            return self.fields.get(column)
        schema = self.schema()
        return None if schema is None or column not in schema.names else schema.field(column).type

    def column_shape(self, column: str) -> Shape:
        """Return the shape of the values of one of these columns."""
        return Shape("scalar", column=column, fields={column: self.column_type(column)})

    def schema(self) -> pa.Schema | None:
        """Return the Arrow schema of the declared type, or None if it depends on the data."""
        if self.kind == "record":
            return pa.schema([(name, arrow_type(kind)) for name, kind in field_types(self.type).items()])
        if self.kind == "scalar" and self.type is not None:
            return pa.schema([(self.column, arrow_type(self.type))])
        return None

    def values(self, columns: pa.RecordBatch) -> list[Any]:
        """Return one Python value per row of the columns."""
        return self.values_of(columns, [column_values(column) for column in columns.columns])

    def values_of(self, columns: pa.RecordBatch, lists: list[list[Any]]) -> list[Any]:
        """Return one Python value per row of the columns, whose Python values are given by column."""
        if self.kind == "scalar":
            return lists[0]
        names = columns.schema.names
        if self.kind == "dict" or (self.kind == "any" and names):
            return _dicts(names, lists, columns.num_rows)
        if self.kind == "row":
            return rows_of(tuple(names), lists, columns.num_rows)
        return _record_values(self.type, names, lists)

    def hides(self, read: FieldsRead) -> bool:
        """Return whether a function that reads these fields of a dict or row cannot detect missing other fields."""
        by_item = self.kind in ("dict", "any")
        of_a_kind = self.kind == "row" or by_item
        return of_a_kind and not _is_private(read) and (read.by is None or (read.by == "item") is by_item)

    def can_read(self, columns: pa.RecordBatch, read: FieldsRead) -> bool:
        """Return whether these fields exist, and a function that reads them cannot detect missing other fields."""
        there = columns.schema.names
        if not there or any(there.count(name) != 1 for name in read.names):
            return False
        if self.kind == "record":
            by_position = takes_positions(self.type) == tuple(there) and is_transparent(self.type)
            return by_position and not _is_private(read) and read.by != "item"
        return self.hides(read)

    def values_read(self, columns: pa.RecordBatch, read: FieldsRead, order: pa.Array | None = None) -> list[Any] | None:
        """Return for each row a substitute with only these fields, which a function that reads them cannot distinguish.

        Returns None if the function could distinguish it, or if fields are missing: then the function needs the values
        themselves. `order` has the positions of the rows; None means all, in order.
        """
        if not self.can_read(columns, read):
            return None
        names = sorted(read.names)
        by_item = self.kind in ("dict", "any")
        chosen = [columns.column(name) if order is None else columns.column(name).take(order) for name in names]
        lists = [column_values(column) for column in chosen]
        rows = columns.num_rows if order is None else len(order)
        return _dicts(names, lists, rows) if by_item else rows_of(tuple(names), lists, rows)


def _is_private(read: FieldsRead) -> bool:
    """Return whether a name may be an attribute other than a field, such as `_asdict`."""
    return any(name.startswith("_") for name in read.names)


def _dicts(names: list[str], lists: list[list[Any]], rows: int) -> list[Any]:
    if not names:
        return [{} for _ in range(rows)]
    dicts: list[Any] = _dict_maker(len(names))(lists, *names)
    return dicts


@lru_cache(maxsize=64)
def _dict_maker(count: int) -> Callable[..., list[Any]]:
    """Return a function that creates dicts from lists and names; generated code takes half the time of `dict(zip(…))`."""
    keys, items = ([f"{letter}{at}" for at in range(count)] for letter in "ni")
    pairs = ", ".join(f"{key}: {item}" for key, item in zip(keys, items, strict=True))
    code = f"lambda lists, {', '.join(keys)}: [{{{pairs}}} for {', '.join(items)}, in zip(*lists, strict=True)]"
    maker: Callable[..., list[Any]] = eval(code)
    return maker


ANY = Shape("any")
ROW = Shape("row", Row)
DICT = Shape("dict", dict)
SCALAR = Shape("scalar")


def shape_of(declared: Any) -> Shape:
    """Return the shape of values of a declared type; None means undeclared."""
    if declared is None or declared is Any or declared is typing.NoReturn:
        return ANY
    if declared is Row:
        return ROW
    if declared is dict or typing.get_origin(declared) is dict:
        return DICT
    if is_record(declared):
        return Shape("record", declared)
    if unwrap_optional(declared)[0] in _SCALARS:
        return Shape("scalar", declared)
    return ANY


def arrow_type(declared: Any) -> pa.DataType:
    """Return the Arrow type for a Python type annotation.

    >>> arrow_type(list[int])
    ListType(list<item: int64>)
    """
    declared, _ = unwrap_optional(declared)
    if declared in _ARROW:
        return _ARROW[declared]
    origin, arguments = typing.get_origin(declared), typing.get_args(declared)
    if origin in (list, Sequence, set, frozenset) and arguments:
        return pa.list_(arrow_type(arguments[0]))
    if origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
        return pa.list_(arrow_type(arguments[0]))
    if origin is dict and len(arguments) == 2:
        return pa.map_(arrow_type(arguments[0]), arrow_type(arguments[1]))
    if is_record(declared):
        return pa.struct([(name, arrow_type(kind)) for name, kind in field_types(declared).items()])
    raise GraphError(
        f"the type {declared!r} has no column type; use bool, int, float, str, bytes, datetime, date, "
        "list[…], dict[…, …], a dataclass or a msgspec.Struct"
    )


def to_columns(values: list[Any], shape: Shape) -> pa.RecordBatch:
    """Convert values to columns: by the declared type if there is one, otherwise by the values themselves.

    A value without fields becomes the single column `value`.
    """
    schema = shape.schema()
    if shape.kind == "record":
        assert schema is not None
        arrays = [_array([field_of(value, field.name) for value in values], field.type, field.name) for field in schema]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)
    kinds = set(map(type, values))
    records = set(filter(has_fields, kinds))
    if shape.kind == "scalar" or not records:
        kind = None if schema is None else schema.field(0).type
        return pa.RecordBatch.from_arrays([_array(values, kind, shape.column)], [shape.column])
    if records != kinds:
        other = next(value for value in values if type(value) not in records)
        raise TypeError(f"some values are records, and others, such as {other!r}, are not")
    first = values[0]
    if isinstance(first, Row) and len(kinds) == 1:
        names = list(first._columns)
        columns: Iterable[list[Any]] = map(list, zip(*values, strict=True))
    elif kinds == {dict} and len({*map(tuple, values)}) == 1:
        names = list(first)
        columns = (list(map(itemgetter(name), values)) for name in names)
    else:
        # A field that only some records have is null in the others.
        names = list(dict.fromkeys(name for value in values for name in field_names(value)))
        columns = ([optional_field(value, name) for value in values] for name in names)
    return pa.RecordBatch.from_arrays(
        [_array(column, None, name) for name, column in zip(names, columns, strict=True)], names
    )


def _array(values: Sequence[Any], kind: pa.DataType | None, name: str) -> pa.Array:
    if kind is None or pa.types.is_nested(kind):
        kinds = set(map(type, values))
        if kind is None and len(kinds) == 1 and (number := _NUMBERS.get(*kinds)) is not None:
            # Half the time of letting Arrow inspect each value; Arrow raises for an integer that is too large.
            with contextlib.suppress(OverflowError):
                return pa.array(np.fromiter(values, number, len(values)))
        if not _SIMPLE.issuperset(kinds):
            values = [_plain(value) for value in values]
        elif kind is None:
            values = alike_times(values, kinds)
    if kind is not None:
        check_whole(values, kind)
        check_times(values, kind, name, declared=True)
        return pa.array(values, kind)
    array = pa.array(values)
    check_times(values, array.type, name, declared=False)
    return array


def _plain(value: Any, depth: int = 0) -> Any:
    """Convert records to dicts and sets to lists at every depth, which Arrow stores as structs and lists.

    Raise for values nested deeper than files and messages allow: Arrow itself would crash on a list that contains
    itself.
    """
    if value is None or isinstance(value, _SCALARS):
        return value
    if depth > _DEEPEST:
        raise ValueError(f"the value has more than {_DEEPEST} values inside each other")
    if isinstance(value, dict):
        return {name: item if type(item) in _SIMPLE else _plain(item, depth + 1) for name, item in value.items()}
    if isinstance(value, Row):
        fields = zip(value._columns, value, strict=True)
        return {name: item if type(item) in _SIMPLE else _plain(item, depth + 1) for name, item in fields}
    if has_fields(type(value)):
        return {name: _plain(getattr(value, name), depth + 1) for name in field_names(value)}
    return [_plain(item, depth + 1) for item in value] if isinstance(value, list | tuple | set | frozenset) else value


def unwrap_optional(declared: Any) -> tuple[Any, bool]:
    """Return T and True for `T | None`, otherwise the type itself and False."""
    if typing.get_origin(declared) in (typing.Union, types.UnionType):
        inner = [argument for argument in typing.get_args(declared) if argument is not type(None)]
        if len(inner) == 1 and len(typing.get_args(declared)) == 2:
            return inner[0], True
    return declared, False


def _record_values(record: Any, names: Sequence[str], lists: list[list[Any]]) -> list[Any]:
    """Build records by position if their columns are plain and in field order; otherwise by conversion."""
    if names and takes_positions(record) == tuple(names):
        return list(map(record, *lists))
    wanted = [(name, lists[names.index(name)]) for name in field_types(record) if name in names]
    chosen = [name for name, _ in wanted]
    rows = (dict(zip(chosen, row, strict=True)) for row in zip(*(column for _, column in wanted), strict=True))
    return [_converted(fields, record) for fields in rows]


def _converted(fields: dict[str, Any], record: Any) -> Any:
    try:
        return msgspec.convert(fields, record)
    except msgspec.ValidationError as error:
        raise StepError(f"the record {fields!r} does not fit {record.__name__}: {error}") from None


@lru_cache(maxsize=256)
def takes_positions(record: Any) -> tuple[str, ...]:
    """Return the fields of a record if it can be created from them by position and all are plain, otherwise none."""
    kinds = field_types(record)
    if any(unwrap_optional(kind)[0] not in _SCALARS for kind in kinds.values()):
        return ()
    parameters = inspect.signature(record).parameters
    by_position = all(p.kind is p.POSITIONAL_OR_KEYWORD for p in parameters.values())
    return tuple(kinds) if by_position and tuple(parameters) == tuple(kinds) else ()
