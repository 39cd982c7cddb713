"""Read a shard's committed state from single blocks of its state files, where a local copy would take long to make."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from tidewheel._state.key_lookup import KeyLookup
from tidewheel._state.newest_items import newest_within
from tidewheel._state.references import ShardParts
from tidewheel._state.shard_reader import ShardReader
from tidewheel._state.state_file import Table

_KEYS_AT_ONCE = 500
"""How many keys are looked up at once: their blocks are in memory together."""


class BlockReader(ShardReader):
    """Reads blocks, up to a number of bytes. Beyond that, or for whole tables, it makes the local copy and reads that."""

    def __init__(
        self, lookup: KeyLookup, parts: ShardParts, shard: int, room: int, make_copy: Callable[[], ShardReader]
    ) -> None:
        """Read these parts of a shard; `make_copy` returns a reader of the local copy."""
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
            self._room -= found.size
            if self._room < 0:
                self._copied()
                break
            values += found.values()
        return values if self._copy is None else values + self._copy.get_many(table, keys[len(values) :])

    def items(self, table: Table, start: bytes = b"", stop: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        if self._copy is not None or (not start and stop is None):
            return self._copied().items(table, start, stop)
        items = newest_within(self._lookup.files(self._parts), self._shard, table, start, stop)
        return ((key, value) for key, value in items if value is not None)

    def count(self, table: Table) -> int:
        """Return 0 if the table has no keys, otherwise at least the number of its keys."""
        if self._copy is not None:
            return self._copy.count(table)
        files = self._lookup.files(self._parts)
        entries = [entry for file in files for entry in file.entries(self._shard, table)]
        some_dropped = any(entry.dropped for entry in entries)
        if some_dropped and all(value is None for _, value in newest_within(files, self._shard, table, b"", None)):
            return 0
        return sum(entry.count - entry.dropped for entry in entries)

    def size(self, table: Table) -> tuple[int, int]:
        return self._copied().size(table)

    def tables(self) -> list[Table]:
        return self._copied().tables()

    def close(self) -> None:
        if self._copy is not None:
            self._copy.close()

    def _copied(self) -> ShardReader:
        if self._copy is None:
            self._copy = self._make_copy()
        return self._copy
