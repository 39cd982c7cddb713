"""The shards of whole columns of keys, and the task that each shard belongs to."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from xxhash import xxh64_intdigest

from tidewheel.keys import SEED, shard_of
from tidewheel.values import Batch

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


def task_of(shard: int, parallelism: int) -> int:
    """Return the task that works on a shard; the driver, the tasks and Spark's own expression must agree."""
    return shard % parallelism


def shards_of(batch: Batch, n_shards: int) -> Shards:
    """Return the shard of each message's key."""
    column = batch.key_column
    if column is not None and pa.types.is_int64(column.type):
        return shards_of_ints(column.to_numpy(zero_copy_only=False), n_shards)
    if column is not None and (pa.types.is_string(column.type) or pa.types.is_binary(column.type)):
        # Each distinct key is hashed once; Arrow finds the distinct ones far faster than Python hashes them all.
        distinct = column.dictionary_encode()
        mask = n_shards - 1
        table = [xxh64_intdigest(key, SEED) & mask for key in distinct.dictionary.cast(pa.binary()).to_pylist()]
        shards: Shards = np.array(table, np.int64)[distinct.indices.to_numpy()]
        return shards
    known: dict[Any, int] = {}
    for key in set(batch.keys):
        known[key] = shard_of(key, n_shards)
    return np.fromiter((known[key] for key in batch.keys), np.int64, len(batch))


def shards_of_ints(keys: npt.NDArray[np.int64], n_shards: int) -> Shards:
    """Return xxh64 of each key's 8 bytes, seed 42, modulo the number of shards, computed for the whole array at once."""
    with np.errstate(over="ignore"):
        lane = _rotated(keys.astype(np.uint64) * _P2, 31) * _P1
        mixed = _rotated((np.uint64(SEED) + _P5 + np.uint64(8)) ^ lane, 27) * _P1 + _P4
        mixed = (mixed ^ (mixed >> np.uint64(33))) * _P2
        mixed = (mixed ^ (mixed >> np.uint64(29))) * _P3
        mixed = mixed ^ (mixed >> np.uint64(32))
    found: Shards = (mixed & np.uint64(n_shards - 1)).astype(np.int64)
    return found


def _rotated(values: npt.NDArray[np.uint64], bits: int) -> npt.NDArray[np.uint64]:
    return (values << np.uint64(bits)) | (values >> np.uint64(64 - bits))
