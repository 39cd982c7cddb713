"""Open the state files that a job's checkpoints refer to."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from tidewheel._checkpoint.names import path
from tidewheel._state.references import FileRef
from tidewheel._state.state_file import ReadRange, StateFile
from tidewheel._storage import Store
from tidewheel.errors import StorageError

HELD_BYTES = 32 << 20
"""How many bytes of state files a task caches while it updates its local copies."""

OPEN_BLOCKS = 100_000
"""The number of blocks whose indexes a reader of state caches: for about 3 GB of state, they take 30 MB."""


def range_reader(store: Store, job: str) -> ReadRange:
    """Return a function that reads a range of a job's state file, by its name."""
    return lambda name, start, length: store.read_range(path(job, name), start, length)


def opener(store: Store, job: str) -> Callable[[FileRef], StateFile]:
    """Return a function that opens a job's state files and reads only the requested parts.

    The most recently used files stay open, up to `OPEN_BLOCKS` blocks in total: an index is about a hundredth of its
    file.
    """
    files: dict[str, StateFile] = {}
    read_range = range_reader(store, job)
    lock = threading.Lock()
    held = 0

    def fetch(ref: FileRef) -> StateFile:
        nonlocal held
        file = files.get(ref.name) or StateFile(read_range, ref)
        with lock:
            # Move the file to the end, as the most recently used one.
            if files.pop(ref.name, None) is None:
                held += file.block_count
            files[ref.name] = file
            while held > OPEN_BLOCKS and len(files) > 1:
                held -= files.pop(next(iter(files))).block_count
        return file

    return fetch


def shard_by_shard_opener(store: Store, job: str, held_bytes: int = HELD_BYTES) -> Callable[[FileRef], StateFile]:
    """Return a function that opens a job's state files for readers that process one shard after the other.

    Whole files are read and cached up to `held_bytes`, because a delta contains all shards of a task. For other files
    only the index is cached, and each shard is read when it is needed, so that memory does not grow with the state.
    """
    whole: dict[str, StateFile] = {}
    by_range = opener(store, job)
    room = held_bytes

    def fetch(ref: FileRef) -> StateFile:
        nonlocal room
        if ref.name not in whole:
            # Nothing is evicted: all shards need the same files in the same order, so each file would be evicted before
            # its next use.
            if ref.size > room:
                return by_range(ref)
            room -= ref.size
            whole[ref.name] = StateFile.of(store.read(path(job, ref.name)), ref)
        return whole[ref.name]

    return fetch


def file_store(store: Store, job: str, names: Iterable[str]) -> Callable[[bytes, int], FileRef]:
    """Return a function that stores a state file under the next of the names, which must be unique."""
    coming = iter(names)

    def stored(data: bytes, checksum: int) -> FileRef:
        name = next(coming)
        if not store.create(path(job, name), data):
            raise StorageError(f"{name} at {store.url} holds other state; two files have one name")
        return FileRef(name, len(data), checksum)

    return stored
