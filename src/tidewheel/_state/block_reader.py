"""Read a shard's committed state from single blocks of its state files, where a local copy would take long to make."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from tidewheel._state.key_lookup import KeyLookup
from tidewheel._state.newest_items import Run, newest_within, runs_within
from tidewheel._state.references import ShardParts
from tidewheel._state.shard_reader import ShardReader
from tidewheel._state.state_file import Table

_KEYS_AT_ONCE = 500
"""How many keys are looked up at once."""
_ROUND_BYTES = 1 << 20
"""Waiting for an answer of the store takes about as long as reading this many bytes."""


class BlockReader(ShardReader):
    """Reads blocks until this has cost as much as reading a number of bytes. Then it makes the local copy and reads that."""

    def __init__(
        self, lookup: KeyLookup, parts: ShardParts, shard: int, room: int, make_copy: Callable[[], ShardReader]
    ) -> None:
        """Read these parts of a shard, at a cost of up to `room` bytes; `make_copy` returns a reader of the local copy."""
        self._lookup, self._parts, self._shard, self._room = lookup, parts, shard, room
        self._make_copy = make_copy
        self._copy: ShardReader | None = None

    def get(self, table: Table, key: bytes) -> bytes | None:
        return self.get_many(table, [key])[0]

    def get_many(self, table: Table, keys: Sequence[bytes]) -> list[bytes | None]:
        values: list[bytes | None] = []
        while self._copy is None and len(values) < len(keys):
            some = keys[len(values) : len(values) + _KEYS_AT_ONCE]
            found = self._lookup.find(self._parts, self._shard, table, some)
            if self._has_room(found.size, found.waits):
                values += found.values()
        return values if self._copy is None else values + self._copy.get_many(table, keys[len(values) :])

    def items(self, table: Table, start: bytes = b"", stop: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        if self._copy is None:
            runs = runs_within(self._lookup.files(self._parts), self._shard, table, start, stop)
            waiting = [run for run in runs if not run.file.in_memory]
            # A table is read to its end. Of a range, often only the first items are needed.
            counted = None if not start and stop is None else 1
            if self._has_room(sum(entry.length for run in runs for entry in run.entries[:counted]), bool(waiting)):
                self._lookup.at_once(Run.read_first, waiting)
                return ((key, value) for key, value in newest_within(runs, start, stop) if value is not None)
        return self._copied().items(table, start, stop)

    def count(self, table: Table) -> int:
        """Return 0 if the table has no keys, otherwise at least the number of its keys."""
        if self._copy is not None:
            return self._copy.count(table)
        entries = [file.entries(self._shard, table) for file in self._lookup.files(self._parts)]
        most = sum(entry.count - entry.dropped for each in entries for entry in each)
        # No later file drops the keys of the newest one.
        newest = next(filter(None, reversed(entries)), [])
        if most and all(entry.count == entry.dropped for entry in newest):
            # All keys are after this start; with it, only first blocks are read.
            return most if any(self.items(table, b"\0")) else 0
        return most

    def size(self, table: Table) -> tuple[int, int]:
        return self._copied().size(table)

    def tables(self) -> list[Table]:
        return self._copied().tables()

    def close(self) -> None:
        if self._copy is not None:
            self._copy.close()

    def _has_room(self, size: int, waits: bool) -> bool:
        """Return whether to read blocks of this size, which may wait for the store; if not, make the copy."""
        if size > max(self._room, 0):
            self._copied()
        self._room -= size + _ROUND_BYTES * waits
        return self._copy is None

    def _copied(self) -> ShardReader:
        if self._copy is None:
            self._copy = self._make_copy()
        return self._copy
