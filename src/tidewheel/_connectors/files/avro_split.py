"""Avro files as tasks read them, by fastavro."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import pyarrow as pa

from tidewheel._codecs.avro_schema import check_arrays
from tidewheel._connectors.files.columnar_split import ColumnarSplit
from tidewheel._connectors.files.fitting import Fitting
from tidewheel._connectors.files.input_file import InputFile
from tidewheel._values.columns import without_columns
from tidewheel.errors import ConfigError, StepError

_ROWS = 10_000
_PLAIN: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "fixed": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
}
_LOGICAL: dict[str, pa.DataType] = {
    "date": pa.date32(),
    "timestamp-millis": pa.timestamp("us", "UTC"),
    "timestamp-micros": pa.timestamp("us", "UTC"),
    "local-timestamp-millis": pa.timestamp("us"),
    "local-timestamp-micros": pa.timestamp("us"),
    "uuid": pa.string(),
}


@dataclass(frozen=True)
class AvroSplit(ColumnarSplit):
    """An Avro file, which is one unit: only its header says how its blocks are compressed."""

    reading: ClassVar[Literal["once", "dear", "cheap"]] = "dear"

    def _batches(self) -> Iterator[tuple[Fitting, pa.RecordBatch]]:
        fastavro = _fastavro()
        with self.file.opened("an Avro file") as opened:
            try:
                reader = fastavro.reader(opened)
                check_arrays({"type": "array", "items": reader.writer_schema})  # A file is an array of records.
                present = _schema(self.file.shown, reader.writer_schema)
                fitting = Fitting(self.file.shown, present, self.columns)
                wanted = fitting.wanted(self.only)
                types = pa.schema([present.field(name) for name in wanted])
                rows: list[Any] = []
                for record in reader:
                    rows.append(record)
                    if len(rows) == _ROWS:
                        yield fitting, _columns(rows, types)
                        rows = []
                if rows:
                    yield fitting, _columns(rows, types)
            except (ValueError, EOFError, TypeError, KeyError, IndexError, AssertionError, OverflowError) as error:
                raise StepError(
                    f"{self.file.shown} cannot be read as an Avro file: {type(error).__name__}: {error}"
                ) from error

    @classmethod
    def count(cls, file: InputFile) -> int:
        return 1

    @classmethod
    def schema_of(cls, file: InputFile) -> pa.Schema:
        with file.opened("an Avro file") as opened:
            try:
                return _schema(file.shown, _fastavro().reader(opened).writer_schema)
            except (ValueError, EOFError) as error:
                raise StepError(f"{file.shown} cannot be read as an Avro file: {error}") from error


def _fastavro() -> Any:
    try:
        import fastavro
    except ImportError as error:
        raise ConfigError("Avro files need the package fastavro: pip install 'tidewheel[avro]'") from error
    return fastavro


def _columns(rows: list[Any], types: pa.Schema) -> pa.RecordBatch:
    if not types.names:
        return without_columns(len(rows))
    arrays = [pa.array([_value(row[field.name], field.type) for row in rows], field.type) for field in types]
    return pa.RecordBatch.from_arrays(arrays, schema=types)


def _value(value: Any, kind: pa.DataType) -> Any:
    """Convert a value of fastavro to one that Arrow accepts."""
    if pa.types.is_map(kind) and isinstance(value, dict):
        return [(name, _value(item, kind.item_type)) for name, item in value.items()]
    if pa.types.is_struct(kind) and isinstance(value, dict):
        return {field.name: _value(value[field.name], field.type) for field in kind}
    if pa.types.is_list(kind) and isinstance(value, list):
        return [_value(item, kind.value_type) for item in value]
    if pa.types.is_string(kind) and value is not None and not isinstance(value, str):
        return str(value)  # A UUID.
    if pa.types.is_timestamp(kind) and kind.tz is None and isinstance(value, datetime.datetime):
        return value.replace(tzinfo=None)
    return value


def _schema(file: str, schema: Any) -> pa.Schema:
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise StepError(f"{file} has no records: the schema of an Avro file must be one of a record")
    named: dict[str, Any] = {}
    return pa.schema(_type(file, schema, named))


def _type(file: str, schema: Any, named: dict[str, Any]) -> pa.DataType:
    """Return the Arrow type of a part of an Avro schema."""
    if isinstance(schema, list):
        others = [part for part in schema if part != "null"]
        if len(others) != 1:
            raise StepError(f"{file} has a union of {', '.join(map(str, others))}; only one type or null is supported")
        return _type(file, others[0], named)
    if isinstance(schema, str):
        if schema in _PLAIN:
            return _PLAIN[schema]
        if schema in named:
            return named[schema]
        raise StepError(f"{file} has a value of the Avro type {schema!r}, which is not supported")
    logical = schema.get("logicalType")
    if logical == "decimal":
        found: pa.DataType = pa.decimal128(schema["precision"], schema.get("scale", 0))
    elif logical in _LOGICAL:
        found = _LOGICAL[logical]
    elif schema["type"] in ("record", "error"):
        found = pa.struct([pa.field(field["name"], _type(file, field["type"], named)) for field in schema["fields"]])
    elif schema["type"] == "array":
        found = pa.list_(_type(file, schema["items"], named))
    elif schema["type"] == "map":
        found = pa.map_(pa.string(), _type(file, schema["values"], named))
    else:
        found = _type(file, schema["type"], named)
    if "name" in schema:
        named[schema["name"]] = found
    return found
