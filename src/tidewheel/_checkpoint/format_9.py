"""Upgrade manifests of formats 8 and 9, which did not record how a batch was divided, and where new sources began."""

from __future__ import annotations

import msgspec

_FIELDS = 43
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode


def upgraded(body: bytes) -> bytes:
    """Convert a body of format 8 or 9 to format 10; raise `msgspec.DecodeError` if it is invalid."""
    fields = _decode(body)
    if len(fields) != _FIELDS:
        raise msgspec.DecodeError(f"formats 8 and 9 have {_FIELDS} fields, not {len(fields)}")
    return _encode([*fields, "", []])
