"""Columns of records for a table in a lake: the types that the table stores, and lossless casts to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
from pyarrow import types as kinds

from tidewheel._values.columns import is_bytes
from tidewheel.errors import StepError


def stored_type(kind: pa.DataType, scalar: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """Return the type of a column for these values. `scalar` returns that of values that are not nested.

    >>> stored_type(pa.large_list(pa.timestamp("ns", "Europe/Berlin")), stored_scalar)
    ListType(list<item: timestamp[us, tz=UTC]>)
    """
    if kinds.is_dictionary(kind):
        return stored_type(kind.value_type, scalar)
    if kinds.is_map(kind):
        return pa.map_(stored_type(kind.key_type, scalar), stored_type(kind.item_type, scalar))
    if kinds.is_struct(kind):
        return pa.struct([(field.name, stored_type(field.type, scalar)) for field in kind])
    if kinds.is_list(kind) or kinds.is_large_list(kind) or kinds.is_fixed_size_list(kind):
        return pa.list_(stored_type(kind.value_type, scalar))
    return scalar(kind)


def stored_scalar(kind: pa.DataType) -> pa.DataType:
    """Return the type that both Delta Lake and Iceberg have for values that are not nested."""
    if kinds.is_unsigned_integer(kind):
        return pa.int64()
    if kinds.is_float16(kind):
        return pa.float32()
    if kinds.is_timestamp(kind):
        return pa.timestamp("us", None if kind.tz is None else "UTC")
    if kinds.is_date(kind):
        return pa.date32()
    if _is_text(kind):
        return pa.string()
    if is_bytes(kind):
        return pa.binary()
    return kind


def check_known(columns: pa.Schema, table: pa.Schema | None, who: str, *, nulls: bool = False) -> None:
    """Raise an error for new columns whose type is unknown, because their values are null or empty in all records.

    With `nulls`, the records are those of one task, and others may know the type. No file can have a struct without fields.
    """
    for field in columns:
        if (table is None or field.name not in table.names) and not _is_known(field.type, nulls):
            raise StepError(
                f"{who}: the type of the new column {field.name!r} is unknown: it is {field.type}. Declare the type that "
                "the previous step returns (returns=…), or leave the column out until it has values"
            )


def _is_known(kind: pa.DataType, nulls: bool) -> bool:
    if kinds.is_null(kind) or (kinds.is_struct(kind) and not kind.num_fields):
        return nulls and kinds.is_null(kind)
    return all(_is_known(kind.field(number).type, nulls) for number in range(kind.num_fields))


def with_new(table: pa.Schema, columns: pa.Schema) -> pa.Schema:
    """Return the columns of the table, and after them the new ones of the records."""
    return pa.schema([*table, *(field for field in columns if field.name not in table.names)])


def fitted(columns: pa.RecordBatch, table: pa.Schema, who: str, where: str, *, rounds: bool = False) -> pa.RecordBatch:
    """Return the columns in the types of the table. Raise an error if a cast would lose data: the client writes 1.5 as 1.

    With `rounds`, the rows are already committed, so integers beyond 2**53 are rounded if the table has floats.
    """
    names = columns.schema.names
    lacking = [name for name in names if name not in table.names]
    if lacking:
        raise StepError(
            f"{who}: {where} has no column {', '.join(lacking)}; it has {', '.join(table.names)}. Add it to the table, "
            'let the sink add it (evolve="add"), or remove it from the records'
        )
    unmet = [field.name for field in table if not field.nullable and field.name not in names]
    if unmet:
        raise StepError(f"{who}: {where} requires {', '.join(unmet)}, but the records have {', '.join(names)}")
    arrays = [
        _cast(columns.column(field.name), field, who, where, rounds)
        if field.name in names
        else pa.nulls(columns.num_rows, field.type)
        for field in table
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=table)


def check_partitions(names: Sequence[str], partition_by: Sequence[str], who: str) -> None:
    """Raise an error if records lack a partition column, or have no other columns."""
    lacking = [name for name in partition_by if name not in names]
    if lacking or set(names) == set(partition_by):
        problem = f"there is no column {', '.join(lacking)}" if lacking else "no other column is left"
        raise StepError(
            f"{who}: partition_by is {', '.join(partition_by)}, but {problem}; the records have {', '.join(names)}"
        )


def _cast(column: pa.Array, field: pa.Field, who: str, where: str, rounds: bool) -> pa.Array:
    kind = column.type.value_type if kinds.is_dictionary(column.type) else column.type
    alike = kinds.is_null(kind) or _is_text(kind) == _is_text(field.type)
    zones = kinds.is_timestamp(kind) and kinds.is_timestamp(field.type) and (kind.tz is None) != (field.type.tz is None)
    if not alike or zones:
        raise StepError(f"{who}: the column {field.name!r} has the type {kind}, but in {where} it has {field.type}")
    if column.null_count and not field.nullable:
        raise StepError(f"{who}: the column {field.name!r} is null in a record, but {where} does not allow nulls there")
    try:
        safe = not (rounds and kinds.is_integer(kind) and kinds.is_floating(field.type))
        return column if column.type == field.type else column.cast(field.type, safe=safe)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise StepError(
            f"{who}: the column {field.name!r} has the type {kind}, but in {where} it has {field.type}: {error}"
        ) from error


def _is_text(kind: pa.DataType) -> bool:
    return bool(kinds.is_string(kind) or kinds.is_large_string(kind) or kinds.is_string_view(kind))
