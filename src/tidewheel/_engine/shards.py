"""The shard of each message of a batch, and the task that a shard belongs to."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tidewheel._core.hashing import Shards, shards_of_bytes, shards_of_ints
from tidewheel._core.keys import shard_of
from tidewheel._values import Batch


def task_of(shard: int, parallelism: int) -> int:
    """Return the task that works on a shard; the driver, the tasks and Spark's own expression must agree."""
    return shard % parallelism


def shards_of(batch: Batch, n_shards: int) -> Shards:
    """Return the shard of each message's key."""
    column = batch.key_data
    if column is not None and pa.types.is_int64(column.type):
        return shards_of_ints(column.to_numpy(zero_copy_only=False), n_shards)
    if column is not None and pa.types.is_dictionary(column.type):
        # Each distinct key is hashed once.
        shards: Shards = shards_of_bytes(column.dictionary, n_shards)[column.indices.to_numpy()]
        return shards
    if column is not None and (pa.types.is_string(column.type) or pa.types.is_binary(column.type)):
        return shards_of_bytes(column, n_shards)
    known = {key: shard_of(key, n_shards) for key in set(batch.keys)}
    return np.fromiter((known[key] for key in batch.keys), np.int64, len(batch))
