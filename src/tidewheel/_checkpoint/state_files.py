"""Opening the state files that a job's checkpoints refer to."""

from __future__ import annotations

from collections.abc import Callable

from tidewheel._checkpoint.names import path
from tidewheel._state.references import FileRef
from tidewheel._state.state_file import StateFile
from tidewheel._storage import Store

LOOK_UP_TAIL = 3 * 1024
"""How much of a file's end to read first for a single key: the index of most deltas is smaller."""


def opener(store: Store, job: str, tail_bytes: int = 64 * 1024) -> Callable[[FileRef], StateFile]:
    """Return what opens a job's state files, each once, reading only what is asked of them."""
    opened: dict[str, StateFile] = {}

    def fetch(ref: FileRef) -> StateFile:
        if ref.name not in opened:
            opened[ref.name] = StateFile(
                lambda name, start, length: store.read_range(path(job, name), start, length), ref, tail_bytes
            )
        return opened[ref.name]

    return fetch


def whole_opener(store: Store, job: str) -> Callable[[FileRef], StateFile]:
    """Return what opens a job's state files, each once and read as a whole: for whoever needs most of them."""
    opened: dict[str, StateFile] = {}

    def fetch(ref: FileRef) -> StateFile:
        if ref.name not in opened:
            opened[ref.name] = StateFile.of(store.read(path(job, ref.name)), ref)
        return opened[ref.name]

    return fetch
