"""The states of the keys of one step, as Python objects, for one task and batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from xxhash import xxh64_intdigest

from tidewheel._core.keys import SEED, from_stored, shard_of_stored, to_stored
from tidewheel._state.codec import StateCodec, decode_all, encode_all
from tidewheel._state.key_batch import KeyBatch, RefusedState, sorted_keys
from tidewheel._state.key_order import fixed_keys
from tidewheel._state.references import PartRef
from tidewheel._state.resident_rows import object_array
from tidewheel._state.segments import SegmentTable
from tidewheel._state.spill import Spill
from tidewheel._state.state_file import DROPPED, MISSING, Absent, Items
from tidewheel._values.columns import values
from tidewheel.errors import CorruptError, StateError, StepError

if TYPE_CHECKING:
    from tidewheel._state.task_state import TaskState

Entry = tuple[bytes, Any, bytes | Absent | None]
"""A stored key, the key, and its encoded state as read; MISSING if it was not read."""

_STORED = itemgetter(0)
_NUMBERS = {bool, int, float}
_KINDS: dict[pa.DataType, type] = {pa.bool_(): bool, pa.int64(): int, pa.float64(): float}

SPILL_KEYS = 1_000_000
"""How many keys can have their states in memory as Python objects before these are moved to disk."""


class KeyedState:
    """One table's state of every key, for one task and batch.

    Untouched keys are in the committed state. Touched keys are in one of three places:

    - `_batch`: the keys of many messages, opened together and passed back. This is the hottest loop: the keys are
      sorted once, and the list of their states becomes the delta unchanged. If most keys of a shard are among them,
      their encoded states stay in memory for the next batch.
    - `states`: single keys, as Python objects. Access to a single key moves the batch there first.
    - `_spill`: on local disk, when there are more keys than fit in memory.
    """

    def __init__(
        self,
        task: TaskState,
        table: str,
        codec: StateCodec,
        default: Callable[[], Any],
        segments: SegmentTable | None = None,
    ) -> None:
        """Create a keyed state; called by `TaskState.keyed`."""
        self.table = table
        self.n_shards = task.n_shards
        self.codec = codec
        self.default = default
        self.states: dict[Any, Any] = {}
        self._entries: dict[int, list[Entry]] = {}
        """The keys of `states`, by shard."""
        self._batch: KeyBatch | None = None
        self._spill: Spill | None = None
        self._task = task
        self.resident = task.resident(table)
        self._segments = segments
        """The segment table, if the codec divides large states."""
        self._numbers: set[type] = set()
        self._watcher: Callable[[Any], None] | None = None

    def watch(self, watcher: Callable[[Any], None]) -> None:
        """Call `watcher` with each key whose state `put` sets."""
        self._watcher = watcher

    def is_new(self, shard: int) -> bool:
        """Return whether no key of a shard had state at the start of the batch."""
        return self._task.reader(shard).count(self.table) == 0

    def open(self, keys: list[Any] | None, column: pa.Array | None) -> KeyBatch:
        """Return the states of the keys of many messages, to be changed by place and passed back with `keep`."""
        self._take_apart()
        self._check_kinds({_KINDS.get(column.type, str)} if column is not None else set(map(type, keys or ())))
        untouched = not self.states and not self._spill
        batch = sorted_keys(column, self.n_shards) if column is not None and untouched else None
        if batch is not None:
            self._read(batch)
            return batch
        distinct: dict[Any, int] = {}
        every = keys if keys is not None else values(column)
        places = [distinct.setdefault(key, len(distinct)) for key in every]
        batch = KeyBatch(list(distinct), places, [], {})
        self.fetch(batch.keys)
        batch.states = [self.states[key] for key in batch.keys]
        return batch

    def _read(self, batch: KeyBatch) -> None:
        """Read the states of keys in store order: from memory where a batch touches most keys of a shard."""
        if self._segments is None and self.resident.are_useful and len(batch):
            batch.fixed = fixed_keys(batch.stored_column())
        for shard, part in batch.shards.items():
            rows = None
            if batch.fixed is not None:
                kind = batch.stored[0][:1]
                rows = self.resident.rows(shard, part.stop - part.start, kind, object_array)
            if rows is None or batch.fixed is None:
                read = self._task.reader(shard).get_many(self.table, batch.stored[part])
            else:
                read = rows.find(batch.fixed[part])[0].tolist()
            batch.read += read
            batch.states += self._decoded(batch.stored[part], read)

    def written(self, parts: Mapping[int, Sequence[PartRef]]) -> None:
        """Keep the states that are in memory for the next batch: the batch's changes are in these parts of its delta."""
        batch = self._batch
        if batch is None:
            if self.touched():
                self.resident.drop()
            return
        for shard, part in batch.shards.items():
            if batch.fixed is None or shard not in parts or shard not in self.resident.shards():
                continue
            encoded = batch.encoded[part]
            present = np.array([state is not None for state in encoded]) if batch.some_dropped else None
            self.resident.put(shard, batch.fixed[part], object_array(encoded), parts[shard][-1].file.name, present)
        self.resident.keep()

    def _check_kinds(self, kinds: set[type]) -> None:
        """Raise for keys of several number types: 1, 1.0 and True are one key in a dict and three in the store."""
        self._numbers |= kinds & _NUMBERS
        if len(self._numbers) > 1:
            names = " and ".join(sorted(kind.__name__ for kind in self._numbers))
            raise StepError(f"step {self.table!r}: all keys must be of one type, not {names}; convert them in key_by")

    def keep(self, batch: KeyBatch) -> None:
        """Store the states from `open` as the step changed them; raise `RefusedState` if one cannot be stored."""
        try:
            batch.encoded = encode_all(self.codec, batch.states)
        except Exception:
            self._refuse(batch)
            raise
        if batch.shards:
            # Comparing each with None takes three times as long.
            batch.some_dropped = type(None) in set(map(type, batch.encoded))
            self._batch = batch
        else:
            self.states.update(zip(batch.keys, batch.states, strict=True))

    def _refuse(self, batch: KeyBatch) -> None:
        for place, state in enumerate(batch.states):
            if state is not None:
                try:
                    self.codec.encode(state)
                except Exception as error:
                    raise RefusedState(place, error) from error

    def committed(self, key: Any) -> Any:
        """Return a new copy of the state that a key had at the start of the batch, or None."""
        stored = to_stored(key)
        raw = self._task.reader(shard_of_stored(stored, self.n_shards)).get(self.table, stored)
        return self._decoded([stored], [raw])[0]

    def made_again(self, key: Any, encoded: bytes) -> Any:
        """Return the state of a key that the codec encoded in this batch."""
        return self._decoded([to_stored(key)], [encoded])[0]

    def _decoded(self, stored: Sequence[bytes], raws: list[bytes | None]) -> list[Any]:
        """Return the states of stored keys; errors name the step and the key."""
        try:
            return self._from_bytes(stored, raws)
        except (StateError, CorruptError):
            for each, raw in zip(stored, raws, strict=True):
                try:
                    self._from_bytes([each], [raw])
                except (StateError, CorruptError) as error:
                    where = f"step {self.table.partition('/')[0]!r}, key {from_stored(each)!r}"
                    raise type(error)(f"{where}: {error}") from None
            raise

    def _from_bytes(self, stored: Sequence[bytes], raws: list[bytes | None]) -> list[Any]:
        return decode_all(self.codec, raws) if self._segments is None else self._segments.decoded(stored, raws)

    def _take_apart(self) -> None:
        """Move the batch to `states`, where single keys can be found."""
        batch, self._batch = self._batch, None
        if batch is not None:
            for shard, entries in batch.entries():
                self._entries.setdefault(shard, []).extend(entries)
            self.states.update(zip(batch.keys, batch.states, strict=True))

    def fetch(self, keys: Iterable[Any]) -> None:
        """Load the states of these keys into `states`, reading each once."""
        self._take_apart()
        keys = list(keys)
        self._check_kinds(set(map(type, keys)))
        wanted = set(keys)
        missing = wanted.difference(self.states)
        if not missing:
            return
        if len(self.states) > SPILL_KEYS:
            self._relieve()
            missing = wanted
        mask = self._task.n_shards - 1
        by_shard: dict[int, list[tuple[bytes, Any]]] = {}
        if set(map(type, missing)) == {str}:
            # The same as the branch below, without a call per key.
            for key in missing:
                raw = key.encode()
                by_shard.setdefault(xxh64_intdigest(raw, SEED) & mask, []).append((b"s" + raw, key))
        else:
            for key in missing:
                stored = to_stored(key)
                by_shard.setdefault(shard_of_stored(stored, mask + 1), []).append((stored, key))
        for shard, pairs in by_shard.items():
            self._fetch_shard(shard, pairs)

    def _fetch_shard(self, shard: int, pairs: list[tuple[bytes, Any]]) -> None:
        pairs.sort(key=_STORED)
        stored = [each for each, _ in pairs]
        read = self._task.reader(shard).get_many(self.table, stored)
        if self._spill is not None:
            spilled = self._spill.get_many(shard, stored)
            over = zip(read, spilled, strict=True)
            read = [raw if there is MISSING else None if there is DROPPED else there for raw, there in over]
        states = self._decoded(stored, read)
        self.states.update((key, state) for (_, key), state in zip(pairs, states, strict=True))
        entries = ((stored, key, raw) for (stored, key), raw in zip(pairs, read, strict=True))
        self._entries.setdefault(shard, []).extend(entries)

    def put(self, key: Any, state: Any) -> None:
        """Set the state of a key, None to delete it, whether or not it was fetched."""
        self._take_apart()
        if key not in self.states:
            stored = to_stored(key)
            shard = shard_of_stored(stored, self._task.n_shards)
            self._entries.setdefault(shard, []).append((stored, key, MISSING))
        self.states[key] = state
        if self._watcher is not None and state is not None:
            self._watcher(key)

    def get(self, key: Any) -> Any:
        """Return the current state of a key, or None."""
        self._take_apart()
        if key not in self.states:
            self.fetch((key,))
        return self.states[key]

    def touched(self) -> set[int]:
        """Return the shards of the keys that this batch read or changed."""
        shards = set(self._batch.shards) if self._batch is not None else set()
        return shards | set(self._entries) | (self._spill.shards() if self._spill is not None else set())

    def changes(self, shard: int) -> Items:
        """Return the changes of this batch in the shard, sorted by stored key."""
        items = self._changed(shard)
        return items if self._segments is None else self._segments.divide(shard, items)

    def _changed(self, shard: int) -> Items:
        if self._batch is not None:
            return self._batch.changes(shard)
        items = self._encoded(self._entries.get(shard, []))
        return items if self._spill is None else sorted({**dict(self._spill.items(shard)), **dict(items)}.items())

    def grown(self, shard: int) -> int:
        """Return by how many the shard's keys with state have grown in this batch."""
        if self._batch is not None:
            return self._batch.grown(shard)
        if self._spill is not None:
            # The state that was read may be one that this batch spilled.
            items = self._changed(shard)
            after = sum(state is not None for _, state in items)
            return after - self._task.there(shard, self.table, [stored for stored, _ in items])
        entries = self._entries.get(shard, [])
        after = sum(self.states[key] is not None for _, key, _ in entries)
        before = sum(read is not None and read is not MISSING for _, _, read in entries)
        unread = sorted(stored for stored, _, read in entries if read is MISSING)
        return after - before - self._task.there(shard, self.table, unread)

    def shard(self, shard: int) -> ShardStates:
        """Return every key's state of one shard as a mapping."""
        self._take_apart()
        return ShardStates(self, shard)

    def look(self, shard: int, stored: bytes, key: Any) -> Any:
        """Return the current state of a key of a shard, or None, without moving it.

        A scan of a whole shard must not load all of it into memory.
        """
        if key in self.states:
            return self.states[key]
        if self._spill is not None:
            (spilled,) = self._spill.get_many(shard, [stored])
            if spilled is not MISSING:
                return self._decoded([stored], [None if isinstance(spilled, Absent) else spilled])[0]
        return self._decoded([stored], [self._task.reader(shard).get(self.table, stored)])[0]

    def stored_keys(self, shard: int) -> list[bytes]:
        """Return the stored keys of a shard that currently have state, in order."""
        self._take_apart()
        there = {stored: True for stored, _ in self._task.reader(shard).items(self.table)}
        if self._spill is not None:
            there.update((stored, raw is not None) for stored, raw in self._spill.items(shard))
        there.update((stored, self.states[key] is not None) for stored, key, _ in self._entries.get(shard, ()))
        return sorted(stored for stored, has_state in there.items() if has_state)

    def close(self) -> None:
        """Delete spilled data, and release the states: the task's objects refer to each other, and are freed later."""
        self._batch = None
        self.resident.release()
        if self._spill is not None:
            self._spill.close()

    def _encoded(self, entries: list[Entry]) -> list[tuple[bytes, bytes | None]]:
        """Return the sorted stored keys whose state has changed, each with its encoded state."""
        entries.sort(key=_STORED)
        states = [self.states[key] for _, key, _ in entries]
        try:
            encoded = encode_all(self.codec, states)
        except Exception:
            for (_, key, _), state in zip(entries, states, strict=True):
                try:
                    if state is not None:
                        self.codec.encode(state)
                except Exception as error:
                    raise StepError(f"step {self.table!r}, key {key!r}: its state cannot be stored: {error}") from error
            raise
        left = zip(entries, encoded, strict=True)
        return [(stored, state) for (stored, _, read), state in left if state != read]

    def _relieve(self) -> None:
        """Move the states to disk: a batch may touch more keys than fit in memory."""
        if self._spill is None:
            self._spill = Spill(self._task.folder)
        for shard, entries in self._entries.items():
            self._spill.put(shard, self._encoded(entries))
        self.states.clear()
        self._entries.clear()


class ShardStates(MutableMapping[Any, Any]):
    """Every key's state of one shard, read on demand.

    Setting an item changes a key's state, deleting it deletes the state. A state that was modified in place must be set
    again. Only keys of the shard can be set: other tasks handle the others.
    """

    def __init__(self, state: KeyedState, shard: int) -> None:
        """Create a mapping; called by `KeyedState.shard`."""
        self._state, self._shard = state, shard

    def __getitem__(self, key: Any) -> Any:
        stored = to_stored(key)
        value = self._state.look(self._shard, stored, key) if self._belongs(stored) else None
        if value is None:
            raise KeyError(key)
        return value

    def __setitem__(self, key: Any, value: Any) -> None:
        if not self._belongs(to_stored(key)):
            raise StepError(f"the key {key!r} does not belong to the shard whose states were given")
        self._state.put(key, value)

    def __delitem__(self, key: Any) -> None:
        if key not in self:
            raise KeyError(key)
        self._state.put(key, None)

    def __iter__(self) -> Iterator[Any]:
        # List the keys first, so that the caller can set and delete while iterating.
        return map(from_stored, self._state.stored_keys(self._shard))

    def __len__(self) -> int:
        return len(self._state.stored_keys(self._shard))

    def clear(self) -> None:
        """Delete every key's state."""
        for key in self:
            self._state.put(key, None)

    def _belongs(self, stored: bytes) -> bool:
        return shard_of_stored(stored, self._state.n_shards) == self._shard
