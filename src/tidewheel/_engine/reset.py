"""Reset a job: list its stored data at the state URL, and remove it."""

from __future__ import annotations

import secrets
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec

from tidewheel._cells import open_cells
from tidewheel._cells.connection import Connection
from tidewheel._cells.job_place import CONFIGURATION
from tidewheel._checkpoint.job_place import JobPlace
from tidewheel._checkpoint.names import CELLS, CHAIN, folder
from tidewheel._checkpoint.pins import Pins
from tidewheel._checkpoint.store import CheckpointStore, StreamCheckpoints
from tidewheel._checkpoint.tools.fork import release
from tidewheel._checkpoint.tools.savepoint import savepoints
from tidewheel._engine.claimed_job import check_no_move
from tidewheel._engine.control import cells_of, forget_orders
from tidewheel._engine.job_lease import JobLease, LeaseWatch
from tidewheel._storage import Store, open_store
from tidewheel.errors import HeldError, StateError

_DELETERS = 8


class Holdings(msgspec.Struct, frozen=True):
    """The stored data of a job at its state URL."""

    job: str
    state: str
    sequence: int | None
    """The sequence of the newest checkpoint; None: the job has none."""
    events: int
    checkpoints: int
    savepoints: tuple[str, ...]
    files: int
    bytes: int


def holdings(store: Store, job: str) -> Holdings:
    """Return the stored data of a job at a state URL; refuse a job that other jobs depend on, or that a fleet runs."""
    checkpoints = StreamCheckpoints(store, job)
    newest = checkpoints.latest()
    if newest is not None and newest.fleet is not None:
        raise StateError(
            f"job {job!r} is run by a fleet, whose nodes have its shards; reset only works for a job that runs without a fleet"
        )
    check_no_move(store, job)
    _check_forks(store, job, checkpoints.pins)
    entries = store.list(folder(job))
    return Holdings(
        job,
        store.url,
        None if newest is None else newest.sequence,
        0 if newest is None else newest.event_count,
        checkpoints.count(),
        tuple(pin.name for pin in savepoints(checkpoints)),
        len(entries),
        sum(entry.size for entry in entries),
    )


def _check_forks(store: Store, job: str, pins: Pins) -> None:
    holders = {pin.holder for pin in pins.all() if pin.kind == "fork"}
    forks = sorted(holders & set(CheckpointStore(store).streams()))
    if forks:
        raise StateError(
            f"job {forks[0]!r} is a fork of job {job!r} and needs its files; reset that one first, or run it until "
            f"`tidewheel checkpoints release {forks[0]}` reports that it no longer needs them"
        )


def check_stopped(place: JobPlace) -> None:
    """Raise a `HeldError` if the job runs."""
    with open_cells(cells_of(place)) as connection:
        _check_free(connection, place.job)


def _check_free(connection: Connection, job: str) -> None:
    holder = LeaseWatch(connection).settled().worker
    if holder is not None:
        raise HeldError(f"job {job!r} runs: {holder.describe()} has it; end it with `tidewheel stop {job}` first")


def reset(place: JobPlace) -> None:
    """Remove a job's checkpoints and state, and empty its cells. `HeldError` if it runs.

    After a crash the job is either unchanged or cannot start; a second call completes the reset.
    """
    store = open_store(place.state)
    holdings(store, place.job)
    with open_cells(cells_of(place)) as connection:
        _check_free(connection, place.job)
        with JobLease(connection, secrets.token_hex(6)).held(place.job):
            _remove_files(store.at(folder(place.job)))
            _clear_cells(connection)
    release(store, place.job)


def _remove_files(job: Store) -> None:
    # Delete the chain after all files that it refers to, oldest record first. After a crash, its head still exists and a
    # start reports missing files; in another order, a start would continue from an older state.
    # The cells stay, because this process holds the lease.
    paths = [entry.path for entry in job.list() if not entry.path.startswith(f"{CELLS}/")]
    chain = [path for path in paths if path.startswith(f"{CHAIN}/")]
    with ThreadPoolExecutor(_DELETERS) as deleters:
        list(deleters.map(job.delete, set(paths) - set(chain)))
    for path in chain:
        job.delete(path)


def _clear_cells(connection: Connection) -> None:
    """Forget the cells that the program declares and the orders to the job. The lease stays: it is held."""
    forget_orders(connection)
    for name in connection.names(CONFIGURATION):
        connection.writer(name, Any, namespace=CONFIGURATION, type_name="").forget()
