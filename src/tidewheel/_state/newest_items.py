"""Read a table from several state files: ascending by key, with the newest value of each key.

Files are read block by block. A small table is merged in memory, which is faster; memory use is bounded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import heappop, heappush, heapreplace
from itertools import chain

from tidewheel._state.key_run import KeyRun
from tidewheel._state.state_file import BLOCK_BYTES, READ_BYTES, IndexEntry, Item, StateFile, Table, adjacent

_SMALL_KEYS = 200_000
_SMALL_BYTES = 16 << 20
_AHEAD_BYTES = 32 << 20
"""How many bytes are read ahead, for all files together."""
_RANGE_BYTES = 256 << 10
"""How many bytes of a file are read at once for a range of keys, of which often only the first are needed."""


def newest_items(
    files: Sequence[StateFile], shard: int, table: Table, twice: Callable[[bytes], Exception] | None = None
) -> Iterable[Item]:
    """Return the items of a table of a shard; the files are given oldest first. Deleted keys have the value None.

    If `twice` is given, no key may be in two files: it returns the error for such a key.
    """
    holding = [file for file in files if file.entries(shard, table)]
    entries = [entry for file in holding for entry in file.entries(shard, table)]
    if len(holding) == 1:
        return Run(holding[0], entries).items(READ_BYTES)
    if (
        twice is None
        and sum(entry.count for entry in entries) <= _SMALL_KEYS
        and sum(entry.raw_length for entry in entries) <= _SMALL_BYTES
    ):
        return _in_memory(holding, shard, table)
    runs = [Run(file, file.entries(shard, table)) for file in holding]
    return _merged(runs, _read_bytes(runs), twice)


class Run:
    """Neighbouring blocks of a file."""

    def __init__(self, file: StateFile, entries: Sequence[IndexEntry]) -> None:
        self.file, self.entries = file, entries
        self._first: list[tuple[IndexEntry, memoryview]] = []

    def read_first(self) -> None:
        """Read the first block, which `items` then need not read."""
        self._first = list(self.file.read_together(self.entries[:1]))

    def items(self, read_bytes: int) -> Iterator[Item]:
        """Yield the items, and read up to `read_bytes` at once."""
        runs = adjacent(self.entries[len(self._first) :], read_bytes)
        rest = chain.from_iterable(map(self.file.read_together, runs))
        for entry, data in chain(self._first, rest):
            yield from self.file.decode(entry, data).items()


def runs_within(files: Sequence[StateFile], shard: int, table: Table, start: bytes, stop: bytes | None) -> list[Run]:
    """Return the blocks that may have keys with `start <= key < stop`, for `newest_within`."""
    runs = (Run(file, file.entries_within(shard, table, start, stop)) for file in files)
    return [run for run in runs if run.entries]


def newest_within(runs: Sequence[Run], start: bytes, stop: bytes | None) -> Iterator[Item]:
    """Yield the items with `start <= key < stop` as `newest_items` does; for a range, do not read many blocks ahead."""
    is_range = start or stop is not None
    for key, value in _merged(runs, _RANGE_BYTES if is_range else _read_bytes(runs)):
        if stop is not None and key >= stop:
            break
        if key >= start:
            yield key, value


def _read_bytes(runs: Sequence[Run]) -> int:
    """Return how much of each file to read at once if everything is read."""
    return max(BLOCK_BYTES, _AHEAD_BYTES // max(len(runs), 1))


def _in_memory(files: Sequence[StateFile], shard: int, table: Table) -> KeyRun:
    held: dict[bytes, bytes | None] = {}
    for file in files:
        for block in file.blocks(shard, table):
            held.update(zip(block.keys, block.values, strict=True))
            held.update(dict.fromkeys(block.dropped))
    keys = sorted(held)
    return KeyRun(keys, list(map(held.__getitem__, keys)))


def _merged(runs: Sequence[Run], read_bytes: int, twice: Callable[[bytes], Exception] | None = None) -> Iterator[Item]:
    # A file is read when its first key is reached: of a snapshot in many files, only one is read at a time.
    waiting = sorted(((run.entries[0].first_key, age) for age, run in enumerate(runs)), reverse=True)
    # The newest comes first among equal keys, and all ages differ, so nothing else is compared.
    open_runs: list[tuple[bytes, int, bytes | None, Iterator[Item]]] = []
    last = b""  # Keys are never empty.
    while open_runs or waiting:
        while waiting and (not open_runs or waiting[-1][0] <= open_runs[0][0]):
            _, age = waiting.pop()
            items = runs[age].items(read_bytes)
            key, value = next(items)
            heappush(open_runs, (key, -age, value, items))
        key, age, value, items = open_runs[0]
        if key != last:
            last = key
            yield key, value
        elif twice is not None:
            raise twice(key)
        following = next(items, None)
        if following is None:
            heappop(open_runs)
        else:
            heapreplace(open_runs, (following[0], age, following[1], items))
