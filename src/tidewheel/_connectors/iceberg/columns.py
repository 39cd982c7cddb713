"""Columns for an Iceberg table: the types that it supports."""

from __future__ import annotations

import pyarrow as pa
from pyarrow import types as kinds

from tidewheel._connectors.files.table_columns import stored_scalar, stored_type
from tidewheel.errors import StepError


def created(columns: pa.Schema) -> pa.Schema:
    """Return the columns of a new table for records with these columns."""
    return pa.schema([(field.name, stored_type(field.type, _scalar)) for field in columns])


def check_types(columns: pa.Schema, who: str) -> None:
    """Raise an error for types that Iceberg does not support."""
    for field in columns:
        if kinds.is_duration(field.type) or kinds.is_interval(field.type) or isinstance(field.type, pa.ExtensionType):
            raise StepError(
                f"{who}: the column {field.name!r} of type {field.type} cannot be written to an Iceberg table; convert it "
                "to a number, a text or a timestamp"
            )


def _scalar(kind: pa.DataType) -> pa.DataType:
    if kinds.is_int8(kind) or kinds.is_int16(kind):
        return pa.int32()
    if kinds.is_time(kind):
        return pa.time64("us")
    return stored_scalar(kind)
