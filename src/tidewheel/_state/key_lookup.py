"""Look up keys of a shard in the state files, in at most two rounds: all indexes at once, then all blocks at once.

A look-up waits for the store, not for the processor. So its cost is the number of sequential reads, whatever the number
of the shard's parts.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from tidewheel._state.references import FileRef, ShardParts
from tidewheel._state.state_file import Absent, IndexEntry, ReadRange, StateFile, Table, adjacent

WHOLE_BYTES: Final = 256 * 1024
"""Files up to this size are read completely. For larger files, this much of the end is read, which includes the index."""
_INDEX_SHARE: Final = 64
"""An index is about a hundredth of a large file; a little more than that is read from the end."""
HELD_BYTES: Final = 64 << 20
"""The maximum size of files and indexes cached for later look-ups."""
_THREADS: Final = 64
"""Usually more than a shard has parts, so that the reads of a round run in parallel."""
_GAP_BYTES: Final = 64 * 1024
"""Blocks that are this near to each other are read at once: waiting for a read takes longer than receiving the gap."""
_READ_BYTES: Final = 1 << 20

_Given = TypeVar("_Given")
_Result = TypeVar("_Result")


class KeyLookup:
    """Looks up keys in state files, with a cache of indexes: files never change.

    Can be used from several threads.
    """

    def __init__(self, read_range: ReadRange, held_bytes: int = HELD_BYTES, whole_bytes: int = WHOLE_BYTES) -> None:
        """Use the function that reads a range of a state file, the cache size, and the maximum size of files read completely."""
        self._read_range, self._room, self._whole_bytes = read_range, held_bytes, whole_bytes
        self._files: OrderedDict[FileRef, StateFile] = OrderedDict()
        self._held = 0
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None

    def get(self, parts: ShardParts, shard: int, table: Table, key: bytes) -> bytes | None:
        """Return the encoded state of a key in these parts of its shard, or None."""
        return self.find(parts, shard, table, [key]).values()[0]

    def find(self, parts: ShardParts, shard: int, table: Table, keys: Sequence[bytes]) -> FoundBlocks:
        """Find the blocks that may have the encoded states of the keys in these parts of their shard."""
        files = list(reversed(self.files(parts)))
        found = FoundBlocks(self, shard, table, keys)
        # Files in memory need no second round, so their keys need none.
        while files and found.unread and files[0].in_memory:
            found.add(files.pop(0))
            found.read()
        for file in files:
            found.add(file)
        return found

    def files(self, parts: ShardParts) -> list[StateFile]:
        """Open the files of a shard, oldest first."""
        refs = [part.file for part in (parts.snapshot, *parts.deltas) if part is not None]
        with self._lock:
            held = {ref: self._files.get(ref) for ref in refs}
            for ref, file in held.items():
                if file is not None:
                    self._files.move_to_end(ref)
        missing = [ref for ref, file in held.items() if file is None]
        opened = dict(zip(missing, self.at_once(self._open, missing), strict=True))
        for ref, file in opened.items():
            self._keep(ref, file)
        return [file or opened[ref] for ref, file in held.items()]

    def opening_bytes(self, refs: Iterable[FileRef]) -> int:
        """Return about how many bytes it takes to open files."""
        with self._lock:
            return sum(self._tail_bytes(ref) for ref in refs if ref not in self._files)

    def at_once(self, work: Callable[[_Given], _Result], over: Sequence[_Given]) -> list[_Result]:
        """Call a function for all values, in threads; return the results in order."""
        if len(over) < 2:
            return [work(each) for each in over]
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(_THREADS, "tidewheel-look-up")
        return list(self._pool.map(work, over))

    def _open(self, ref: FileRef) -> StateFile:
        if self._is_whole(ref):
            return StateFile.of(self._read_range(ref.name, 0, ref.size), ref)
        return StateFile(self._read_range, ref, self._tail_bytes(ref))

    def _keep(self, ref: FileRef, file: StateFile) -> None:
        with self._lock:
            if ref not in self._files:
                self._files[ref] = file
                self._held += self._tail_bytes(ref)
            while self._held > self._room and len(self._files) > 1:
                _, oldest = self._files.popitem(last=False)
                self._held -= self._tail_bytes(oldest.ref)

    def _is_whole(self, ref: FileRef) -> bool:
        return ref.size <= self._whole_bytes

    def _tail_bytes(self, ref: FileRef) -> int:
        """Return how much of the end of a file to read first, which is about its size in the cache."""
        return min(ref.size, self._whole_bytes + ref.size // _INDEX_SHARE)


class FoundBlocks:
    """The blocks that may have the values of some keys, read all at once by `values`."""

    def __init__(self, lookup: KeyLookup, shard: int, table: Table, keys: Sequence[bytes]) -> None:
        """Begin without blocks; called by `KeyLookup.find`."""
        self._lookup, self._shard, self._table, self._keys = lookup, shard, table, keys
        self._values: list[bytes | None] = [None] * len(keys)
        self.unread = list(range(len(keys)))
        """The places of the keys whose newest value is unknown."""
        self._reads: list[tuple[StateFile, list[IndexEntry], dict[int, list[int]]]] = []
        """Blocks to read together, of the newest file first, and by offset of a block the places of the keys it may have."""
        self.size = 0
        """How many bytes are read, with the gaps between blocks."""

    @property
    def waits(self) -> bool:
        """Whether `values` reads from the store."""
        return any(not file.in_memory for file, _, _ in self._reads)

    def values(self) -> list[bytes | None]:
        """Return the value of each key, None if it has none."""
        self.read()
        return self._values

    def add(self, file: StateFile) -> None:
        """Add a file that is older than those that were added before."""
        entries = file.entries(self._shard, self._table)
        blocks: dict[int, IndexEntry] = {}
        places: dict[int, list[int]] = {}
        for place in self.unread:
            entry = file.entry_of(entries, self._keys[place])
            if entry is not None:
                blocks[entry.offset] = entry
                places.setdefault(entry.offset, []).append(place)
        for run in adjacent([blocks[offset] for offset in sorted(blocks)], _READ_BYTES, _GAP_BYTES):
            self._reads.append((file, run, places))
            self.size += run[-1].offset + run[-1].length - run[0].offset

    def read(self) -> None:
        """Read the blocks of the added files."""
        unread = set(self.unread)
        for file, entry, data, places in self._blocks():
            wanted = unread.intersection(places)
            if not wanted:
                continue
            block = file.decode(entry, data)
            for place in wanted:
                value = block.find(self._keys[place])
                if value is not Absent.MISSING:
                    unread.discard(place)
                    self._values[place] = value if isinstance(value, bytes) else None
        self.unread = sorted(unread)
        self._reads.clear()

    def _blocks(self) -> Iterator[tuple[StateFile, IndexEntry, memoryview, list[int]]]:
        """Read the blocks, newest file first, so many at once that they fit in memory; yield them with their places."""
        for start in range(0, len(self._reads), _THREADS):
            some = self._reads[start : start + _THREADS]
            for (file, _, places), read in zip(some, self._lookup.at_once(_read, some), strict=True):
                for entry, data in read:
                    yield file, entry, data, places[entry.offset]


def _read(of: tuple[StateFile, list[IndexEntry], object]) -> list[tuple[IndexEntry, memoryview]]:
    file, blocks, _ = of
    return list(file.read_together(blocks))
