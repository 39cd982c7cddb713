"""KeyBatch: the distinct keys of many messages, in the order of the store, with their states in one list.

Everything that can be done for all keys at once is done by Arrow: finding the distinct ones, sorting them by shard and
stored key, turning them into bytes. What is left per key is one read, one decode, one encode.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidewheel._core.hashing import shards_of_bytes, shards_of_ints
from tidewheel._values.columns import with_used_values

_LETTERS = {pa.string(): b"s", pa.binary(): b"b"}
_MANY = 10_000
"""How many messages make it worth while to sort them by key."""

Places = npt.NDArray[np.int64]


class RefusedState(Exception):
    """The state that an operator left for a key cannot be stored."""

    def __init__(self, place: int, error: Exception) -> None:
        """Take the place of the key in its batch, and what the codec says."""
        super().__init__(str(error))
        self.place, self.error = place, error


class KeyBatch:
    """States of distinct keys while an operator works on them.

    Every message has a place, that of its key in `keys` and `states`; the operator reads and sets `states` by place.
    """

    __slots__ = ("_places", "encoded", "keys", "read", "shards", "states", "stored")

    def __init__(
        self, keys: list[Any], places: list[int] | Places, stored: list[bytes], shards: dict[int, slice]
    ) -> None:
        """Begin without states; `stored` and `shards` are empty where the keys are not in the order of the store."""
        self.keys, self._places, self.stored, self.shards = keys, places, stored, shards
        self.states: list[Any] = []
        self.read: list[bytes | None] = []
        """What the states were read from, where the keys are in the order of the store."""
        self.encoded: list[bytes | None] = []
        """What the operator left, once it is given back."""

    def places(self) -> list[int]:
        """Return the place of each message."""
        return self._places if isinstance(self._places, list) else self._places.tolist()

    def together(self) -> tuple[pa.Array, list[int]] | None:
        """Return the messages' order by place, and how many each place has; None where they are few.

        One key's messages after the other's find its state once, and keys and states lie in memory in the order in which
        they are needed: with a million keys that is worth more than half of the time.
        """
        places = self._places
        if isinstance(places, list) or len(places) < _MANY:
            return None
        return pa.array(_sorted(places)), np.bincount(places, minlength=len(self.keys)).tolist()

    def changes(self, shard: int) -> list[tuple[bytes, bytes | None]]:
        """Return the stored keys of a shard whose state is not what was read, each with its encoded state."""
        part = self.shards.get(shard)
        if part is None:
            return []
        left = zip(self.stored[part], self.encoded[part], self.read[part], strict=True)
        return [(stored, encoded) for stored, encoded, read in left if encoded != read]

    def entries(self) -> Iterator[tuple[int, list[tuple[bytes, Any, bytes | None]]]]:
        """Yield each shard with the stored form of its keys, the keys, and what their states were read from."""
        for shard, part in self.shards.items():
            yield shard, list(zip(self.stored[part], self.keys[part], self.read[part], strict=True))


def _sorted(places: Places) -> Places:
    """Return the stable order of places, 16 bits after 16 bits: those numpy sorts by counting, longer numbers by comparing."""
    order = np.argsort((places & 0xFFFF).astype(np.uint16), kind="stable")
    high = (places >> 16).astype(np.uint16)
    return order[np.argsort(high[order], kind="stable")] if high.any() else order


def sorted_keys(column: pa.Array, n_shards: int) -> KeyBatch | None:
    """Return the distinct keys of a column sorted by shard and stored form, or None for a type that has no fast way.

    A column that is dictionary-encoded has its distinct keys in its dictionary.
    """
    encoded = with_used_values(column) if pa.types.is_dictionary(column.type) else column.dictionary_encode()
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
    places = place[encoded.indices.to_numpy()]
    present, starts = np.unique(shards[order.to_numpy()], return_index=True)
    ends = [*starts.tolist()[1:], len(shards)]
    slices = {
        shard: slice(start, end) for shard, start, end in zip(present.tolist(), starts.tolist(), ends, strict=True)
    }
    return KeyBatch(distinct.take(order).to_pylist(), places, stored.take(order).to_pylist(), slices)
