"""Runs of a shard merged into one: read from state files alone, without a local copy, and written in files of bounded size."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import merge as heap_merge
from itertools import islice
from typing import Final

import msgspec

from tidewheel._state.compaction import Merge, Merged
from tidewheel._state.references import FileRef, PartRef
from tidewheel._state.state_file import Item, StateFile, StateFileWriter, Table

FILE_BYTES: Final = 64 << 20
"""About how large a file of merged runs may be. A larger run is in several."""

_IN_MEMORY = 200_000
_CHUNK = 8192

Fetch = Callable[[FileRef], StateFile]
Store = Callable[[bytes, int], FileRef]
"""Makes the bytes of a state file durable, and returns the reference to it; the number is its checksum."""


def merged_items(shard: int, merge: Merge, fetch: Fetch) -> Iterator[tuple[Table, list[Item]]]:
    """Yield what a merge comes to, table by table, in ascending chunks; of a key that comes twice, the newest value.

    Dropped keys stay dropped: older runs may have them. Only when all parts are merged is there nothing to be dropped from.
    """
    files = [fetch(run.file) for run in merge.runs]
    together = _in_memory if sum(run.keys for run in merge.runs) <= _IN_MEMORY else _streamed
    for table in sorted({table for file in files for table in file.tables(shard)}):
        items = together(files, shard, table)
        if merge.whole:
            items = (item for item in items if item[1] is not None)
        while chunk := list(islice(items, _CHUNK)):
            yield table, chunk


def _in_memory(files: Sequence[StateFile], shard: int, table: Table) -> Iterator[Item]:
    held: dict[bytes, bytes | None] = {}
    for file in files:
        for block in file.blocks(shard, table):
            held.update(zip(block.keys, block.values, strict=True))
            held.update(dict.fromkeys(block.dropped))
    return iter(sorted(held.items()))


def _streamed(files: Sequence[StateFile], shard: int, table: Table) -> Iterator[Item]:
    last = b""  # No key is empty.
    for key, _, value in heap_merge(*(_aged(file, shard, table, -age) for age, file in enumerate(files))):
        if key != last:
            last = key
            yield key, value


def _aged(file: StateFile, shard: int, table: Table, age: int) -> Iterator[tuple[bytes, int, bytes | None]]:
    return ((key, age, value) for _, key, value in file.items(shard, table))


class MergedFiles:
    """Writes merged runs of many shards into files of bounded size."""

    def __init__(self, store: Store, file_bytes: int = FILE_BYTES) -> None:
        """Take the function that makes a file durable."""
        self._store, self._file_bytes = store, file_bytes
        self._writer = StateFileWriter()
        self._parts: dict[int, list[PartRef]] = {}
        self._empty: set[int] = set()

    def add(self, shard: int, items: Iterable[tuple[Table, list[Item]]]) -> None:
        """Take all of a shard; each shard once."""
        self._empty.add(shard)
        for table, chunk in items:
            self._empty.discard(shard)
            self._writer.add(shard, table, chunk)
            if self._writer.size > self._file_bytes:
                self._close()

    def finish(self) -> dict[int, list[PartRef]]:
        """Make all of it durable; return the parts by shard, not labelled yet. A shard without any key has an empty part."""
        if self._writer.size or self._empty:
            self._close()
        return self._parts

    def _close(self) -> None:
        ref = self._store(*self._writer.finish())
        for shard, part in self._writer.parts(ref, 0).items():
            self._parts.setdefault(shard, []).append(part)
        for shard in self._empty:
            self._parts[shard] = [PartRef(ref, 0, 0, 0)]
        self._writer, self._empty = StateFileWriter(), set()


def labelled(merge: Merge, parts: Iterable[PartRef]) -> Merged:
    """Return what came of a merge, with the commits that it is of."""
    oldest, newest = merge.runs[0], merge.runs[-1]
    first = 1 if merge.whole else oldest.first or oldest.sequence
    made = (msgspec.structs.replace(part, sequence=newest.sequence, first=first) for part in parts)
    return Merged(merge.runs, tuple(made), merge.whole)
