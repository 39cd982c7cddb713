"""A field of the state whose default has changed: states that lack it keep the default of their time. Pure.

A state that was last written before a field was added lacks it, and is read with the default that the program has. Whoever
changes the default means new keys: so what stored states stand for is written out first.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence

import msgspec

from tidewheel._checkpoint.manifest import StateField
from tidewheel._core.text import shortened
from tidewheel._state.codec import msgpack_codec
from tidewheel._state.tagged import tagged_record

_RECORD = msgspec.msgpack.Decoder(dict[str, msgspec.Raw])
_TAGGED = msgspec.msgpack.Decoder(msgspec.msgpack.Ext)
_TAG = tagged_record({}).code
_ITEMS = msgspec.msgpack.Decoder(list[msgspec.Raw])


def former_defaults(stored: Sequence[StateField], declared: Sequence[StateField]) -> dict[str, bytes]:
    """Return the encoded defaults that stored fields had, of those that have another one now, or none."""
    today = {field.name: field.default for field in declared}
    return {
        field.name: field.default
        for field in stored
        if field.default is not None and field.name in today and not _same(field, field.default, today[field.name])
    }


def with_defaults(raw: bytes, defaults: Mapping[str, bytes], *, declared: bool = True) -> bytes:
    """Return an encoded record with those fields that it lacks; one that has all, or is stored without names, as it is.

    A record that was stored while its type was not `declared` has a tag; what has none then was a dict of the user's own.

    >>> encode = msgspec.msgpack.encode
    >>> msgspec.msgpack.decode(with_defaults(encode({"n": 1}), {"tier": encode("a")}))
    {'n': 1, 'tier': 'a'}
    """
    with contextlib.suppress(msgspec.ValidationError):
        found = _TAGGED.decode(raw)
        if found.code == _TAG:
            return msgspec.msgpack.encode(msgspec.msgpack.Ext(_TAG, _filled(bytes(found.data), defaults)))
    return _filled(raw, defaults) if declared else raw


def _filled(raw: bytes, defaults: Mapping[str, bytes]) -> bytes:
    try:
        record = _RECORD.decode(raw)
    except msgspec.ValidationError:
        return raw
    lacking = {name: msgspec.Raw(default) for name, default in defaults.items() if name not in record}
    return msgspec.msgpack.encode(record | lacking) if lacking else raw


def told(defaults: Mapping[str, bytes]) -> str:
    """Return what becomes of states that lack such fields, for whoever starts the job."""
    decode = msgpack_codec().decode
    fields = " and ".join(f"{name!r} ({shortened(decode(default), 60)})" for name, default in defaults.items())
    return f"stored states that lack {fields} get the default of before, and new keys begin with today's"


def _same(field: StateField, one: bytes, other: bytes | None) -> bool:
    if one == other or other is None or not field.type.startswith(("set", "frozenset")):
        return one == other
    # A set is encoded in no certain order.
    return sorted(map(bytes, _ITEMS.decode(one))) == sorted(map(bytes, _ITEMS.decode(other)))
