"""Keys as bytes, and the shard of a key: one function that all parts of the system share.

The shard of a key is `xxh64(canonical bytes, seed 42) mod n_shards`. Spark SQL's `xxhash64` over a string or bigint
column is the same function, so the JVM, a Python task, a router and a point look-up agree. Its result is signed there
and unsigned here; the two agree only modulo a power of two.
"""

from __future__ import annotations

import datetime
import decimal
import enum
import uuid
from collections.abc import Iterable
from typing import Any

import msgspec
from xxhash import xxh64_intdigest

from tidewheel._core.undecodable import UNDECODABLE
from tidewheel.errors import ConfigError, CorruptError, StepError

SEED = 42
"""Spark's own seed for `xxhash64`."""

_encode = msgspec.msgpack.Encoder(order="deterministic").encode
_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1


def to_stored(key: Any) -> bytes:
    r"""Return the key's bytes in state: one letter for its kind, then the canonical bytes, which are hashed.

    Canonical are: str as UTF-8, int as 8 bytes little-endian, bytes unchanged, others as msgpack. The letter
    distinguishes `"a"` from `b"a"` and lets `from_stored` decode the key without knowing its type. Raises for values
    that would not be decoded as an equal key (a date, a set, a dataclass, NaN).

    >>> to_stored("a"), to_stored(1)
    (b'sa', b'i\x01\x00\x00\x00\x00\x00\x00\x00')
    """
    if isinstance(key, str):
        try:
            return b"s" + key.encode()
        except UnicodeEncodeError as error:
            raise StepError(f"the key {key!r} is not valid Unicode ({error.reason}); use bytes for such keys") from None
    if isinstance(key, int) and not isinstance(key, bool):
        if not _INT64_MIN <= key <= _INT64_MAX:
            raise StepError(f"the key {key} does not fit in 64 bits; use a str key for such numbers")
        return b"i" + key.to_bytes(8, "little", signed=True)
    if isinstance(key, bytes):
        return b"b" + key
    if key is None:
        raise StepError("a key must not be None; filter such records out or give them a key of their own")
    try:
        return b"m" + _encode(_plain(key))
    except (OverflowError, UnicodeEncodeError) as error:
        raise StepError(f"the key {key!r} cannot be encoded ({error}); use a str key for such values") from None


def from_stored(stored: bytes) -> Any:
    """Return the key of `to_stored` bytes; a tuple is decoded as a tuple. Raise `CorruptError` for other bytes."""
    kind, body = stored[:1], stored[1:]
    if kind == b"i":
        return int.from_bytes(body, "little", signed=True)
    if kind == b"b":
        return body
    try:
        return body.decode() if kind == b"s" else _frozen(msgspec.msgpack.decode(body))
    except UNDECODABLE as error:
        raise CorruptError(
            f"the stored key {stored!r} does not decode ({error}); another program has written it"
        ) from None


def kinds_of(keys: Iterable[Any]) -> dict[str, set[str]]:
    """Return the types of keys; for tuples also the types of the numbers in them, by position.

    1, 1.0 and True are one key in a Python dict and three in the store, so keys that mix them must be rejected. Both
    distinguish other types.

    >>> kinds_of([("a", 1), ("b", None)])
    {'': {'tuple'}, '/1': {'int'}}
    """
    kinds: dict[str, set[str]] = {}
    plain = set()
    for key in keys:
        if isinstance(key, tuple):
            _add_kinds(kinds, "", key)
        else:
            plain.add(type(key))
    if plain:
        kinds.setdefault("", set()).update(kind.__name__ for kind in plain)
    return kinds


def _add_kinds(kinds: dict[str, set[str]], place: str, key: tuple[Any, ...]) -> None:
    kinds.setdefault(place, set()).add("tuple")
    for position, part in enumerate(key):
        if isinstance(part, tuple):
            _add_kinds(kinds, f"{place}/{position}", part)
        elif isinstance(part, int | float):
            kinds.setdefault(f"{place}/{position}", set()).add(type(part).__name__)


def shard_of_stored(stored: bytes, n_shards: int) -> int:
    """Return the shard of a key in its stored form."""
    return int(xxh64_intdigest(stored[1:], SEED)) & (n_shards - 1)


def shard_of(key: Any, n_shards: int) -> int:
    """Return the shard of a key.

    >>> shard_of("user-1", 64) == shard_of("user-1", 64)
    True
    """
    return shard_of_stored(to_stored(key), n_shards)


def check_n_shards(n_shards: int) -> None:
    """Raise if a number of shards is not a power of two between 1 and 65,536."""
    if not 1 <= n_shards <= 65536 or n_shards & (n_shards - 1):
        raise ConfigError(
            f"n_shards must be a power of two between 1 and 65536, not {n_shards}: only then do Spark's signed hash and "
            "ours agree"
        )


def _plain(part: Any) -> Any:
    """Return a key, or a part of one, in the form that msgpack preserves; raise if there is none."""
    if isinstance(part, tuple):
        return tuple(map(_plain, part))
    if isinstance(part, float):
        if part != part:
            raise StepError("NaN cannot be a key, since it equals nothing, not even itself; filter such records out")
        # -0.0 and 0.0 are one key in Python, so they must be one in the store.
        return part + 0.0
    if part is None or isinstance(part, str | int | bytes):
        return part
    raise StepError(
        f"{part!r} of type {type(part).__name__} cannot be a key; use str, int, bytes, bool, float, or a tuple of these"
        f"{_as_a_key(part)}"
    )


def _as_a_key(part: Any) -> str:
    """Return a hint how to convert a common value to a key."""
    if isinstance(part, datetime.date | datetime.time):
        return "; a time as a key is text, such as start.isoformat()"
    if isinstance(part, enum.Enum):
        return "; an enum as a key is its .name"
    if isinstance(part, uuid.UUID | decimal.Decimal):
        return f"; a {type(part).__name__} as a key is text, str(…)"
    return "; a list as a key is a tuple" if isinstance(part, list) else ""


def _frozen(value: Any) -> Any:
    """Convert lists back to tuples, so that a decoded key can be a dict key."""
    return tuple(_frozen(item) for item in value) if isinstance(value, list) else value
