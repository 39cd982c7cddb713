"""The state of a task: committed state read through local copies, and the changes of the current batch.

Nothing here writes to a local copy: the changes become the delta, which is applied after the commit by the next process
that needs the shard. So a batch that fails, runs twice or is abandoned has no effect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tidewheel._core.keys import shard_of_stored, to_stored
from tidewheel._state.block_reader import BlockReader
from tidewheel._state.codec import StateCodec
from tidewheel._state.key_lookup import KeyLookup
from tidewheel._state.keyed_state import KeyedState
from tidewheel._state.local_copies import LocalCopies, ShardReader
from tidewheel._state.raw_table import RawTable
from tidewheel._state.references import FileRef, PartRef, ShardParts
from tidewheel._state.resident_shards import ResidentShards
from tidewheel._state.row_table import RowTable
from tidewheel._state.segments import SUFFIX, SegmentedCodec, SegmentTable
from tidewheel._state.shard_reader import EmptyReader
from tidewheel._state.state_file import Items, StateFile
from tidewheel._state.timers import TimerTable

FILLED_COPIES = 32
"""How many copies a task fills before it closes them: LMDB uses 3 MB of lists for each open copy."""

_BLOCK_SHARE = 2
"""Of a stale shard, blocks are read up to the bytes that its copy lacks, divided by this. Then the copy is updated."""


class TaskState:
    """The shards of one task as of the base manifest; local copies are updated on first read."""

    def __init__(
        self,
        n_shards: int,
        sequence: int,
        parts: Mapping[int, ShardParts],
        copies: LocalCopies,
        fetch: Callable[[FileRef], StateFile],
        awake: Mapping[str, frozenset[int]] | None = None,
        run: str = "",
        lookup: Callable[[], KeyLookup] | None = None,
    ) -> None:
        """Use the base manifest's sequence and parts; `fetch` opens a state file of the store.

        `run` is the token of the batch's run. `awake` has, by table of timers, the shards in which a timer may be due,
        if known. `lookup` returns what reads stale shards by block; None: their copies are updated.
        """
        self.n_shards = n_shards
        self.sequence = sequence
        self.parts = parts
        self._copies = copies
        self._fetch = fetch
        self._run = run
        self._lookup = lookup
        self._awake = awake or {}
        self._readers: dict[int, ShardReader] = {}
        self._filled = 0
        self._sizes: dict[int, list[tuple[str, int, int]]] = {}
        """Tables, keys and bytes of the closed shards."""
        self.caught_up = 0
        """The number of bytes of state files that were applied to local copies."""
        self.stale_bytes = 0
        """The part of these bytes that went into stale copies."""
        self._visited: set[int] = set()
        self._stale: set[int] = set()
        self.by_block: set[int] = set()
        """The shards that are read by block: their copies are still stale."""
        self._states: dict[str, KeyedState | RawTable | RowTable | SegmentTable | TimerTable] = {}

    @property
    def folder(self) -> Path | None:
        """The folder of the local copies, on the disk chosen for such data; None if they are in memory."""
        folder = getattr(self._copies, "folder", None)
        return folder if folder is not None and folder.is_dir() else None

    def reader(self, shard: int) -> ShardReader:
        """Return a read transaction over the shard's committed state as of the base manifest."""
        reader = self._readers.get(shard)
        if reader is None and shard not in self.parts:
            reader = self._readers[shard] = EmptyReader()
        if reader is None:
            self._relieve()
            reader = self._readers[shard] = self._by_block(shard) or self._copied(shard)
        return reader

    def update_copy(self, shard: int) -> None:
        """Bring the local copy of a shard up to date."""
        if shard in self.parts and shard not in self._readers:
            self._relieve()
            self._readers[shard] = self._copied(shard)

    def _copied(self, shard: int) -> ShardReader:
        copy = self._copies.shard(shard)
        lacked = copy.catch_up(self.parts[shard], self.sequence, self._fetch, self._run)
        self.caught_up += lacked
        self._visited.add(shard)
        if copy.was_stale:
            self._stale.add(shard)
            self.stale_bytes += lacked
        self._filled += copy.was_filled
        return copy.begin()

    def _by_block(self, shard: int) -> BlockReader | None:
        """Return a reader without a copy, if the shard is stale and the task has updated enough stale copies."""
        if self._lookup is None or self.stale_bytes < self._copies.limits.stale_bytes:
            return None
        parts, lookup = self.parts[shard], self._lookup()
        lacking = self._copies.shard(shard).lacks(parts, self.sequence, self._run)
        # To update the copy, the files of the other parts are not opened.
        others = parts.files().difference(part.file for part in lacking)
        room = sum(part.bytes for part in lacking) // _BLOCK_SHARE - lookup.opening_bytes(others)
        if room <= 0:
            return None
        self._visited.add(shard)
        self._stale.add(shard)
        self.by_block.add(shard)
        return BlockReader(lookup, parts, shard, room, partial(self._copied_instead, shard))

    def _copied_instead(self, shard: int) -> ShardReader:
        """Update the copy of a shard that was read by block; return its reader."""
        self._relieve()
        reader = self._readers[shard] = self._copied(shard)
        self.by_block.discard(shard)
        return reader

    def visits(self) -> tuple[int, int]:
        """Return how many shards with state the task has opened, and how many of these had a stale copy here, or none."""
        in_memory = [table.resident.shards() for table in self._in_memory()]
        return len(self._visited.union(*in_memory)), len(self._stale)

    def _relieve(self) -> None:
        """Close the other shards if together they use too much memory; later users get a new reader."""
        if self._filled >= FILLED_COPIES or self._copies.crowded():
            self._filled = 0
            self._sizes.update((shard, self._sizes_of(shard)) for shard in self._readers)
            # Readers by block have nothing open, and have counted what they read.
            by_block = {shard: self._readers[shard] for shard in self.by_block}
            self._close_readers()
            self._readers.update(by_block)
            self._copies.relieve()

    def _close_readers(self) -> None:
        for reader in self._readers.values():
            reader.close()
        self._readers.clear()

    def keyed(self, table: str, codec: StateCodec, default: Callable[[], Any]) -> KeyedState:
        """Return the keyed state of a table; there is one per table and task."""
        segments = SegmentTable(self, table, codec) if isinstance(codec, SegmentedCodec) else None
        if segments is not None:
            self._states[f"{table}/{SUFFIX}"] = segments
        state = self._states[table] = KeyedState(self, table, codec, default, segments)
        return state

    def raw(self, table: str) -> RawTable:
        """Return a table's state as bytes."""
        state = self._states[table] = RawTable(self, table)
        return state

    def rows(self, table: str) -> RowTable:
        """Return a table's state as rows of one width."""
        state = self._states[table] = RowTable(table, self.n_shards, self.resident(table), self.reader)
        return state

    def resident(self, table: str) -> ResidentShards:
        """Return access to the rows of a table that this process has in memory."""
        folder = str(getattr(self._copies, "folder", id(self._copies)))
        return ResidentShards(table, folder, self.parts, self.reader)

    def timers(self, table: str) -> TimerTable:
        """Return a table's timers."""
        state = self._states[table] = TimerTable(self, table, self._awake.get(table))
        return state

    def current(self, table: str, key: Any) -> tuple[bytes, StateCodec | None] | None:
        """Return the encoded state of a key with the changes of this batch, and the table's codec; None without state."""
        state, stored = self._states[table], to_stored(key)
        if isinstance(state, KeyedState):
            value = state.get(key)
            return None if value is None else (state.codec.encode(value), state.codec)
        assert isinstance(state, RawTable), "a step that gets the end of the data several times has no rows in memory"
        (raw,) = state.get_many(shard_of_stored(stored, self.n_shards), [stored])
        return None if raw is None else (raw, None)

    def next_timers(self) -> dict[str, dict[int, tuple[int, int]]]:
        """Return the results of `TimerTable.next_due` by table of timers, without empty ones."""
        tables = ((table, state) for table, state in self._states.items() if isinstance(state, TimerTable))
        return {table: due for table, timers in tables if (due := timers.next_due())}

    def changes(self) -> Iterator[tuple[int, str, Items]]:
        """Yield the changes of this batch for each shard and table, with ascending shards."""
        shards = sorted({shard for state in self._states.values() for shard in state.touched()})
        for shard in shards:
            for table in sorted(self._states):
                items = self._states[table].changes(shard)
                if items:
                    yield shard, table, items

    def grown(self, shard: int, table: str) -> int:
        """Return by how many keys a table has grown in a shard in this batch; for tables of states, not auxiliary ones."""
        state = self._states[table]
        assert isinstance(state, KeyedState | RawTable | RowTable), "timers and segments are no keys"
        return state.grown(shard)

    def there(self, shard: int, table: str, stored: list[bytes]) -> int:
        """Return how many of these sorted stored keys had state at the start of the batch."""
        reader = self.reader(shard)
        if not stored or not reader.count(table):
            return 0
        return len(stored) - reader.get_many(table, stored).count(None)

    def sizes(self, wanted: Callable[[int], bool]) -> Iterator[tuple[int, str, int, int]]:
        """Yield shard, table, keys and bytes of the wanted shards whose copies were opened, as of the base."""
        in_memory = {state.table: state.resident.shards() for state in self._in_memory()}
        for state in self._in_memory():
            yield from (size for size in state.resident.sizes() if wanted(size[0]))
        for shard in filter(wanted, {**self._sizes, **self._readers}):
            for table, keys, used in self._sizes_of(shard):
                if shard not in in_memory.get(table, ()):
                    yield shard, table, keys, used

    def _sizes_of(self, shard: int) -> list[tuple[str, int, int]]:
        reader = self._readers.get(shard)
        if reader is None:
            return self._sizes[shard]
        return [] if shard in self.by_block else [(table, *reader.size(table)) for table in reader.tables()]

    def written(self, parts: Mapping[int, Sequence[PartRef]]) -> None:
        """Tell the tables which parts of the batch's delta have their changes."""
        for state in self._in_memory():
            state.written(parts)

    def _in_memory(self) -> list[KeyedState | RowTable]:
        """Return the tables that may keep rows in memory between batches."""
        return [state for state in self._states.values() if isinstance(state, KeyedState | RowTable)]

    def touched(self) -> set[int]:
        """Return the shards that this batch read or changed."""
        return {shard for state in self._states.values() for shard in state.touched()}

    def close(self) -> None:
        """End the read transactions and delete spilled data."""
        self._close_readers()
        for state in self._states.values():
            state.close()
