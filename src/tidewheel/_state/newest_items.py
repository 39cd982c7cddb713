"""Read a table from several state files: ascending by key, with the newest value of each key.

Files are read block by block. A small table is merged in memory, which is faster; memory use is bounded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import heappop, heappush, heapreplace

from tidewheel._state.key_run import KeyRun
from tidewheel._state.state_file import BLOCK_BYTES, READ_BYTES, Item, StateFile, Table

_SMALL_KEYS = 200_000
_SMALL_BYTES = 16 << 20
_AHEAD_BYTES = 32 << 20
"""How many bytes are read ahead, for all files together."""


def newest_items(
    files: Sequence[StateFile], shard: int, table: Table, twice: Callable[[bytes], Exception] | None = None
) -> Iterable[Item]:
    """Return the items of a table of a shard; the files are given oldest first. Deleted keys have the value None.

    If `twice` is given, no key may be in two files: it returns the error for such a key.
    """
    holding = [file for file in files if file.entries(shard, table)]
    entries = [entry for file in holding for entry in file.entries(shard, table)]
    if len(holding) == 1:
        return _items(holding[0], shard, table, READ_BYTES)
    if (
        twice is None
        and sum(entry.count for entry in entries) <= _SMALL_KEYS
        and sum(entry.raw_length for entry in entries) <= _SMALL_BYTES
    ):
        return _in_memory(holding, shard, table)
    return _streamed(holding, shard, table, twice)


def _items(file: StateFile, shard: int, table: Table, read_bytes: int) -> Iterator[Item]:
    return (item for block in file.blocks(shard, table, read_bytes) for item in block.items())


def _in_memory(files: Sequence[StateFile], shard: int, table: Table) -> KeyRun:
    held: dict[bytes, bytes | None] = {}
    for file in files:
        for block in file.blocks(shard, table):
            held.update(zip(block.keys, block.values, strict=True))
            held.update(dict.fromkeys(block.dropped))
    keys = sorted(held)
    return KeyRun(keys, list(map(held.__getitem__, keys)))


def _streamed(
    files: Sequence[StateFile], shard: int, table: Table, twice: Callable[[bytes], Exception] | None
) -> Iterator[Item]:
    read_bytes = max(BLOCK_BYTES, _AHEAD_BYTES // len(files))
    # A file is opened when its first key is reached: of a snapshot in many files, only one is open at a time.
    waiting = sorted(((file.entries(shard, table)[0].first_key, age) for age, file in enumerate(files)), reverse=True)
    # The newest comes first among equal keys, and all ages differ, so nothing else is compared.
    open_runs: list[tuple[bytes, int, bytes | None, Iterator[Item]]] = []
    last = b""  # Keys are never empty.
    while open_runs or waiting:
        while waiting and (not open_runs or waiting[-1][0] <= open_runs[0][0]):
            _, age = waiting.pop()
            run = _items(files[age], shard, table, read_bytes)
            key, value = next(run)
            heappush(open_runs, (key, -age, value, run))
        key, age, value, run = open_runs[0]
        if key != last:
            last = key
            yield key, value
        elif twice is not None:
            raise twice(key)
        following = next(run, None)
        if following is None:
            heappop(open_runs)
        else:
            heapreplace(open_runs, (following[0], age, following[1], run))
