"""Keys that are longer than LMDB allows.

Such a key is stored under its first bytes and its digest, with the whole key before the value. The first bytes keep it
near its place in key order; keys that share them are sorted when they are read.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from typing import Any, Final

MAX_KEY: Final = 511
"""The longest key that LMDB allows."""

_DIGEST = 32
_PREFIX = MAX_KEY - _DIGEST
_LENGTH = 4


def long_key(key: bytes, value: bytes) -> tuple[bytes, bytes]:
    """Return the pair as stored: unchanged if the key is short, otherwise under a key of `MAX_KEY` bytes."""
    if len(key) < MAX_KEY:
        return key, value
    stored = key[:_PREFIX] + blake2b(key, digest_size=_DIGEST).digest()
    return stored, len(key).to_bytes(_LENGTH, "little") + key + value


def whole_key(stored: bytes, raw: bytes) -> tuple[bytes, bytes]:
    """Return the original pair of a result of `long_key`."""
    if len(stored) < MAX_KEY:
        return stored, raw
    end = _LENGTH + int.from_bytes(raw[:_LENGTH], "little")
    return raw[_LENGTH:end], raw[end:]


def long_items(cursor: Any, start: bytes, stop: bytes | None) -> Iterator[tuple[bytes, bytes]]:
    """Yield the pairs with `start <= key < stop` of a database with only long keys, in key order."""
    group: list[tuple[bytes, bytes]] = []
    prefix = b""
    if not cursor.set_range(start[:_PREFIX]):
        return
    for stored, raw in cursor.iternext(keys=True, values=True):
        if stored[:_PREFIX] != prefix:
            yield from _within(group, start, stop)
            group, prefix = [], stored[:_PREFIX]
            if stop is not None and prefix >= stop:
                return
        group.append(whole_key(stored, raw))
    yield from _within(group, start, stop)


def _within(group: list[tuple[bytes, bytes]], start: bytes, stop: bytes | None) -> Iterator[tuple[bytes, bytes]]:
    group.sort()
    return (item for item in group if item[0] >= start and (stop is None or item[0] < stop))
