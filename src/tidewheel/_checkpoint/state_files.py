"""Opening the state files that a job's checkpoints refer to."""

from __future__ import annotations

from collections.abc import Callable

from tidewheel._checkpoint.names import path
from tidewheel._state.references import FileRef
from tidewheel._state.state_file import ReadRange, StateFile
from tidewheel._storage import Store

HELD_BYTES = 32 << 20
"""How many bytes of state files a task keeps while it brings its local copies up to date."""


def range_reader(store: Store, job: str) -> ReadRange:
    """Return what reads a range of a job's state file, by its name."""
    return lambda name, start, length: store.read_range(path(job, name), start, length)


def opener(store: Store, job: str) -> Callable[[FileRef], StateFile]:
    """Return what opens a job's state files, each once, reading only what is asked of them."""
    files: dict[str, StateFile] = {}
    read_range = range_reader(store, job)

    def fetch(ref: FileRef) -> StateFile:
        if ref.name not in files:
            files[ref.name] = StateFile(read_range, ref)
        return files[ref.name]

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
