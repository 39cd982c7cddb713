"""Sort more than fits in memory: entries are added in any order and read by shard, table and key.

When memory is full, entries are written to local disk as sorted runs, which are state files, and merged when read.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from operator import itemgetter
from pathlib import Path
from typing import IO

from tidewheel._core.closing import Closing
from tidewheel._state.newest_items import newest_items
from tidewheel._state.references import FileRef
from tidewheel._state.spill import disk_failure
from tidewheel._state.state_file import Item, StateFile, StateFileWriter, Table

MEMORY_BYTES = 48 << 20
"""The approximate maximum size of entries in memory."""

_ENTRY_BYTES = 200
"""The memory overhead of an entry in Python, without its bytes."""

_key = itemgetter(0)


class SortedRuns(Closing):
    """Sorted entries of many shards and tables. First add everything, then read it, as often as needed.

    If a key is added twice the last value counts, unless `twice` is given: then the error that it returns for the key
    is raised, at the latest when the key is read.
    """

    def __init__(self, twice: Callable[[bytes], Exception] | None = None) -> None:
        """Create an empty collection; no file is written before memory is full."""
        self._twice = twice
        self._held: dict[int, dict[Table, list[Item]]] = {}
        self._bytes = 0
        self._file: IO[bytes] | None = None
        """All runs, one after the other, in an unnamed file that does not outlive the process."""
        self._runs: list[StateFile] = []

    def close(self) -> None:
        """Delete the data on disk."""
        if self._file is not None:
            self._file.close()

    def add(self, shard: int, table: Table, key: bytes, value: bytes | None) -> None:
        """Add an entry."""
        self._held.setdefault(shard, {}).setdefault(table, []).append((key, value))
        self._bytes += len(key) + len(value or b"") + _ENTRY_BYTES
        if self._bytes > MEMORY_BYTES:
            self._spill()

    def shards(self) -> list[int]:
        """Return the shards that have entries, in ascending order."""
        return sorted({*self._held, *(shard for run in self._runs for shard in run.shards())})

    def tables(self, shard: int) -> Iterator[tuple[Table, Iterator[Item]]]:
        """Yield the tables of a shard, each with its entries in ascending key order."""
        if self._runs and self._held:
            self._spill()
        held = self._held.get(shard, {})
        for table in sorted({*held, *(table for run in self._runs for table in run.tables(shard))}):
            yield table, self._items(shard, table)

    def _items(self, shard: int, table: Table) -> Iterator[Item]:
        if not self._runs:
            return self._distinct(sorted(self._held[shard][table], key=_key))
        return iter(newest_items(self._runs, shard, table, self._twice))

    def _distinct(self, items: Iterable[Item]) -> Iterator[Item]:
        """Yield the last item of each key; items of a key must be adjacent."""
        before: Item | None = None
        for item in items:
            if before is not None and before[0] != item[0]:
                yield before
            elif before is not None and self._twice is not None:
                raise self._twice(item[0])
            before = item
        if before is not None:
            yield before

    def _spill(self) -> None:
        """Write the entries in memory as one more run."""
        writer = StateFileWriter()
        for shard, tables in sorted(self._held.items()):
            for table, items in sorted(tables.items()):
                writer.add(shard, table, list(self._distinct(sorted(items, key=_key))))
        self._held, self._bytes = {}, 0
        data, checksum = writer.finish()
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile()  # noqa: SIM115  # open until all is read
            begins = self._file.seek(0, os.SEEK_END)
            self._file.write(data)
            self._file.flush()
        except OSError as error:
            what = f"{len(data)} bytes of state that is being sorted"
            raise disk_failure(Path(tempfile.gettempdir()), what, error) from error
        number = self._file.fileno()

        def read(_: str, start: int, length: int) -> bytes:
            return os.pread(number, length, begins + start)

        self._runs.append(StateFile(read, FileRef(f"run {len(self._runs)}", len(data), checksum)))
