"""Upgrade manifests of format 4, in which only Spark's log recorded the kinds of sources."""

from __future__ import annotations

import msgspec

_SOURCE_KINDS, _SEEN = 13, 24

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list).decode


def upgraded(body: bytes) -> bytes:
    """Convert a body of format 4 to format 5; raise `msgspec.DecodeError` if it is invalid."""
    fields = _decode(body)
    fields.insert(_SOURCE_KINDS, [])
    fields.insert(_SEEN, [])
    return _encode(fields)
