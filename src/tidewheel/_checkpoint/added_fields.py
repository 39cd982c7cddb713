"""Upgrade manifests of formats that lack only fields of the next format."""

from __future__ import annotations

from typing import Any

import msgspec

_ADDED: dict[int, tuple[tuple[int, Any], ...]] = {
    4: ((13, []), (24, [])),  # The kinds of the sources, and the files that they have seen.
    7: ((42, []),),  # Reference tables.
    9: ((43, ""), (44, [])),  # How a batch was divided, and where new sources began. Format 8 lacks both too.
}
"""By format: the place and the value of each field that the next format adds."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode


def with_added_fields(body: bytes, version: int) -> bytes:
    """Convert a body of this format to the next one; raise `msgspec.DecodeError` if it is invalid.

    A body with another number of fields is refused later, because the current format has no optional fields.
    """
    fields: list[Any] = _decode(body)
    for place, value in _ADDED[version]:
        fields.insert(place, value)
    return _encode(fields)
