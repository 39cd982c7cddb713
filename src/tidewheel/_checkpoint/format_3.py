"""Manifests of format 3, which did not say which sinks have output: read as those of today."""

from __future__ import annotations

import msgspec

_SINKS = 28

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list).decode


def upgraded(body: bytes) -> bytes:
    """Return a body of format 3 as one of format 4; `msgspec.DecodeError` if it is none."""
    fields = _decode(body)
    fields.insert(_SINKS, [])
    return _encode(fields)
