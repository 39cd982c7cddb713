"""Convert columns for PostgreSQL: their types, the check against a table, and their text for COPY."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import msgspec
import pyarrow as pa
from pyarrow import compute, csv
from pyarrow import types as kinds

from tidewheel._core.text import shortened
from tidewheel._values.columns import is_bytes, values
from tidewheel.errors import CorruptError, StepError

_INTEGERS = {"int2": 16, "int4": 32, "int8": 64}
_NUMBERS = {*_INTEGERS, "numeric", "float4", "float8"}
_TEXTS = {"text", "varchar", "bpchar", "name", "citext"}
_JSON = {"json", "jsonb"}
_MOMENTS = {"timestamp", "timestamptz"}
_NARROW = {"int2": (-(2**15), 2**15 - 1), "int4": (-(2**31), 2**31 - 1), "int8": (-(2**63), 2**63 - 1)}
_WIDER = {"int2": "int4 or int8", "int4": "int8", "int8": "numeric"}
_TYPE = b"postgres"
_CREATED = re.compile(
    r"boolean|bigint|integer|numeric(\(\d{1,4}, -?\d{1,4}\))?|double precision|real|timestamp(tz)?|date|time|bytea|jsonb|text"
)
"""The column types that `created_type` returns."""
_ZERO_IN_JSON = r"(^|[^\\])(\\\\)*\\u0000"
_to_json = msgspec.json.Encoder().encode


@dataclass(frozen=True)
class TableColumn:
    """A column of the table."""

    type: str
    """Its short name, such as int4."""
    needed: bool
    """NOT NULL without a default: every record must have this column."""
    not_null: bool = False
    """NOT NULL: a record that has this column must have a value."""
    longest: int | None = None
    """The maximum number of characters; None if there is no limit."""
    precision: int | None = None
    """The maximum number of digits of a numeric; None if there is no limit."""
    scale: int | None = None
    """The number of digits after the decimal point."""


def created(rows: pa.Schema, staged: Iterable[pa.Schema]) -> dict[str, str]:
    """Return the columns of a table for these rows, and their types."""
    declared = {
        field.name: _checked_type(field.name, field.metadata[_TYPE])
        for schema in staged
        for field in schema
        if field.metadata and _TYPE in field.metadata
    }
    return {field.name: declared.get(field.name) or created_type(field.type) for field in rows}


def _checked_type(name: str, kind: bytes) -> str:
    """Return the type that a staged file names; raise if it is unknown, because it becomes part of a statement."""
    text = kind.decode(errors="replace")
    if not _CREATED.fullmatch(text):
        raise CorruptError(
            f"a staged file says that the column {name!r} is a {text!r}, which the sink never writes; something else "
            "has written "
            "to the state store"
        )
    return text


def created_type(kind: pa.DataType) -> str:
    """Return the type of the column that a table gets for these values.

    >>> created_type(pa.int64()), created_type(pa.list_(pa.string()))
    ('bigint', 'jsonb')
    """
    if kinds.is_dictionary(kind):
        return created_type(kind.value_type)
    if kinds.is_boolean(kind):
        return "boolean"
    if kinds.is_integer(kind):
        return "numeric" if kind == pa.uint64() else "bigint" if kind.bit_width > 16 else "integer"
    if kinds.is_floating(kind):
        return "double precision" if kind.bit_width == 64 else "real"
    if kinds.is_decimal(kind):
        return f"numeric({kind.precision}, {kind.scale})"
    if kinds.is_timestamp(kind):
        return "timestamp" if kind.tz is None else "timestamptz"
    if kinds.is_date(kind):
        return "date"
    if kinds.is_time(kind):
        return "time"
    if is_bytes(kind):
        return "bytea"
    return "jsonb" if kinds.is_nested(kind) else "text"


def fits(kind: pa.DataType, column: str) -> bool:
    """Return whether a column accepts values of this type; for unknown types, PostgreSQL decides."""
    if kinds.is_null(kind) or column in _TEXTS:
        return True
    if kinds.is_dictionary(kind):
        return fits(kind.value_type, column)
    if kinds.is_boolean(kind):
        return column == "bool"
    if kinds.is_integer(kind):
        return column in _NUMBERS
    if kinds.is_floating(kind) or kinds.is_decimal(kind):
        return column in _NUMBERS - set(_INTEGERS)
    if kinds.is_timestamp(kind):
        return column in _MOMENTS
    if kinds.is_date(kind):
        return column in {"date", *_MOMENTS}
    if kinds.is_time(kind):
        return column in {"time", "timetz"}
    if is_bytes(kind):
        return column == "bytea"
    if kinds.is_nested(kind):
        return column in _JSON
    return column not in {"bool", "bytea", "date", "time", *_NUMBERS, *_MOMENTS}


def check(
    columns: pa.RecordBatch, key: Sequence[str], table: Mapping[str, TableColumn] | None, who: str, where: str
) -> None:
    """Refuse records that the table cannot store, before the commit; without a table, those that no table can store."""
    check_key(columns, key, who)
    names = columns.schema.names
    if table is not None:
        lacking = [name for name in names if name not in table]
        if lacking:
            raise StepError(
                f"{who}: {where} has no column {', '.join(lacking)}; it has {', '.join(table)}. Add the column, or "
                "leave it out"
            )
        unmet = [name for name, column in table.items() if column.needed and name not in names]
        if unmet:
            raise StepError(
                f"{who}: {where} needs {', '.join(unmet)} (not null, without default), and the records have "
                f"{', '.join(names)}"
            )
    for name, column in zip(names, columns.columns, strict=True):
        if (
            kinds.is_duration(column.type)
            or kinds.is_interval(column.type)
            or isinstance(column.type, pa.ExtensionType)
        ):
            raise StepError(
                f"{who}: the column {name!r} of type {column.type} cannot be written; make it a number or text"
            )
        if table is not None:
            if not fits(column.type, table[name].type):
                raise StepError(
                    f"{who}: the column {name!r} holds {column.type}, and in {where} it is {table[name].type}; convert "
                    "the values in the step before, or change the type of the column and start again"
                )
            _check_values(name, columns, table[name], who, where)


def check_key(columns: pa.RecordBatch, key: Sequence[str], who: str) -> None:
    """Raise an error for records without a key."""
    names = columns.schema.names
    for name in key:
        if name not in names:
            # The name of the key if `key_by` has a function.
            way = f". To call the key of the stream so, write .sink(…, key={name!r})" if "key" in names else ""
            raise StepError(f"{who}: there is no key column {name!r}; the records have {', '.join(names)}{way}")
        if columns.column(name).null_count:
            raise StepError(
                f"{who}: the key column {name!r} is null in a record; a row without a key cannot be updated"
            )


def _check_values(name: str, columns: pa.RecordBatch, wanted: TableColumn, who: str, where: str) -> None:
    """Refuse a null, a text that is too long and a number that is too large, with the first record that has one."""
    column = columns.column(name)
    if kinds.is_dictionary(column.type):
        column = column.dictionary_decode()
    if wanted.not_null and column.null_count:
        record = _first_record(columns, column.is_null())
        raise StepError(
            f"{who}: the column {name!r} is null in the record {record}, and in {where} it is not null; give every "
            "record a "
            "value there, or drop the constraint and start again"
        )
    if wanted.longest is not None:
        # PostgreSQL removes trailing spaces if only they exceed the length.
        text = compute.utf8_rtrim(_text(_writable(name, column, who)), " ")
        too_long = compute.greater(compute.utf8_length(text), wanted.longest)
        if compute.any(too_long).as_py():
            raise StepError(
                f"{who}: the column {name!r} is too long in the record {_first_record(columns, too_long)}: in "
                f"{where} it has at "
                f"most {wanted.longest} characters; shorten the text, or make the column longer and start again"
            )
    if kinds.is_integer(column.type) or kinds.is_floating(column.type) or kinds.is_decimal(column.type):
        _check_number(name, column, columns, wanted, who, where)


def _check_number(
    name: str, column: pa.Array, columns: pa.RecordBatch, wanted: TableColumn, who: str, where: str
) -> None:
    if wanted.type in _NARROW and kinds.is_integer(column.type):
        (least, most), size, wider = _NARROW[wanted.type], wanted.type, _WIDER[wanted.type]
        wrong = _outside(column, lambda number: least <= number <= most)
    elif wanted.type == "numeric" and wanted.precision is not None and wanted.scale is not None:
        size, wider = f"numeric({wanted.precision}, {wanted.scale})", "a larger numeric"
        # A number that rounds up to one more digit is too large too.
        bound = Fraction(10) ** (wanted.precision - wanted.scale) - Fraction(10) ** -wanted.scale / 2
        wrong = _outside(column, lambda number: number != number or -bound < number < bound)
    elif wanted.type == "float4" and (kinds.is_float64(column.type) or kinds.is_decimal(column.type)):
        size, wider, double = "real", "double precision", column.cast(pa.float64())
        single = double.cast(pa.float32())
        lost = compute.and_(compute.equal(single, 0.0), compute.not_equal(double, 0.0))
        wrong = compute.or_(lost, compute.and_(compute.is_inf(single), compute.is_finite(double)))
    else:
        return
    if wrong is not None and compute.any(wrong).as_py():
        raise StepError(
            f"{who}: the column {name!r} is out of range in the record {_first_record(columns, wrong)}: in {where} "
            f"it is {size}; "
            f"make the number fit, or the column {wider} and start again"
        )


def _outside(column: pa.Array, inside: Callable[[Fraction | float], bool]) -> pa.Array | None:
    """Return which numbers, as PostgreSQL reads them, are outside of a range; None if there are none."""
    ends = compute.min_max(_comparable(column))
    if all(number is None or inside(number) for number in (_read(_text(ends[end]).as_py()) for end in ("min", "max"))):
        return None
    return pa.array([number is not None and not inside(number) for number in map(_read, _text(column).to_pylist())])


def _comparable(column: pa.Array) -> pa.Array:
    """Return numbers as a type that Arrow can compare, with the same text."""
    if kinds.is_float16(column.type):
        return column.cast(pa.float64())
    if kinds.is_decimal(column.type) and column.type.bit_width < 128:
        return column.cast(pa.decimal128(column.type.precision, column.type.scale))
    return column


def _text(values: Any) -> Any:
    """Return a column or one value as the text that COPY gets."""
    return values.cast(pa.large_string())


def _read(text: str | None) -> Fraction | float | None:
    """Return the number that PostgreSQL reads. For a float these are its decimal digits, which can differ from it
    slightly.
    """
    if text is None:
        return None
    return float(text) if text.endswith(("nan", "inf")) else Fraction(text)


def _is_text(kind: pa.DataType) -> bool:
    return bool(kinds.is_string(kind) or kinds.is_large_string(kind) or kinds.is_string_view(kind))


def _first_record(columns: pa.RecordBatch, mask: pa.Array) -> str:
    record = columns.slice(compute.index(mask, True).as_py(), 1)
    return shortened({name: values(record.column(name))[0] for name in record.schema.names})


def writable(columns: pa.RecordBatch, who: str) -> pa.RecordBatch:
    """Return columns that convert to COPY's text fast: JSON and bytes as text, times as UTC, no dictionaries."""
    arrays, fields = [], []
    for field, column in zip(columns.schema, columns.columns, strict=True):
        array = _writable(field.name, column, who)
        # A created table gets the original type of a column that is converted only here.
        hidden = array.type != field.type and not kinds.is_dictionary(field.type)
        arrays.append(array)
        fields.append(pa.field(field.name, array.type, metadata={_TYPE: created_type(field.type)} if hidden else None))
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def _writable(name: str, column: pa.Array, who: str) -> pa.Array:
    kind = column.type
    if kinds.is_dictionary(kind):
        return _writable(name, column.dictionary_decode(), who)
    if kinds.is_timestamp(kind) and kind.tz is not None:
        # Arrow takes twenty times as long to format a time with its zone. All times are UTC, and so is the connection.
        return column.cast(pa.timestamp(kind.unit, "UTC")).cast(pa.timestamp(kind.unit))
    if is_bytes(kind):
        return pa.array(
            [None if value is None else "\\x" + value.hex() for value in column.to_pylist()], pa.large_string()
        )
    if kinds.is_nested(kind):
        try:
            text = [None if value is None else _to_json(value).decode() for value in values(column)]
        except (TypeError, ValueError) as error:
            raise StepError(f"{who}: the column {name!r} cannot be written as JSON: {error}") from error
        return _without_zero(name, pa.array(text, pa.large_string()), _ZERO_IN_JSON, who)
    if _is_text(kind):
        return _without_zero(name, column.cast(pa.large_string()), "\\x00", who)
    return column


def _without_zero(name: str, column: pa.Array, zero: str, who: str) -> pa.Array:
    if compute.any(compute.match_substring_regex(column, zero)).as_py():
        raise StepError(
            f"{who}: a text in the column {name!r} has the character U+0000, which PostgreSQL's texts cannot hold; "
            "replace it, "
            "or make the column bytes"
        )
    return column


def copy_text(table: pa.Table) -> memoryview:
    """Return the rows in the CSV format of COPY. Text is always quoted, so that null and an empty text differ."""
    out = pa.BufferOutputStream()
    csv.write_csv(table, out, csv.WriteOptions(include_header=False, batch_size=16_384))
    return memoryview(out.getvalue())


def grouped(tables: Iterable[pa.Table], key: Sequence[str]) -> list[list[pa.Table]]:
    """Return tables in as few groups with the same columns as possible; the rows of one key keep their order."""
    groups: list[tuple[list[str], list[pa.Table], set[tuple[object, ...]]]] = []
    for table in tables:
        names = sorted(table.schema.names)
        if groups and groups[-1][0] == names and len(groups) == 1:
            groups[0][1].append(table)  # The usual case: all tables have the same columns, and there is no key.
            continue
        keys = _keys(table, key)
        for each in groups:
            if not each[2]:
                each[2].update(*(_keys(before, key) for before in each[1]))
        # A table can join the last group with its columns, unless a later group contains one of its keys.
        at = next((at for at in range(len(groups) - 1, -1, -1) if groups[at][0] == names), None)
        if at is None or any(keys & later for _, _, later in groups[at + 1 :]):
            groups.append((names, [table], keys))
        else:
            groups[at][1].append(table)
            groups[at][2].update(keys)
    return [group for _, group, _ in groups]


def _keys(table: pa.Table, key: Sequence[str]) -> set[tuple[object, ...]]:
    return set(zip(*(table[name].to_pylist() for name in key), strict=True)) if key else set()
