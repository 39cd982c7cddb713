"""The shards of whole columns of keys: the same function as `keys.shard_of`, for many keys at once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from xxhash import xxh64_intdigest

from tidewheel.keys import SEED

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

Shards = npt.NDArray[np.int64]


def shards_of_ints(keys: npt.NDArray[np.int64], n_shards: int) -> Shards:
    """Return the shard of each integer key: xxh64 of its 8 bytes, computed for the whole array."""
    with np.errstate(over="ignore"):
        lane = _rotated(keys.astype(np.uint64) * _P2, 31) * _P1
        mixed = _rotated((np.uint64(SEED) + _P5 + np.uint64(8)) ^ lane, 27) * _P1 + _P4
        mixed = (mixed ^ (mixed >> np.uint64(33))) * _P2
        mixed = (mixed ^ (mixed >> np.uint64(29))) * _P3
        mixed = mixed ^ (mixed >> np.uint64(32))
    shards: Shards = (mixed & np.uint64(n_shards - 1)).astype(np.int64)
    return shards


def shards_of_bytes(keys: pa.Array, n_shards: int) -> Shards:
    """Return the shard of each key of a string or binary column without nulls."""
    mask = n_shards - 1
    raw = keys.cast(pa.binary()).to_pylist()
    return np.fromiter((xxh64_intdigest(key, SEED) & mask for key in raw), np.int64, len(raw))


def _rotated(values: npt.NDArray[np.uint64], bits: int) -> npt.NDArray[np.uint64]:
    return (values << np.uint64(bits)) | (values >> np.uint64(64 - bits))
