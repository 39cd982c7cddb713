"""Opening the state files that a job's checkpoints refer to."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from tidewheel._checkpoint.names import path
from tidewheel._state.references import FileRef
from tidewheel._state.state_file import ReadRange, StateFile
from tidewheel._storage import Store
from tidewheel.errors import StorageError

HELD_BYTES = 32 << 20
"""How many bytes of state files a task keeps while it brings its local copies up to date."""

OPEN_BLOCKS = 100_000
"""How many blocks the files have whose indexes a reader of state keeps: they are of some 3 GB of state, and take 30 MB."""


def range_reader(store: Store, job: str) -> ReadRange:
    """Return what reads a range of a job's state file, by its name."""
    return lambda name, start, length: store.read_range(path(job, name), start, length)


def opener(store: Store, job: str, blocks: int = OPEN_BLOCKS) -> Callable[[FileRef], StateFile]:
    """Return what opens a job's state files, reading only what is asked of them.

    Those that were opened last stay open, as many as have so many blocks together: an index is about a hundredth of its file.
    """
    files: dict[str, StateFile] = {}
    read_range = range_reader(store, job)
    lock = threading.Lock()
    held = 0

    def fetch(ref: FileRef) -> StateFile:
        nonlocal held
        file = files.get(ref.name) or StateFile(read_range, ref)
        with lock:
            # The one that was used last is the last of them.
            if files.pop(ref.name, None) is None:
                held += file.block_count
            files[ref.name] = file
            while held > blocks and len(files) > 1:
                held -= files.pop(next(iter(files))).block_count
        return file

    return fetch


def shard_by_shard_opener(store: Store, job: str, held_bytes: int = HELD_BYTES) -> Callable[[FileRef], StateFile]:
    """Return what opens a job's state files for whoever reads one shard of them after the other.

    Files are read as a whole and kept, as far as `held_bytes` go: a delta holds all shards of a task. Of the others only the
    index is kept, and each shard is read when it is needed: memory does not grow with the state.
    """
    whole: dict[str, StateFile] = {}
    by_range = opener(store, job)
    room = held_bytes

    def fetch(ref: FileRef) -> StateFile:
        nonlocal room
        if ref.name not in whole:
            # Nothing is put out to make room: shards need the same files in the same order, and would find each gone.
            if ref.size > room:
                return by_range(ref)
            room -= ref.size
            whole[ref.name] = StateFile.of(store.read(path(job, ref.name)), ref)
        return whole[ref.name]

    return fetch


def file_store(store: Store, job: str, names: Iterable[str]) -> Callable[[bytes, int], FileRef]:
    """Return what makes the bytes of a state file durable, each under the next of the names, which nobody else gives."""
    coming = iter(names)

    def stored(data: bytes, checksum: int) -> FileRef:
        name = next(coming)
        if not store.create(path(job, name), data):
            raise StorageError(f"{name} at {store.url} holds other state; two files have one name")
        return FileRef(name, len(data), checksum)

    return stored
