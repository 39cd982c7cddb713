"""Opened: the distinct keys of many messages, in the order of the store, with their states in one list.

Everything that can be done for all keys at once is done by Arrow: finding the distinct ones, sorting them by shard and
stored key, turning them into bytes. What is left per key is one read, one decode, one encode.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidewheel.hashing import shards_of_bytes, shards_of_ints

_LETTERS = {pa.string(): b"s", pa.binary(): b"b"}


class Opened:
    """States of distinct keys while an operator works on them.

    `which[i]` is the place of message `i`'s key in `keys` and `states`; the operator reads and sets `states` by place.
    """

    __slots__ = ("keys", "shards", "states", "stored", "which")

    def __init__(self, keys: list[Any], which: list[int], stored: list[bytes], shards: dict[int, slice]) -> None:
        """Begin without states; `stored` and `shards` are empty where the keys are not in the order of the store."""
        self.keys, self.which, self.stored, self.shards = keys, which, stored, shards
        self.states: list[Any] = []

    def members(self) -> Iterator[tuple[int, list[tuple[bytes, Any]]]]:
        """Yield each shard with the stored form of its keys and the keys."""
        for shard, part in self.shards.items():
            yield shard, list(zip(self.stored[part], self.keys[part], strict=True))


def sorted_keys(column: pa.Array, n_shards: int) -> Opened | None:
    """Return the distinct keys of a column sorted by shard and stored form, or None for a type that has no fast way."""
    encoded = column.dictionary_encode()
    distinct = encoded.dictionary
    if distinct.type in _LETTERS:
        shards = shards_of_bytes(distinct, n_shards)
        stored = pc.binary_join_element_wise(pa.scalar(_LETTERS[distinct.type]), distinct.cast(pa.binary()), b"")
    elif pa.types.is_int64(distinct.type):
        numbers = distinct.to_numpy()
        shards = shards_of_ints(numbers, n_shards)
        rows = np.empty((len(numbers), 9), np.uint8)
        rows[:, 0] = ord("i")
        rows[:, 1:] = numbers.astype("<i8").view(np.uint8).reshape(len(numbers), 8)
        fixed = pa.FixedSizeBinaryArray.from_buffers(pa.binary(9), len(numbers), [None, pa.py_buffer(rows)])
        stored = fixed.cast(pa.binary())
    else:
        return None
    table = pa.table({"shard": shards, "stored": stored})
    order = pc.sort_indices(table, sort_keys=[("shard", "ascending"), ("stored", "ascending")])
    place = np.empty(len(shards), np.int64)
    place[order.to_numpy()] = np.arange(len(shards))
    which = place[encoded.indices.to_numpy()].tolist()
    present, starts = np.unique(shards[order.to_numpy()], return_index=True)
    ends = [*starts.tolist()[1:], len(shards)]
    slices = {
        shard: slice(start, end) for shard, start, end in zip(present.tolist(), starts.tolist(), ends, strict=True)
    }
    return Opened(distinct.take(order).to_pylist(), which, stored.take(order).to_pylist(), slices)
