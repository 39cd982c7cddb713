"""Columns for a Delta table: the types that it supports."""

from __future__ import annotations

import pyarrow as pa
from pyarrow import types as kinds

from tidewheel._connectors.files.table_columns import stored_scalar, stored_type
from tidewheel.errors import StepError


def created(columns: pa.Schema) -> pa.Schema:
    """Return the columns of a new table for records with these columns."""
    return pa.schema([(field.name, stored_type(field.type, stored_scalar)) for field in columns])


def check_types(columns: pa.Schema, who: str) -> None:
    """Raise an error for types that Delta does not support."""
    for field in columns:
        if kinds.is_time(field.type) or kinds.is_duration(field.type) or isinstance(field.type, pa.ExtensionType):
            raise StepError(
                f"{who}: the column {field.name!r} of type {field.type} cannot be written to a Delta table; convert "
                "it to a number, a "
                "text or a timestamp"
            )
