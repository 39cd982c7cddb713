"""Columns for a Delta table: the types that it supports."""

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa
from pyarrow import types as kinds

from tidewheel._connectors.files.table_columns import stored_scalar, stored_type
from tidewheel._values.columns import is_bytes
from tidewheel.errors import StepError


def created(columns: pa.Schema) -> pa.Schema:
    """Return the columns of a new table for records with these columns."""
    return pa.schema([(field.name, stored_type(field.type, stored_scalar)) for field in columns])


def check_types(columns: pa.Schema, partition_by: Collection[str], who: str) -> None:
    """Raise an error for types that Delta does not support, or whose values cannot be the texts of partitions."""
    for field in columns:
        if field.name in partition_by and is_bytes(field.type):
            raise StepError(
                f"{who}: a Delta table cannot be partitioned by bytes, as the column {field.name!r} has; convert it to a text"
            )
        if any(of(field.type) for of in (kinds.is_time, kinds.is_duration, kinds.is_interval)) or isinstance(
            field.type, pa.ExtensionType
        ):
            raise StepError(
                f"{who}: the column {field.name!r} of type {field.type} cannot be written to a Delta table; convert "
                "it to a number, a "
                "text or a timestamp"
            )
