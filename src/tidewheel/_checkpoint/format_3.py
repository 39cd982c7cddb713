"""Upgrade manifests of format 3, which did not record which sinks have output."""

from __future__ import annotations

import msgspec

_SINKS = 28

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list).decode


def upgraded(body: bytes) -> bytes:
    """Convert a body of format 3 to format 4; raise `msgspec.DecodeError` if it is invalid."""
    fields = _decode(body)
    fields.insert(_SINKS, [])
    return _encode(fields)
