"""Copies of shards in plain dictionaries instead of LMDB, for one process and without files.

They have the interface of `LocalCopies`, so that a test runs the same code as a job.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import Self

from tidewheel._state.local_copies import LocalCopies
from tidewheel._state.local_copy import ShardCopy
from tidewheel._state.missing_parts import Applied, missing_parts
from tidewheel._state.references import FileRef, PartRef, ShardParts
from tidewheel._state.shard_reader import ShardReader
from tidewheel._state.state_file import StateFile, Table

Tables = dict[Table, dict[bytes, bytes]]


class PlainReader(ShardReader):
    """A read view of the tables of a shard, which do not change during a batch."""

    def __init__(self, tables: Tables) -> None:
        """Take the tables."""
        self._tables = tables

    def get(self, table: Table, key: bytes) -> bytes | None:
        return self._tables.get(table, {}).get(key)

    def get_many(self, table: Table, keys: Sequence[bytes]) -> list[bytes | None]:
        return list(map(self._tables.get(table, {}).get, keys))

    def items(self, table: Table, start: bytes = b"", stop: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        held = self._tables.get(table, {})
        keys = sorted(held)
        chosen = keys[bisect_left(keys, start) : None if stop is None else bisect_left(keys, stop)]
        return ((key, held[key]) for key in chosen)

    def count(self, table: Table) -> int:
        return len(self._tables.get(table, {}))

    def size(self, table: Table) -> tuple[int, int]:
        held = self._tables.get(table, {})
        return len(held), sum(len(key) + len(value) for key, value in held.items())

    def tables(self) -> list[Table]:
        return sorted(table for table, held in self._tables.items() if held)

    def close(self) -> None:
        """Do nothing: there are no open resources."""


class PlainCopy(ShardCopy):
    """One shard's tables."""

    def __init__(self, number: int) -> None:
        """Create an empty shard."""
        self.number, self.was_filled, self.was_stale = number, False, False
        self.tables: Tables = {}
        self._taken: Applied | None = None

    def lacks(self, parts: ShardParts, sequence: int, run: str = "") -> tuple[PartRef, ...]:
        return ()

    def catch_up(self, parts: ShardParts, sequence: int, fetch: Callable[[FileRef], StateFile], run: str = "") -> int:
        missing = missing_parts(parts, sequence, self._taken, run)
        if missing.replace:
            self.tables.clear()
            self._taken = None
        for part in missing.parts:
            for table, key, value in fetch(part.file).items(self.number):
                self.put(table, key, value)
            self._taken = Applied.of(part)
        return sum(part.bytes for part in missing.parts)

    def put(self, table: Table, key: bytes, value: bytes | None) -> None:
        """Set the value of a key; None deletes it."""
        if value is None:
            self.tables.get(table, {}).pop(key, None)
        else:
            self.tables.setdefault(table, {})[key] = value

    def begin(self) -> ShardReader:
        return PlainReader(self.tables)

    def close(self) -> None:
        """Do nothing: there are no open resources."""


class PlainCopies(LocalCopies):
    """Shards in memory."""

    def __init__(self) -> None:
        """Create empty shards."""
        super().__init__("")
        self._plain: dict[int, PlainCopy] = {}

    @classmethod
    def standing_at(cls, folder: str) -> Self:
        """Return new copies that tasks of this process find under the path of their local copies."""
        copies = cls()
        key = os.path.realpath(folder)
        copies.folder = type(copies.folder)(key)
        with cls._lock:
            cls._open[key] = copies
        return copies

    def shard(self, number: int) -> PlainCopy:
        if number not in self._plain:
            self._plain[number] = PlainCopy(number)
        return self._plain[number]

    def shards(self) -> list[int]:
        """Return the shards that were used so far, in ascending order."""
        return sorted(self._plain)

    def crowded(self, limit: int = 0) -> bool:
        """Do nothing: no memory is mapped."""
        return False

    def clear(self) -> None:
        """Delete all shards."""
        self._plain.clear()
