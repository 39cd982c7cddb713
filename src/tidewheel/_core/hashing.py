"""The shards of whole columns of keys: the same function as `keys.shard_of`, for many keys at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from xxhash import xxh64_intdigest

from tidewheel._core.keys import SEED

_P1, _P2, _P3, _P4, _P5 = (
    np.uint64(prime)
    for prime in (
        0x9E3779B185EBCA87,
        0xC2B2AE3D27D4EB4F,
        0x165667B19E3779F9,
        0x85EBCA77C2B2AE63,
        0x27D4EB2F165667C5,
    )
)

_STRIPE = 32
"""Keys of at least this many bytes use another branch of the hash function."""

_AT_ONCE = 32 * 1024
"""How many keys are hashed at once, so that all steps fit in the processor's cache."""

Shards = npt.NDArray[np.int64]


def shards_of_ints(keys: npt.NDArray[np.int64], n_shards: int) -> Shards:
    """Return the shard of each integer key: xxh64 of its 8 bytes, computed for the whole array."""
    with np.errstate(over="ignore"):
        lane = _rotated(keys.astype(np.uint64) * _P2, 31) * _P1
        mixed = _rotated((np.uint64(SEED) + _P5 + np.uint64(8)) ^ lane, 27) * _P1 + _P4
        mixed = _avalanche(mixed)
    shards: Shards = (mixed & np.uint64(n_shards - 1)).astype(np.int64)
    return shards


def shards_of_bytes(keys: pa.Array, n_shards: int) -> Shards:
    """Return the shard of each key of a string or binary column without nulls."""
    column = keys.cast(pa.binary())
    shards: Shards = np.empty(len(column), np.int64)
    for start in range(0, len(column), _AT_ONCE):
        hashes = _hashes(column.slice(start, _AT_ONCE)) & np.uint64(n_shards - 1)
        shards[start : start + _AT_ONCE] = hashes.astype(np.int64)
    return shards


def shards_of_column(column: pa.Array, n_shards: int) -> Shards:
    """Return the shard of each key of a column without nulls: 64-bit integers, text or bytes, dictionary-encoded or not."""
    if pa.types.is_int64(column.type):
        return shards_of_ints(column.to_numpy(zero_copy_only=False), n_shards)
    if pa.types.is_dictionary(column.type):
        # Each distinct key is hashed once.
        shards: Shards = shards_of_bytes(column.dictionary, n_shards)[column.indices.to_numpy()]
        return shards
    return shards_of_bytes(column, n_shards)


def _hashes(column: pa.Array) -> npt.NDArray[np.uint64]:
    """Return the xxh64 of each key of a binary column without nulls."""
    offsets = np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1]
    lengths = np.diff(offsets)
    data = np.frombuffer(column.buffers()[2] or b"", np.uint8)
    # Keys of one length take the same steps, each of which is computed for all of them at once.
    steps = np.minimum(lengths, _STRIPE)
    present = np.flatnonzero(np.bincount(steps)).tolist()
    if len(present) == 1 and present[0] < _STRIPE:
        return _short_hashes(_Rows(data, int(offsets[0]), present[0], len(column)), present[0])
    hashes = np.empty(len(column), np.uint64)
    for length in present:
        chosen = np.flatnonzero(steps == length)
        if length < _STRIPE:
            hashes[chosen] = _short_hashes(_Scattered(data, offsets[chosen].astype(np.intp)), length)
        else:
            raw = column.take(pa.array(chosen)).to_pylist()
            hashes[chosen] = np.fromiter((xxh64_intdigest(key, SEED) for key in raw), np.uint64, len(raw))
    return hashes


@dataclass(frozen=True, slots=True)
class _Rows:
    """Keys of one length, stored contiguously."""

    data: npt.NDArray[np.uint8]
    first: int
    length: int
    count: int

    def numbers(self, kind: str, at: int) -> npt.NDArray[np.uint64]:
        """Return the number at byte offset `at` of each key."""
        return np.ndarray((self.count,), kind, self.data, self.first + at, (self.length,)).astype(np.uint64)


@dataclass(frozen=True, slots=True)
class _Scattered:
    """Keys of one length at any positions."""

    data: npt.NDArray[np.uint8]
    starts: npt.NDArray[np.intp]

    @property
    def count(self) -> int:
        return len(self.starts)

    def numbers(self, kind: str, at: int) -> npt.NDArray[np.uint64]:
        """Return the number at byte offset `at` of each key."""
        everywhere = np.ndarray((len(self.data) - np.dtype(kind).itemsize + 1,), kind, self.data, strides=(1,))
        return everywhere[self.starts + at].astype(np.uint64, copy=False)


def _short_hashes(keys: _Rows | _Scattered, length: int) -> npt.NDArray[np.uint64]:
    """Return the xxh64 of keys of one length below 32."""
    mixed = np.full(keys.count, SEED + int(_P5) + length & (1 << 64) - 1, np.uint64)
    at = 0
    with np.errstate(over="ignore"):
        while at + 8 <= length:
            mixed = _rotated(mixed ^ (_rotated(keys.numbers("<u8", at) * _P2, 31) * _P1), 27) * _P1 + _P4
            at += 8
        if at + 4 <= length:
            mixed = _rotated(mixed ^ (keys.numbers("<u4", at) * _P1), 23) * _P2 + _P3
            at += 4
        for byte in range(at, length):
            mixed = _rotated(mixed ^ (keys.numbers("u1", byte) * _P5), 11) * _P1
        return _avalanche(mixed)


def _avalanche(mixed: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    mixed = (mixed ^ (mixed >> np.uint64(33))) * _P2
    mixed = (mixed ^ (mixed >> np.uint64(29))) * _P3
    return mixed ^ (mixed >> np.uint64(32))


def _rotated(values: npt.NDArray[np.uint64], bits: int) -> npt.NDArray[np.uint64]:
    return (values << np.uint64(bits)) | (values >> np.uint64(64 - bits))
