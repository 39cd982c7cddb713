"""Savepoints: named checkpoints that retention never deletes; and the selection of a checkpoint by users."""

from __future__ import annotations

import re

from tidewheel._checkpoint.manifest import Manifest
from tidewheel._checkpoint.pinning import hold_checkpoint
from tidewheel._checkpoint.pins import Pin, check_name
from tidewheel._checkpoint.store import CheckpointStore, StreamCheckpoints
from tidewheel._storage import Store
from tidewheel.errors import ConfigError, NotFound

At = int | str | None
"""A sequence, the name of a savepoint, or None for the newest."""

_SEQUENCE = re.compile(r"[0-9]{1,19}")


def at_of(text: str | None) -> At:
    """Return the sequence that a text is, or the name of a savepoint."""
    return int(text) if text is not None and _SEQUENCE.fullmatch(text) else text


def job_at(store: Store, job: str) -> StreamCheckpoints:
    """Return the checkpoints of a job; raise `NotFound`, with the existing jobs, if it has none."""
    checkpoints = StreamCheckpoints(store, job)
    if checkpoints.latest() is None:
        known = CheckpointStore(store).streams()
        nothing = (
            "no job has a checkpoint there. If the state of the job is elsewhere, pass its URL with --state (state=)"
        )
        there = f"the jobs there are {', '.join(map(repr, known))}" if known else nothing
        error = NotFound(
            f"there is no checkpoint of a job {job!r} at {store.url}: the job was not started there, or has no "
            f"commit yet; {there}"
        )
        error.job = job
        raise error
    return checkpoints


def find(checkpoints: StreamCheckpoints, at: At = None) -> Manifest:
    """Return a kept checkpoint by its sequence, a savepoint by its name, or the newest checkpoint."""
    if isinstance(at, int):
        return checkpoints.load(at)
    if at is not None:
        return _savepoint(checkpoints, at).state(checkpoints.load_page)
    newest = checkpoints.latest()
    if newest is None:
        raise NotFound(
            f"there is no checkpoint of {checkpoints.stream_id!r} at {checkpoints.folder.url}: the job was not started there, "
            "or has no commit yet"
        )
    return newest


def make_savepoint(checkpoints: StreamCheckpoints, name: str, at: int | None = None) -> Manifest:
    """Name a kept checkpoint, by default the newest; all that it needs is kept until the name is dropped."""
    if check_name(name).isdigit():
        raise ConfigError(f"a savepoint cannot be called {name!r}: a number means a sequence; put a letter in it")
    sequence = find(checkpoints).sequence if at is None else at
    return hold_checkpoint(checkpoints, sequence, name, "savepoint")


def savepoints(checkpoints: StreamCheckpoints) -> list[Pin]:
    """Return the savepoints of a job, sorted by name."""
    return [pin for pin in checkpoints.pins.all() if pin.kind == "savepoint"]


def drop_savepoint(checkpoints: StreamCheckpoints, name: str) -> None:
    """Delete a savepoint; the next collection deletes files that only it needed."""
    checkpoints.pins.drop(_savepoint(checkpoints, name).name)


def _savepoint(checkpoints: StreamCheckpoints, name: str) -> Pin:
    known = {pin.name: pin for pin in savepoints(checkpoints)}
    if name not in known:
        there = f"there are {', '.join(map(repr, known))}" if known else "there are none"
        raise NotFound(f"job {checkpoints.stream_id!r} has no savepoint {name!r}; {there}")
    return known[name]
