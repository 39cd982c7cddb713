"""Claim a stopped job without its program, to change all of its state."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tidewheel._cells import open_cells
from tidewheel._checkpoint.job_place import JobPlace
from tidewheel._checkpoint.manifest import Manifest
from tidewheel._checkpoint.names import folder
from tidewheel._checkpoint.store import StreamCheckpoints
from tidewheel._checkpoint.tools.savepoint import job_at
from tidewheel._engine.claim import claim
from tidewheel._engine.control import cells_of
from tidewheel._engine.job_lease import JobLease
from tidewheel._storage import Store, open_store
from tidewheel.errors import StateError


@dataclass(frozen=True)
class ClaimedJob:
    """A job that this process has claimed."""

    store: Store
    checkpoints: StreamCheckpoints
    head: Manifest
    run: str


@contextmanager
def claimed_job(place: JobPlace) -> Iterator[ClaimedJob]:
    """Claim an existing job; raise `HeldError` if a run has it."""
    store = open_store(place.state)
    checkpoints = job_at(store, place.job)
    newest = checkpoints.latest()
    assert newest is not None, "an existing job has a commit"
    check_no_move(store, place.job)
    token = secrets.token_hex(6)
    with open_cells(cells_of(place)) as connection:
        lease = JobLease(connection, token)
        with lease.held(place.job):
            yield ClaimedJob(store, checkpoints, claim(checkpoints, lease, token, newest), token)


def check_no_move(store: Store, job: str) -> None:
    """Refuse a job with keys on their way to or from another job: earlier versions could move them, and this one cannot."""
    for entry in store.list(f"{folder(job)}/transfers"):
        raise StateError(
            f"{entry.path} at {store.url} belongs to an interrupted move of keys between two jobs, which this version cannot "
            "finish. Finish it with the version that began it (`tidewheel state move … --finish`), or delete the file if you "
            "know of no such move"
        )
