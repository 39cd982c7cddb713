"""json: an object per payload."""

from __future__ import annotations

from functools import lru_cache
from types import UnionType
from typing import Any, TypeVar, overload

import msgspec
import pyarrow as pa

from tidewheel._codecs.base import PayloadCodec, declared_shape
from tidewheel._values import DICT
from tidewheel._values.columns import values

T = TypeVar("T")


@overload
def json(declared: None = None) -> PayloadCodec[dict[str, Any]]: ...
@overload
def json(declared: type[T]) -> PayloadCodec[T]: ...
@overload
def json(declared: UnionType) -> PayloadCodec[Any]: ...
def json(declared: Any = None) -> PayloadCodec[Any]:
    """Read and write JSON: objects as dicts, or checked against a dataclass, a `msgspec.Struct` or a plain type.

    A payload is undecodable if it lacks a declared field or has another type there; other fields are ignored. All
    columns are written: times as RFC 3339, bytes as base64, decimals as text, NaN as null.
    """
    return Json(declared)


class Json(PayloadCodec):
    """The JSON codec, based on msgspec."""

    name = "json"

    def __init__(self, declared: Any) -> None:
        """Use this type."""
        self.declared = declared
        self.shape = declared_shape(self.name, declared)
        self._decoder: msgspec.json.Decoder[Any] | None = None

    def decode(self, payload: bytes) -> Any:
        if self._decoder is None:
            # A decoder cannot be pickled. A dict must be declared, because a payload could also be a number.
            self._decoder = msgspec.json.Decoder(dict[str, Any] if self.shape == DICT else self.declared)
        return self._decoder.decode(payload)

    def encode(self, columns: pa.RecordBatch) -> list[bytes]:
        # Creating and encoding a dict takes ten times as long.
        records = map(_record(tuple(columns.schema.names)), *map(values, columns.columns))
        return list(map(_ENCODER.encode, records))

    def __getstate__(self) -> dict[str, Any]:
        """Omit the decoder."""
        return {**self.__dict__, "_decoder": None}


_ENCODER = msgspec.json.Encoder()


@lru_cache(maxsize=64)
def _record(names: tuple[str, ...]) -> Any:
    fields = {f"column{number}": name for number, name in enumerate(names)}
    return msgspec.defstruct("Record", list(fields), rename=fields, gc=False)
