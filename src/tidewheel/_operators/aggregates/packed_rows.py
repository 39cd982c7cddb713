"""PackedRows: states that are lists of rows, read and written for many keys at once.

A row has a number for each accumulator. If some accumulators are states of aggregators, their numbers are the lengths of
the states in bytes, and the bytes of all states follow the rows: `[rows, bytes]`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from tidewheel._operators.aggregates.functions import Array
from tidewheel._operators.aggregates.partial_results import INTEGER, Packing
from tidewheel._operators.aggregates.states import decoded, encoded
from tidewheel._state.key_batch import KeyBatch
from tidewheel._state.layout import Accumulator
from tidewheel._state.raw_table import RawTable

_LIST, _PAIR, _BYTES = 0xDD, b"\x92", b"\xc6"
"""The msgpack tags of a list with a length of 4 bytes, of a pair, and of bytes with a length of 4 bytes."""
_HEAD = 5
"""The size of a tag with a length of 4 bytes."""


class PackedRows:
    """A table whose states are msgpack lists of rows of one width, with or without the states of aggregators."""

    def __init__(self, table: RawTable, before: int, accumulators: Sequence[Accumulator], operator: str) -> None:
        """Take the table, how many numbers a row has before those of the accumulators, and the step's name for errors."""
        self.table, self.operator = table, operator
        self.packing = Packing(before + len(accumulators))
        self.states = _states(accumulators, before)

    def read(self, key_batch: KeyBatch) -> tuple[Array, list[Any]]:
        """Return the stored rows of the keys: the index of each row's key, and a column for each number or state."""
        raws: list[bytes] = []
        for shard, part in key_batch.shards.items():
            raws += [raw or b"" for raw in self.table.get_many(shard, key_batch.stored[part])]
        width, tails = self.packing.width, list[bytes]()
        if self.states:
            parts = [_parted(raw, width) for raw in raws]
            raws, tails = [rows for rows, _ in parts], [tail for _, tail in parts]
        counts = np.array([len(raw) // width for raw in raws], np.int64)
        data = b"".join([raw[_HEAD:] for raw in raws])
        columns: list[Any] = list(self.packing.unpack(data, int(counts.sum()), self.operator))
        if self.states:
            states = _split(b"".join(tails), [columns[place] for place in self.states])
            for place, column in zip(self.states, states, strict=True):
                columns[place] = decoded(column)
        return np.repeat(np.arange(len(raws)), counts), columns

    def write(self, key_batch: KeyBatch, places: Array, columns: list[Any]) -> None:
        """Store the rows of the keys, given in the order of the keys; the state of a key without rows is deleted."""
        states = [encoded(columns[place]) for place in self.states]
        sizes = [np.array([len(each) for each in column], np.int64) for column in states]
        numbers = list(columns)
        for place, size in zip(self.states, sizes, strict=True):
            numbers[place] = size
        data, width = self.packing.pack(numbers), self.packing.width
        counts = np.bincount(places, minlength=len(key_batch))
        ends = np.cumsum(counts)
        raws: list[bytes | None] = []
        for count, end in zip(counts.tolist(), (ends * width).tolist(), strict=True):
            raws.append(_head(count) + data[end - count * width : end] if count else None)
        if states:
            rows = [b"".join(each) for each in zip(*states, strict=True)]
            tails = [b"".join(rows[begin:end]) for begin, end in pairwise([0, *ends.tolist()])]
            raws = [None if raw is None else _joined(raw, tail) for raw, tail in zip(raws, tails, strict=True)]
        for shard, part in key_batch.shards.items():
            self.table.put(shard, key_batch.stored[part], raws[part])


def packed_list(rows: Sequence[Sequence[int | float]], size: int) -> bytes:
    """Encode the rows of a key, each of `size` numbers, as `PackedRows` stores them."""
    columns = [np.array(column) for column in zip(*rows, strict=True)]
    return _head(len(rows)) + (Packing(size).pack(columns) if rows else b"")


class Rewriting:
    """Convert the stored rows of a key into rows of the current numbers. Numbers that were not stored start as 0, or empty.

    The first `before` numbers of a row stay unchanged. With `single`, a row without states is stored without its list.
    """

    def __init__(
        self, stored: Sequence[Accumulator], numbers: Sequence[Accumulator], before: int = 0, single: bool = False
    ) -> None:
        """Take the numbers of stored rows and the current numbers."""
        self._old, self._new = Packing(before + len(stored)), Packing(before + len(numbers))
        places = {number: before + place for place, number in enumerate(stored)}
        self._places = [*range(before), *(places.get(number) for number in numbers)]
        self._states = _states(stored, before)
        self._kept = [
            self._states.index(places[each]) if each in places else None for each in numbers if not each.is_number
        ]
        self._single = single

    def convert(self, raw: bytes) -> bytes:
        """Return the state of a key in its current form."""
        tail = b""
        if self._states:
            raw, tail = _parted(raw, self._old.width)
        single = self._single and not self._states
        packed = np.frombuffer(raw if single else raw[_HEAD:], self._old.layout)
        rows = self._rows(packed).tobytes()
        if not self._kept:
            return rows if self._single else _head(len(packed)) + rows
        columns = (
            [] if not self._states else _split(tail, [packed[f"v{place}"].astype(np.int64) for place in self._states])
        )
        kept = [[b""] * len(packed) if place is None else columns[place] for place in self._kept]
        return _joined(_head(len(packed)) + rows, b"".join(b"".join(each) for each in zip(*kept, strict=True)))

    def _rows(self, packed: Array) -> Array:
        new = self._new
        rows = np.empty(len(packed), new.layout)
        rows["head"] = np.void(new.head)
        for place, source in enumerate(self._places):
            rows[f"tag{place}"] = INTEGER if source is None else packed[f"tag{source}"]
            rows[f"v{place}"] = 0 if source is None else packed[f"v{source}"]
        return rows


def _states(accumulators: Sequence[Accumulator], before: int) -> list[int]:
    """Return the places in a row of the accumulators that are states."""
    return [before + at for at, each in enumerate(accumulators) if not each.is_number]


def _head(count: int) -> bytes:
    return bytes((_LIST,)) + count.to_bytes(_HEAD - 1, "big")


def _joined(rows: bytes, tail: bytes) -> bytes:
    return _PAIR + rows + _BYTES + len(tail).to_bytes(_HEAD - 1, "big") + tail


def _parted(raw: bytes, width: int) -> tuple[bytes, bytes]:
    """Return the rows, and the bytes of the states that follow them."""
    end = 1 + _HEAD + int.from_bytes(raw[2 : 1 + _HEAD], "big") * width
    return raw[1:end], raw[end + _HEAD :]


def _split(data: bytes, sizes: list[Array]) -> list[list[bytes]]:
    """Return the states of each column, which follow each other by row."""
    ends = np.concatenate([[0], np.cumsum(np.stack(sizes, axis=1))]).tolist()
    states = [data[begin:end] for begin, end in pairwise(ends)]
    return [states[place :: len(sizes)] for place in range(len(sizes))]
