"""The shard of each message of a batch, and the task that a shard belongs to."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tidewheel._core.hashing import Shards, shards_of_column
from tidewheel._core.keys import shard_of
from tidewheel._values import Batch


def task_of(shard: int, parallelism: int) -> int:
    """Return the task that works on a shard; the driver, the tasks and Spark's own expression must agree."""
    return shard % parallelism


def task_of_each(shards: Shards, parallelism: int) -> Shards:
    """Return the task that works on each of these shards."""
    return shards % parallelism


def shards_of(batch: Batch, n_shards: int) -> Shards:
    """Return the shard of each message's key."""
    column = batch.key_data
    if column is not None and _has_fast_way(column.type):
        return shards_of_column(column, n_shards)
    known = {key: shard_of(key, n_shards) for key in set(batch.keys)}
    return np.fromiter((known[key] for key in batch.keys), np.int64, len(batch))


def _has_fast_way(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_int64(kind) or pa.types.is_dictionary(kind) or pa.types.is_string(kind) or pa.types.is_binary(kind)
    )
