"""Upgrade manifests of format 7, which had no reference tables."""

from __future__ import annotations

import msgspec

_FIELDS = 42
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode


def upgraded(body: bytes) -> bytes:
    """Convert a body of format 7 to format 8; raise `msgspec.DecodeError` if it is invalid."""
    fields = _decode(body)
    if len(fields) != _FIELDS:
        raise msgspec.DecodeError(f"format 7 has {_FIELDS} fields, not {len(fields)}")
    return _encode([*fields, []])
