"""Convert the schemas that a program can declare to those of Spark and Arrow."""

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
                f"the schema {declared!r} is not a valid DDL string, such as 'user string, amount long': {reason}"
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


def declared_schema(declared: Any) -> pa.Schema:
    """Return the columns of a DDL string, a StructType, an Arrow schema, a dataclass or a `msgspec.Struct`, without Spark.

    >>> declared_schema("user string, tags array<string>, at timestamp").types
    [DataType(string), ListType(list<element: string>), TimestampType(timestamp[us, tz=UTC])]
    """
    if isinstance(declared, str):
        return pa.schema(_Ddl(declared).columns())
    if isinstance(declared, pa.Schema):
        return declared
    if hasattr(declared, "jsonValue"):  # A StructType, without an import of Spark.
        return arrow_schema(declared)
    schema = shape_of(declared).schema()
    if schema is None:
        raise ConfigError(
            f"the schema {declared!r} is neither a DDL string such as 'user string, amount long' nor a StructType, "
            "a dataclass or a msgspec.Struct"
        )
    return schema


class _Ddl:
    """A parser of DDL: names and types, which may be nested."""

    _TOKEN = re.compile(r"\s*(`(?:[^`]|``)+`|'(?:[^'\\]|\\.)*'|[\w.]+|[<>(),:])")

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[str] = []
        at = 0
        while text[at:].strip():
            found = self._TOKEN.match(text, at)
            if found is None:
                raise self._wrong(f"{text[at:].strip()[:20]!r} is not understood")
            self._tokens.append(found[1])
            at = found.end()
        self._at = 0

    def columns(self) -> list[pa.Field]:
        found = self._fields("")
        if self._at < len(self._tokens):
            raise self._wrong(f"{self._tokens[self._at]!r} is not understood")
        return found

    def _fields(self, end: str) -> list[pa.Field]:
        found = [self._field()]
        while self._peek() == ",":
            self._next()
            found.append(self._field())
        if end:
            self._expect(end)
        return found

    def _field(self) -> pa.Field:
        name = self._next()
        if not re.fullmatch(r"`.+`|\w+", name, re.DOTALL):
            raise self._wrong(f"{name!r} is not the name of a column")
        if self._peek() == ":":
            self._next()
        kind = self._type()
        nullable = True
        if self._peek().lower() == "not":
            self._next()
            self._expect("null")
            nullable = False
        if self._peek().lower() == "comment":
            self._next(), self._next()
        return pa.field(name[1:-1].replace("``", "`") if name.startswith("`") else name, kind, nullable)

    def _type(self) -> pa.DataType:
        name = self._next()
        match name.lower():
            case "array":
                self._expect("<")
                inner = self._type()
                self._expect(">")
                return pa.list_(pa.field("element", inner))
            case "map":
                self._expect("<")
                key = self._type()
                self._expect(",")
                value = self._type()
                self._expect(">")
                return pa.map_(key, value)
            case "struct":
                self._expect("<")
                return pa.struct(self._fields(">"))
            case "decimal" | "dec" | "numeric":
                digits = self._numbers()
                return pa.decimal128(*(digits + [10, 0][len(digits) :]))
            case "varchar" | "char" | "character":
                self._numbers()
                return pa.string()
        found = _PLAIN_TYPES.get(name.lower())
        if found is None:
            raise self._wrong(f"there is no type {name!r}")
        return found

    def _numbers(self) -> list[int]:
        if self._peek() != "(":
            return []
        self._next()
        found = []
        while True:
            number = self._next()
            if not number.isdigit():
                raise self._wrong(f"{number!r} is not a number")
            found.append(int(number))
            sign = self._next()
            if sign == ")":
                return found
            if sign != ",":
                raise self._wrong(f"{sign!r} is not understood")

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _next(self) -> str:
        token = self._peek()
        if not token:
            raise self._wrong("the end is missing")
        self._at += 1
        return token

    def _expect(self, token: str) -> None:
        found = self._next()
        if found.lower() != token:
            raise self._wrong(f"expected {token!r}, found {found!r}")

    def _wrong(self, what: str) -> ConfigError:
        return ConfigError(
            f"the schema {self._text!r} is not a valid DDL string, such as 'user string, amount long': {what}"
        )


def arrow_schema(schema: StructType, timezone: str = "UTC") -> pa.Schema:
    """Return the Arrow schema in which Spark exchanges these columns with Python, in a session with that time zone."""
    from pyspark.sql.pandas.types import to_arrow_schema

    # Before Spark 4.2, the default is UTC.
    options: dict[str, Any] = (
        {"timezone": timezone} if "timezone" in inspect.signature(to_arrow_schema).parameters else {}
    )
    return to_arrow_schema(schema, **options)
