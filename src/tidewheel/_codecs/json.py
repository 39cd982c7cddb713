"""json: an object per payload."""

from __future__ import annotations

from functools import lru_cache
from types import UnionType
from typing import Any, TypeVar, overload

import msgspec
import pyarrow as pa

from tidewheel._codecs.base import PayloadCodec, declared_shape
from tidewheel._codecs.registered import SUBJECT, SchemaCodec, with_registry
from tidewheel._codecs.registry import Registry
from tidewheel._values import DICT
from tidewheel._values.columns import values
from tidewheel.errors import ConfigError

T = TypeVar("T")


@overload
def json(
    declared: None = None, *, registry: str | None = None, subject: str = SUBJECT
) -> PayloadCodec[dict[str, Any]]: ...
@overload
def json(declared: type[T], *, registry: str | None = None, subject: str = SUBJECT) -> PayloadCodec[T]: ...
@overload
def json(declared: UnionType, *, registry: str | None = None, subject: str = SUBJECT) -> PayloadCodec[Any]: ...
def json(declared: Any = None, *, registry: str | None = None, subject: str = SUBJECT) -> PayloadCodec[Any]:
    """Read and write JSON: objects as dicts, or checked against a dataclass, a `msgspec.Struct` or a plain type.

    A payload is undecodable if it lacks a declared field or has another type there; other fields are ignored. All
    columns are written: times as RFC 3339, bytes as base64, decimals as text, NaN as null.

    With `registry`, the URL of a schema registry, each payload names the JSON schema that it was written with. To write,
    a declared type is needed, which every record must match: when the sink starts, its schema is registered under
    `subject`, in which `{topic}` and `{record}` are replaced.
    """
    return with_registry(lambda: Json(declared, checks=registry is not None), registry, subject)


class Json(SchemaCodec):
    """The JSON codec, based on msgspec."""

    name = "json"
    schema_type = "JSON"

    def __init__(self, declared: Any = None, *, checks: bool = False) -> None:
        """Use this type; `checks`: also for records that are written."""
        self.declared, self._checks = declared, checks
        self.shape = declared_shape(self.name, declared)
        self._decoder: msgspec.json.Decoder[Any] | None = None

    def decode(self, payload: bytes) -> Any:
        if self._decoder is None:
            # A decoder cannot be pickled. A dict must be declared, because a payload could also be a number.
            self._decoder = msgspec.json.Decoder(dict[str, Any] if self.shape == DICT else self.declared)
        return self._decoder.decode(payload)

    def own_schema(self) -> tuple[str, str]:
        """Return a JSON schema, draft 7, of the declared type."""
        if self.shape == DICT:
            raise ConfigError("to write JSON with a schema registry, the codec needs a type: json(Order, registry=…)")
        (whole,), parts = msgspec.json.schema_components([self.declared], ref_template="#/definitions/{name}")
        name = getattr(self.declared, "__name__", "")
        # Registries compare schemas with properties at their top, unless the type contains itself.
        if "$ref" in whole and f'"{whole["$ref"]}"'.encode() not in msgspec.json.encode(parts):
            whole = parts.pop(whole["$ref"].rpartition("/")[2])
        draft = {"$schema": "http://json-schema.org/draft-07/schema#"}
        return msgspec.json.encode({**draft, **whole, **({"definitions": parts} if parts else {})}).decode(), name

    def decode_written(self, body: bytes, registry: Registry, number: int) -> Any:
        return self.decode(body)

    def encode(self, columns: pa.RecordBatch) -> list[bytes]:
        # Creating and encoding a dict takes ten times as long.
        records = map(_record(tuple(columns.schema.names)), *map(values, columns.columns))
        payloads = list(map(_ENCODER.encode, records))
        if self._checks:
            for payload in payloads:
                try:
                    self.decode(payload)
                except (msgspec.DecodeError, UnicodeDecodeError) as error:
                    raise ConfigError(f"the record {payload.decode()} does not match its type: {error}") from error
        return payloads

    def __getstate__(self) -> dict[str, Any]:
        """Omit the decoder."""
        return {**self.__dict__, "_decoder": None}


_ENCODER = msgspec.json.Encoder()


@lru_cache(maxsize=64)
def _record(names: tuple[str, ...]) -> Any:
    fields = {f"column{number}": name for number, name in enumerate(names)}
    return msgspec.defstruct("Record", list(fields), rename=fields, gc=False)
