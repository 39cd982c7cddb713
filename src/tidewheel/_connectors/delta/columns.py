"""Columns on their way into a Delta table: the types it can have, and columns cast to its own without losing anything."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyarrow import types as kinds

from tidewheel._values.columns import is_bytes
from tidewheel.errors import OperatorError


def created_type(kind: pa.DataType) -> pa.DataType:
    """Return the type that a Delta table has for these values.

    >>> created_type(pa.timestamp("ns", "Europe/Berlin"))
    TimestampType(timestamp[us, tz=UTC])
    """
    if kinds.is_dictionary(kind):
        return created_type(kind.value_type)
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
    if kinds.is_map(kind):
        return pa.map_(created_type(kind.key_type), created_type(kind.item_type))
    if kinds.is_struct(kind):
        return pa.struct([(field.name, created_type(field.type)) for field in kind])
    if kinds.is_list(kind) or kinds.is_large_list(kind) or kinds.is_fixed_size_list(kind):
        return pa.list_(created_type(kind.value_type))
    return kind


def created(columns: pa.Schema) -> pa.Schema:
    """Return the columns of a table for records with these."""
    return pa.schema([(field.name, created_type(field.type)) for field in columns])


def fitted(columns: pa.RecordBatch, table: pa.Schema, who: str, where: str, *, rounds: bool = False) -> pa.RecordBatch:
    """Return the columns as the table has them, or refuse them: the Delta client itself cuts 1.5 to 1 without a word.

    `rounds`: the rows are committed, so integers beyond 2**53 are rounded where the table has floats.
    """
    names = columns.schema.names
    lacking = [name for name in names if name not in table.names]
    if lacking:
        raise OperatorError(
            f"{who}: {where} has no column {', '.join(lacking)}; it has {', '.join(table.names)}. Add the column to the table, "
            "or leave it out of the records"
        )
    unmet = [field.name for field in table if not field.nullable and field.name not in names]
    if unmet:
        raise OperatorError(f"{who}: {where} needs {', '.join(unmet)}, and the records have {', '.join(names)}")
    arrays = [
        _cast(columns.column(field.name), field, who, where, rounds)
        if field.name in names
        else pa.nulls(columns.num_rows, field.type)
        for field in table
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=table)


def check_types(columns: pa.Schema, who: str) -> None:
    """Refuse types that no Delta table has."""
    for field in columns:
        if kinds.is_time(field.type) or kinds.is_duration(field.type) or isinstance(field.type, pa.ExtensionType):
            raise OperatorError(
                f"{who}: the column {field.name!r} of type {field.type} cannot be written to a Delta table; make it a number, a "
                "text or a timestamp"
            )


def check_partitions(names: Sequence[str], partition_by: Sequence[str], who: str) -> None:
    """Refuse records that lack a column to partition by, or that have no other."""
    lacking = [name for name in partition_by if name not in names]
    if lacking or set(names) == set(partition_by):
        problem = f"there is no column {', '.join(lacking)}" if lacking else "no other column is left"
        raise OperatorError(
            f"{who}: partition_by names {', '.join(partition_by)}, and {problem}; the records have {', '.join(names)}"
        )


def _cast(column: pa.Array, field: pa.Field, who: str, where: str, rounds: bool) -> pa.Array:
    kind = column.type.value_type if kinds.is_dictionary(column.type) else column.type
    alike = kinds.is_null(kind) or _is_text(kind) == _is_text(field.type)
    zones = kinds.is_timestamp(kind) and kinds.is_timestamp(field.type) and (kind.tz is None) != (field.type.tz is None)
    if not alike or zones:
        raise OperatorError(f"{who}: the column {field.name!r} holds {kind}, and in {where} it is {field.type}")
    if column.null_count and not field.nullable:
        raise OperatorError(f"{who}: the column {field.name!r} is null in a record, and {where} does not allow that")
    try:
        safe = not (rounds and kinds.is_integer(kind) and kinds.is_floating(field.type))
        return column if column.type == field.type else column.cast(field.type, safe=safe)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise OperatorError(
            f"{who}: the column {field.name!r} holds {kind}, and in {where} it is {field.type}: {error}"
        ) from error


def _is_text(kind: pa.DataType) -> bool:
    return bool(kinds.is_string(kind) or kinds.is_large_string(kind) or kinds.is_string_view(kind))
