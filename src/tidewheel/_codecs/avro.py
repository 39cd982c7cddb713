"""avro: a record encoded with a schema, which is not part of the payload."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from types import UnionType
from typing import Any, TypeVar, overload

import pyarrow as pa

from tidewheel._codecs.base import PayloadCodec, declared_shape, fitted
from tidewheel._values.columns import records
from tidewheel.errors import ConfigError

T = TypeVar("T")


@overload
def avro(schema: str | Mapping[str, Any], declared: None = None) -> PayloadCodec[dict[str, Any]]: ...
@overload
def avro(schema: str | Mapping[str, Any], declared: type[T]) -> PayloadCodec[T]: ...
@overload
def avro(schema: str | Mapping[str, Any], declared: UnionType) -> PayloadCodec[Any]: ...
def avro(schema: str | Mapping[str, Any], declared: Any = None) -> PayloadCodec[Any]:
    """Read and write Avro's binary encoding with a schema, given as a dict or JSON: records as dicts, or as a declared type.

    A payload is only the record, as Avro's "schemaless" writers produce it, without a file header or a registry number.
    Trailing bytes make it undecodable.
    """
    return Avro(schema, declared)


class Avro(PayloadCodec):
    """The Avro codec, based on fastavro."""

    name = "avro"

    def __init__(self, schema: str | Mapping[str, Any], declared: Any) -> None:
        """Check schema and type."""
        try:
            import fastavro
        except ImportError as error:
            raise ConfigError("Avro needs the package fastavro: pip install 'tidewheel[avro]'") from error
        try:
            self.schema = fastavro.parse_schema(json.loads(schema) if isinstance(schema, str) else dict(schema))
        except Exception as error:
            raise ConfigError(f"the Avro schema cannot be used: {type(error).__name__}: {error}") from error
        self.shape = declared_shape(self.name, declared)

    def decode(self, payload: bytes) -> Any:
        from fastavro import schemaless_reader

        stream = io.BytesIO(payload)
        record = schemaless_reader(stream, self.schema, None)
        if stream.tell() != len(payload):
            raise ValueError(f"{len(payload) - stream.tell()} bytes are left behind the record")
        return fitted(record, self.shape)

    def encode(self, columns: pa.RecordBatch) -> list[bytes]:
        from fastavro import schemaless_writer

        payloads = []
        for record in records(columns):
            out = io.BytesIO()
            try:
                schemaless_writer(out, self.schema, record)
            except Exception as error:
                raise ConfigError(f"the record {record!r} does not fit the Avro schema: {error}") from error
            payloads.append(out.getvalue())
        return payloads
