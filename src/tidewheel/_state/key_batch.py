"""KeyBatch: the distinct keys of many messages in store order, with their states in one list.

Arrow does all work that can be done for all keys at once: finding distinct keys, sorting them by shard and stored key,
and converting them to bytes. Only one read, one decode and one encode remain per key.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidewheel._core.hashing import Shards, shards_of_column
from tidewheel._state.key_order import FixedKeys, SortedColumn, sorted_column
from tidewheel._state.key_run import KeyRun
from tidewheel._values.columns import repeats, with_used_values

_LETTERS = {pa.string(): b"s", pa.binary(): b"b"}
_MANY = 10_000
"""The minimum number of messages for which sorting by key is worthwhile."""

Places = npt.NDArray[np.int64]


class RefusedState(Exception):
    """The state that a step set for a key cannot be stored."""

    def __init__(self, place: int, error: Exception) -> None:
        """Use the key's index in its batch, and the error of the codec."""
        super().__init__(str(error))
        self.place, self.error = place, error


class KeyBatch:
    """The states of distinct keys while a step works on them.

    Every message has a place: the index of its key in `keys` and `states`. The step reads and sets `states` by
    place.
    """

    __slots__ = (
        "_keys",
        "_order",
        "_places",
        "_stored",
        "encoded",
        "fixed",
        "read",
        "shards",
        "some_dropped",
        "states",
    )

    def __init__(
        self,
        keys: list[Any] | pa.Array,
        places: list[int] | Places,
        stored: list[bytes] | pa.Array,
        shards: dict[int, slice],
        order: Places | None = None,
    ) -> None:
        """Create a batch without states; `stored` and `shards` are empty if the keys are not in store order.

        Keys and stored keys that are given as a column become Python objects on first use. `order` is the order of the
        messages by place, if known.
        """
        self._keys, self._places, self._stored, self.shards, self._order = keys, places, stored, shards, order
        self.states: list[Any] = []
        self.read: list[bytes | None] = []
        """The encoded states that were read, if the keys are in store order."""
        self.encoded: list[bytes | None] = []
        """The encoded states that the step set, after `keep`."""
        self.some_dropped = True
        """Whether the step may have deleted the state of a key."""
        self.fixed: FixedKeys | None = None
        """The keys in the form in which states stay in memory, if they may stay there."""

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def keys(self) -> list[Any]:
        """The distinct keys as Python objects."""
        if not isinstance(self._keys, list):
            self._keys = self._keys.to_pylist()
        return self._keys

    @property
    def stored(self) -> list[bytes]:
        """The stored form of each key."""
        if not isinstance(self._stored, list):
            self._stored = self._stored.to_pylist()
        return self._stored

    def stored_column(self) -> pa.Array:
        """Return the stored form of each key as a column."""
        return pa.array(self._stored, pa.binary()) if isinstance(self._stored, list) else self._stored

    def places(self) -> list[int]:
        """Return the place of each message."""
        return self._places if isinstance(self._places, list) else self._places.tolist()

    def place_array(self) -> Places:
        """Return the place of each message as an array."""
        return np.asarray(self._places, np.int64)

    def together(self) -> tuple[pa.Array, list[int]] | None:
        """Return the messages' order by place, and the number of messages per place; None if there are few messages.

        Processing the messages of one key together reads its state once and accesses keys and states in memory order:
        with a million keys that saves more than half of the time.
        """
        places = self._places
        if isinstance(places, list) or len(places) < _MANY:
            return None
        order = stable_order(places) if self._order is None else self._order
        return pa.array(order), np.bincount(places, minlength=len(self)).tolist()

    def changes(self, shard: int) -> KeyRun:
        """Return the stored keys of a shard whose state has changed, each with its encoded state."""
        part = self.shards.get(shard, slice(0))
        return KeyRun.changed(self.stored[part], self.encoded[part], self.read[part])

    def grown(self, shard: int) -> int:
        """Return by how many the number of a shard's keys with state has grown since they were read."""
        part = self.shards.get(shard)
        if part is None:
            return 0
        return self.read[part].count(None) - (self.encoded[part].count(None) if self.some_dropped else 0)

    def entries(self) -> Iterator[tuple[int, list[tuple[bytes, Any, bytes | None]]]]:
        """Yield each shard with the stored form of its keys, the keys, and the encoded states that were read."""
        for shard, part in self.shards.items():
            yield shard, list(zip(self.stored[part], self.keys[part], self.read[part], strict=True))


def stable_order(places: Places) -> Places:
    """Return the stable order of places, in steps of 16 bits: numpy sorts those by counting, longer numbers by comparing."""
    order = np.argsort((places & 0xFFFF).astype(np.uint16), kind="stable")
    high = (places >> 16).astype(np.uint16)
    return order[np.argsort(high[order], kind="stable")] if high.any() else order


def sorted_keys(column: pa.Array, n_shards: int) -> KeyBatch | None:
    """Return the distinct keys of a column sorted by shard and stored form, or None for an unsupported type.

    The distinct keys of a dictionary-encoded column are in its dictionary.
    """
    encoded = pa.types.is_dictionary(column.type)
    kind = column.type.value_type if encoded else column.type
    if kind not in _LETTERS and not pa.types.is_int64(kind):
        return None
    if not encoded and len(column) >= _MANY and not repeats(column):
        by_bytes = sorted_column(column)
        if by_bytes is not None:
            return _sorted_by_bytes(column, by_bytes, n_shards)
    codes = with_used_values(column) if encoded else column.dictionary_encode()
    shards, stored = shards_of_column(codes.dictionary, n_shards), _stored(codes.dictionary)
    table = pa.table({"shard": shards, "stored": stored})
    order = pc.sort_indices(table, sort_keys=[("shard", "ascending"), ("stored", "ascending")])
    place = np.empty(len(shards), np.int64)
    place[order.to_numpy()] = np.arange(len(shards))
    places = place[codes.indices.to_numpy()]
    slices = _slices(shards[order.to_numpy()])
    return KeyBatch(codes.dictionary.take(order), places, stored.take(order), slices)


def _sorted_by_bytes(column: pa.Array, by_bytes: SortedColumn, n_shards: int) -> KeyBatch:
    """Return the distinct keys of a column whose byte order is known."""
    distinct = column.take(pa.array(by_bytes.order[by_bytes.starts]))
    shards = shards_of_column(distinct, n_shards)
    by_shard = np.argsort(shards.astype(np.uint16), kind="stable")
    starts, counts = by_bytes.starts[by_shard], by_bytes.counts[by_shard]
    ends = np.cumsum(counts)
    # The messages grouped by key.
    order = by_bytes.order[np.repeat(starts - ends + counts, counts) + np.arange(len(column))]
    places = np.empty(len(column), np.int64)
    places[order] = np.repeat(np.arange(len(counts)), counts)
    distinct = distinct.take(pa.array(by_shard))
    return KeyBatch(distinct, places, _stored(distinct), _slices(shards[by_shard]), order)


def _stored(distinct: pa.Array) -> pa.Array:
    """Return the stored form of keys."""
    if not pa.types.is_int64(distinct.type):
        return pc.binary_join_element_wise(pa.scalar(_LETTERS[distinct.type]), distinct.cast(pa.binary()), b"")
    rows = np.empty((len(distinct), 9), np.uint8)
    rows[:, 0] = ord("i")
    rows[:, 1:] = distinct.to_numpy().astype("<i8").view(np.uint8).reshape(len(distinct), 8)
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(9), len(distinct), [None, pa.py_buffer(rows)]).cast(
        pa.binary()
    )


def _slices(ascending: Shards) -> dict[int, slice]:
    """Return the slice of each shard in an ascending list of shards."""
    present, starts = np.unique(ascending, return_index=True)
    ends = [*starts.tolist()[1:], len(ascending)]
    return {shard: slice(start, end) for shard, start, end in zip(present.tolist(), starts.tolist(), ends, strict=True)}
