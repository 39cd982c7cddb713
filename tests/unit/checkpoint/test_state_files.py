"""Opening state files: which parts are read, and how many files are kept."""

from __future__ import annotations

import os
from typing import Any

from support.internals import FileRef, open_store
from tidewheel._checkpoint.names import path
from tidewheel._checkpoint.state_files import shard_by_shard_opener
from tidewheel._state.state_file import StateFileWriter

SHARDS = 4


class Reads:
    """A store that notes what is read."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.whole: list[str] = []
        self.ranges: list[int] = []

    def read(self, name: str) -> bytes:
        self.whole.append(name)
        return self._store.read(name)

    def read_range(self, name: str, start: int, length: int) -> bytes:
        self.ranges.append(length)
        return self._store.read_range(name, start, length)


def stored(store: Any, name: str, size: int) -> FileRef:
    writer = StateFileWriter()
    for shard in range(SHARDS):
        writer.add(shard, "t", [(b"%04d" % key, os.urandom(1000)) for key in range(size // 1000 // SHARDS)])
    data, checksum = writer.finish()
    store.create(path("job", name), data)
    return FileRef(name, len(data), checksum)


def test_files_are_cached_while_there_is_room_and_then_read_by_shard():
    store = open_store("memory:state-files")
    small, large = stored(store, "small", 100_000), stored(store, "large", 2_000_000)
    reads = Reads(store)
    fetch = shard_by_shard_opener(reads, "job", held_bytes=500_000)
    for shard in range(SHARDS):
        for ref, keys in ((small, 25), (large, 500)):
            assert sum(len(block.keys) for block in fetch(ref).blocks(shard)) == keys
    assert reads.whole == [path("job", "small")]
    assert max(reads.ranges) < large.size / 2
    assert sum(reads.ranges) < large.size * 1.2


def test_a_file_that_is_kept_does_not_make_room_for_another():
    store = open_store("memory:state-files-room")
    refs = [stored(store, f"delta-{number}", 100_000) for number in range(4)]
    reads = Reads(store)
    fetch = shard_by_shard_opener(reads, "job", held_bytes=250_000)
    for shard in range(SHARDS):
        for ref in refs:
            assert sum(len(block.keys) for block in fetch(ref).blocks(shard)) == 25
    assert reads.whole == [path("job", "delta-0"), path("job", "delta-1")]
