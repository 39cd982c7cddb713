"""Manifests of format 4, in which only Spark's log said what kinds of sources there are: read as those of today."""

from __future__ import annotations

import msgspec

_SOURCE_KINDS, _SEEN = 13, 24

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list).decode


def upgraded(body: bytes) -> bytes:
    """Return a body of format 4 as one of format 5; `msgspec.DecodeError` if it is none."""
    fields = _decode(body)
    fields.insert(_SOURCE_KINDS, [])
    fields.insert(_SEEN, [])
    return _encode(fields)
