"""Opening the state files that a job's checkpoints refer to."""

from __future__ import annotations

from collections.abc import Callable

from tidewheel.checkpoint.names import path
from tidewheel.state.files import StateFile
from tidewheel.state.refs import FileRef
from tidewheel.storage import Store


def opener(store: Store, job: str) -> Callable[[FileRef], StateFile]:
    """Return what opens a job's state files, each once, reading only what is asked of them."""
    opened: dict[str, StateFile] = {}

    def fetch(ref: FileRef) -> StateFile:
        if ref.name not in opened:
            opened[ref.name] = StateFile(
                lambda name, start, length: store.read_range(path(job, name), start, length), ref
            )
        return opened[ref.name]

    return fetch
