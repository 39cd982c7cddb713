"""Columns as Spark declares them, from whatever a program gives."""

from __future__ import annotations

import inspect
import re
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


_PLAIN_TYPES: dict[str, pa.DataType] = {
    **dict.fromkeys(("string", "varchar", "char"), pa.string()),
    **dict.fromkeys(("long", "bigint"), pa.int64()),
    **dict.fromkeys(("int", "integer"), pa.int32()),
    **dict.fromkeys(("short", "smallint"), pa.int16()),
    **dict.fromkeys(("byte", "tinyint"), pa.int8()),
    "double": pa.float64(),
    **dict.fromkeys(("float", "real"), pa.float32()),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "date": pa.date32(),
    **dict.fromkeys(("timestamp", "timestamp_ltz"), pa.timestamp("us", "UTC")),
    "timestamp_ntz": pa.timestamp("us"),
}
_COLUMN = re.compile(r"\s*(?:`((?:[^`]|``)+)`|(\w+))\s*:?\s+([a-z_]+)\b(.*)", re.IGNORECASE | re.DOTALL)


def known_fields(declared: Any) -> dict[str, pa.DataType | None] | None:
    """Return the columns of a declared schema without a word to Spark; None where that cannot tell them.

    A type that is not one of the plain ones is None.

    >>> known_fields("user string, tags array<string>")
    {'user': DataType(string), 'tags': None}
    """
    if not isinstance(declared, str):
        schema = declared if isinstance(declared, pa.Schema) else shape_of(declared).schema()
        return None if schema is None else {field.name: field.type for field in schema}
    fields: dict[str, pa.DataType | None] = {}
    for part in _columns(declared):
        found = _COLUMN.fullmatch(part)
        if found is None:
            return None
        name = found[1].replace("``", "`") if found[1] else found[2]
        fields[name] = _PLAIN_TYPES.get(found[3].lower())
    return fields or None


def _columns(ddl: str) -> list[str]:
    """Return the columns of a DDL text; commas inside brackets divide none."""
    parts, depth = [""], 0
    for sign in ddl:
        depth += (sign in "<(") - (sign in ">)")
        if sign == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += sign
    return parts


def arrow_schema(schema: StructType, timezone: str = "UTC") -> pa.Schema:
    """Return the Arrow schema in which Spark takes these columns from Python, and gives them in a session of that time zone."""
    from pyspark.sql.pandas.types import to_arrow_schema

    # Before Spark 4.2, UTC is what it takes without being told.
    options: dict[str, Any] = (
        {"timezone": timezone} if "timezone" in inspect.signature(to_arrow_schema).parameters else {}
    )
    return to_arrow_schema(schema, **options)
