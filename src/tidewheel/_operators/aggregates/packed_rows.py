"""PackedRows: the state of keys that are lists of rows of numbers, read and written for many keys at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tidewheel._operators.aggregates.functions import Array
from tidewheel._operators.aggregates.partial_results import Packing, Rewriting
from tidewheel._state.key_batch import KeyBatch
from tidewheel._state.task_state import RawTable

_LIST = 0xDD
"""The msgpack mark of a list whose length is 4 bytes."""
_HEAD = 5


class PackedRows:
    """A table whose states are msgpack lists of rows of one width."""

    def __init__(self, table: RawTable, size: int, operator: str) -> None:
        """Take the table, how many numbers a row has, and the operator's name for errors."""
        self.table, self.operator = table, operator
        self.packing = Packing(size)

    def read(self, key_batch: KeyBatch) -> tuple[Array, list[Array]]:
        """Return the stored rows of the keys: the place of each row's key, and a column for each number."""
        raws: list[bytes] = []
        for shard, part in key_batch.shards.items():
            raws += [raw or b"" for raw in self.table.get_many(shard, key_batch.stored[part])]
        width = self.packing.width
        counts = np.array([len(raw) // width for raw in raws], np.int64)
        data = b"".join([raw[_HEAD:] for raw in raws])
        numbers = self.packing.unpack(data, int(counts.sum()), self.operator)
        return np.repeat(np.arange(len(raws)), counts), numbers

    def write(self, key_batch: KeyBatch, places: Array, numbers: list[Array]) -> None:
        """Store the rows of the keys, given in the order of their places; a key without rows is dropped."""
        data, width = self.packing.pack(numbers), self.packing.width
        counts = np.bincount(places, minlength=len(key_batch))
        ends = (np.cumsum(counts) * width).tolist()
        raws: list[bytes | None] = []
        for count, end in zip(counts.tolist(), ends, strict=True):
            raws.append(_head(count) + data[end - count * width : end] if count else None)
        for shard, part in key_batch.shards.items():
            self.table.put(shard, key_batch.stored[part], raws[part])


def packed_list(rows: Sequence[Sequence[int | float]], size: int) -> bytes:
    """Return rows of that many numbers as `PackedRows` stores those of a key."""
    columns = [np.array(column) for column in zip(*rows, strict=True)]
    return _head(len(rows)) + (Packing(size).pack(columns) if rows else b"")


def conversion_of_lists(rows: Rewriting) -> Callable[[bytes], bytes]:
    """Return the function that rewrites the rows of a key, which stand behind their number."""
    return lambda raw: raw[:_HEAD] + rows.convert(raw[_HEAD:])


def _head(count: int) -> bytes:
    return bytes((_LIST,)) + count.to_bytes(_HEAD - 1, "big")
