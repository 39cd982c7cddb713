"""Columns as Spark declares them, from whatever a program gives."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tidewheel._values import shape_of
from tidewheel.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


def spark_schema(declared: Any) -> StructType:
    """Return Spark's schema for a DDL string, a StructType, an Arrow schema, a dataclass or a `msgspec.Struct`."""
    from pyspark.errors import PySparkException
    from pyspark.sql.types import DataType, StructType

    if isinstance(declared, StructType):
        return declared
    if isinstance(declared, str):
        try:
            parsed = DataType.fromDDL(declared)
        except PySparkException as error:
            reason = " ".join(str(error).split("\n\n")[0].split())
            raise ConfigError(
                f"the schema {declared!r} is not what Spark reads, such as 'user string, amount long': {reason}"
            ) from error
        if isinstance(parsed, StructType) and len(parsed):
            return parsed
    schema = declared if isinstance(declared, pa.Schema) else shape_of(declared).schema()
    if schema is None:
        raise ConfigError(
            f"the schema {declared!r} is neither a DDL string such as 'user string, amount long' nor a StructType, "
            "a dataclass or a msgspec.Struct"
        )
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema)


def arrow_schema(schema: StructType, timezone: str = "UTC") -> pa.Schema:
    """Return the Arrow schema in which Spark takes these columns from Python, and gives them in a session of that time zone."""
    from pyspark.sql.pandas.types import to_arrow_schema

    # Before Spark 4.2, UTC is what it takes without being told.
    options: dict[str, Any] = (
        {"timezone": timezone} if "timezone" in inspect.signature(to_arrow_schema).parameters else {}
    )
    return to_arrow_schema(schema, **options)
