"""avro: a record encoded with a schema, which is not part of the payload."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from functools import lru_cache
from types import UnionType
from typing import Any, TypeVar, overload

import pyarrow as pa

from tidewheel._codecs.avro_schema import check_arrays
from tidewheel._codecs.base import PayloadCodec, declared_shape, fitted
from tidewheel._codecs.registered import SUBJECT, SchemaCodec, with_registry
from tidewheel._codecs.registry import Registry, Schema
from tidewheel._values.columns import records
from tidewheel.errors import ConfigError

T = TypeVar("T")


@overload
def avro(
    schema: str | Mapping[str, Any] | None = None,
    declared: None = None,
    *,
    registry: str | None = None,
    subject: str = SUBJECT,
) -> PayloadCodec[dict[str, Any]]: ...
@overload
def avro(
    schema: str | Mapping[str, Any] | None = None,
    declared: type[T] = ...,
    *,
    registry: str | None = None,
    subject: str = SUBJECT,
) -> PayloadCodec[T]: ...
@overload
def avro(
    schema: str | Mapping[str, Any] | None = None,
    declared: UnionType = ...,
    *,
    registry: str | None = None,
    subject: str = SUBJECT,
) -> PayloadCodec[Any]: ...
def avro(
    schema: str | Mapping[str, Any] | None = None,
    declared: Any = None,
    *,
    registry: str | None = None,
    subject: str = SUBJECT,
) -> PayloadCodec[Any]:
    """Read and write Avro's binary encoding with a schema, given as a dict or JSON: records as dicts, or as a declared type.

    Without `registry`, a payload is only the record, as Avro's "schemaless" writers produce it, without a file header.
    Trailing bytes make it undecodable.

    With `registry`, the URL of a schema registry, each payload names the schema that it was written with. It is read
    with that schema and, if `schema` is given, converted to `schema` by Avro's rules of evolution. To write, `schema` is
    needed: when the sink starts, it is registered under `subject`, in which `{topic}` and `{record}` are replaced.
    """
    if schema is None and registry is None:
        raise ConfigError("the codec avro needs a schema, or the URL of a schema registry: registry=")
    return with_registry(lambda: Avro(schema, declared), registry, subject)


class Avro(SchemaCodec):
    """The Avro codec, based on fastavro."""

    name = "avro"
    schema_type = "AVRO"

    def __init__(self, schema: str | Mapping[str, Any] | None, declared: Any) -> None:
        """Check schema and type."""
        try:
            import fastavro
        except ImportError as error:
            raise ConfigError("Avro needs the package fastavro: pip install 'tidewheel[avro]'") from error
        try:
            self.given = None if schema is None else json.loads(schema) if isinstance(schema, str) else dict(schema)
            self.schema = None if self.given is None else fastavro.parse_schema(self.given)
            if self.schema is not None:
                check_arrays(self.schema)
        except Exception as error:
            raise ConfigError(f"the Avro schema cannot be used: {type(error).__name__}: {error}") from error
        self.shape = declared_shape(self.name, declared)

    def own_schema(self) -> tuple[str, str]:
        if self.schema is None:
            raise ConfigError("to write Avro, the codec needs a schema: avro(schema, registry=…)")
        named = self.schema.get("name", "") if isinstance(self.schema, dict) else ""
        return json.dumps(self.given), named

    def decode_written(self, body: bytes, registry: Registry, number: int) -> Any:
        return self._read(body, _parsed(registry.schema(number)), self.schema)

    def decode(self, payload: bytes) -> Any:
        return self._read(payload, self.schema, None)

    def _read(self, payload: bytes, written: Any, wanted: Any) -> Any:
        from fastavro import schemaless_reader

        stream = io.BytesIO(payload)
        record = schemaless_reader(stream, written, wanted)
        if stream.tell() != len(payload):
            raise ValueError(f"{len(payload) - stream.tell()} bytes are left behind the record")
        return fitted(record, self.shape)

    def encode(self, columns: pa.RecordBatch) -> list[bytes]:
        from fastavro import schemaless_writer

        assert self.schema is not None, "own_schema refuses a sink without a schema"
        payloads = []
        for record in records(columns):
            out = io.BytesIO()
            try:
                schemaless_writer(out, self.schema, record)
            except Exception as error:
                raise ConfigError(f"the record {record!r} does not fit the Avro schema: {error}") from error
            payloads.append(out.getvalue())
        return payloads


@lru_cache(maxsize=1000)
def _parsed(schema: Schema) -> Any:
    """Return the parsed schema of a registry."""
    from fastavro import parse_schema

    named: dict[str, Any] = {}
    _parse_references(schema, named)
    parsed = parse_schema(json.loads(schema.text), named_schemas=named)
    check_arrays(parsed, named)
    return parsed


def _parse_references(schema: Schema, named: dict[str, Any]) -> None:
    """Parse the schemas that a schema refers to, each after those that it refers to itself."""
    from fastavro import parse_schema

    for _, referred in schema.references:
        _parse_references(referred, named)
        parse_schema(json.loads(referred.text), named_schemas=named)
