"""Whether a job runs, where, since when, how far it is and how late; and the order that ends it.

A job that is started for the first time has no commit for a while: its lease tells of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from math import inf
from typing import Literal

import msgspec

from tidewheel._cells import open_cells
from tidewheel._checkpoint.job_place import JobPlace
from tidewheel._checkpoint.manifest import Manifest
from tidewheel._checkpoint.store import StreamCheckpoints
from tidewheel._checkpoint.tools.savepoint import job_at
from tidewheel._engine.control import cells_of, order_stop
from tidewheel._engine.declaration import declaration, place_of_job
from tidewheel._engine.job_lease import Holder, LeaseState, LeaseWatch
from tidewheel._observe.backlog import backlog
from tidewheel._observe.history import History
from tidewheel._observe.records import ErrorRecord, LagRecord
from tidewheel._storage import Store, open_store
from tidewheel._time.duration import MAX_TIME
from tidewheel.errors import StateError, TidewheelError

_POLL_SECONDS = 0.2


class JobStatus(msgspec.Struct, frozen=True):
    """A job as its lease and its newest commit show it. Times are ns since 1970."""

    job: str
    running: bool
    """Whether a run has the job, one that is still starting too."""
    sequence: int | None = None
    """The number of the newest commit; None: nothing is committed yet."""
    committed_at: int | None = None
    age_seconds: float | None = None
    """The age of the newest commit, in seconds."""
    events: int = 0
    """Events of the sources in all commits together."""
    parallelism: int | None = None
    epoch: int | None = None
    """The clock of the data; None: there is none yet, or a bounded run has ended the job."""
    behind_seconds: float | None = None
    """How far that clock is behind the time of day."""
    clock_inputs: dict[str, int | None] = {}
    """How far each input of that clock has come, by the step and its partition; None: it has given no timestamp yet. Inputs that
    have ended are not there."""
    state_bytes: int = 0
    """The size of all files that the newest commit refers to."""
    run: str | None = None
    """The run that has the job. For a job that is not running: the last run, if it is known that it did not end in order."""
    host: str | None = None
    pid: int | None = None
    since: int | None = None
    """When the run took the job."""
    phase: str | None = None
    """The phase of the run's start, also if it ended there; None: the start is over."""
    rows_waiting: int | None = None
    """Rows in the sources that a running job has not read, as of its last look; None: unknown."""
    files_waiting: int | None = None
    """The same for files, whose rows are not counted."""
    waiting_seconds: float | None = None
    """How long the oldest unread data has waited, in seconds."""
    error: str | None = None
    """The newest error in the history, if the job has committed no batch since."""
    error_at: int | None = None
    error_run: str | None = None
    """The run that had this error; if the job runs, it may be an earlier run."""
    ended: Literal["stopped", "killed", "failed"] | None = None
    """The end of the last run: in order, killed, or with an error; None: it runs."""
    held_back: dict[str, tuple[float | None, str]] = {}
    """The sources of a running job that wait, because they are further ahead in event time than `align` allows: by how many
    seconds, and of which source; None: that one has no timestamp yet."""
    tables: dict[str, dict[str, int]] = {}
    """The `version` of each reference table, its `rows`, and when it was read from its source (`loaded_at`)."""
    final_commit: int | None = None
    """The commit with which a bounded run has ended the job for good: no run can add data. None: the job is open."""
    ran_in: str | None = None
    """Where the tasks of the newest batch in the history ran, and whether messages were shuffled; None: that is not known."""


def status_of(newest: Manifest, lease: LeaseState, now: int) -> JobStatus:
    """Return the status of a job with this newest commit and this lease. Pure."""
    epoch = None if newest.epoch == MAX_TIME else newest.epoch
    status = JobStatus(
        job=newest.id.stream_id,
        running=lease.at_work,
        sequence=newest.sequence,
        committed_at=newest.id.created_at,
        age_seconds=(now - newest.id.created_at) / 1e9,
        events=newest.event_count,
        parallelism=newest.parallelism,
        epoch=epoch,
        behind_seconds=None if epoch is None else (now - epoch) / 1e9,
        clock_inputs={name: each.time for name, each in newest.frontiers.items() if each.time != MAX_TIME},
        state_bytes=sum(file.size for file in newest.files()),
        tables=table_versions(newest),
        final_commit=newest.flushed,
    )
    return _with_holder(status, lease.holder)


def table_versions(state: Manifest) -> dict[str, dict[str, int]]:
    """Return version, rows and time of the reference tables of a commit."""
    return {
        name: {"version": table.version, "rows": table.rows, "loaded_at": table.loaded_at}
        for name, table in sorted(state.tables.items())
    }


def _with_holder(status: JobStatus, holder: Holder | None) -> JobStatus:
    if holder is None:
        return status
    return msgspec.structs.replace(
        status, run=holder.run, host=holder.host, pid=holder.pid, since=holder.since or None, phase=holder.phase
    )


def find(store: Store, job: str, cells: str | None = None) -> tuple[JobPlace, Manifest | None]:
    """Return the place of a job and its cells, and its newest commit; None if its first start has not committed anything.

    Raise `NotFound` if no job of that name was ever started. `cells` replaces the address of the cells in the program.
    """
    newest = StreamCheckpoints(store, job).latest()
    place = place_of_job(store, job, cells)
    if newest is None:
        with open_cells(cells_of(place)) as connection:
            if LeaseWatch(connection).look().holder is None:
                # It raises, and says what is there, unless a commit was made meanwhile.
                return place, job_at(store, job).head
    return place, newest


def without_commit(store: Store, job: str) -> str | None:
    """Describe a job without a commit, for an error message; None if it was never started. Returns immediately."""
    try:
        with open_cells(cells_of(place_of_job(store, job))) as connection:
            holder, at_work, certain = LeaseWatch(connection).look()
    except TidewheelError:
        return None  # Where its cells are is not known here, or they do not answer.
    if holder is None:
        return None
    where = f"on {holder.host}, process {holder.pid}"
    since = f" since {datetime.fromtimestamp(holder.since / 1e9, UTC):%Y-%m-%d %H:%M:%S} UTC" if holder.since else ""
    at = f" (at: {holder.phase})" if holder.phase else ""
    if at_work:
        perhaps = "" if certain else ", unless it was killed"
        return (
            f"job {job!r} is starting {where}{since}{at}{perhaps}, and nothing is committed yet; ask again when its start is "
            "over: `tidewheel status` tells"
        )
    how = "failed" if holder.failed else "was killed"
    return f"job {job!r} {how} while it was starting {where}{since}{at}, and nothing is committed; start it again"


def look(place: JobPlace, newest: Manifest | None, clock: Callable[[], int] = time.time_ns) -> JobStatus:
    """Return the status of a job, which may have no commit yet; for a holder on another machine this takes some seconds."""
    _check_single(newest)
    with open_cells(cells_of(place)) as connection:
        lease = LeaseWatch(connection).settled()
    history = History(place.state, listed_for=inf)  # One look: one listing.
    if newest is None:
        return _look_at_first_start(place.job, lease, history)
    latest = history.latest(place.job)
    status = msgspec.structs.replace(
        status_of(newest, lease, clock()), ran_in=None if latest is None else latest.ran_in or None
    )
    noted = history.lag(place.job, status.run) if status.running and status.run is not None else None
    if noted is not None:
        rows, files, seconds = backlog(noted)
        held = _held_back(place, newest, noted)
        status = msgspec.structs.replace(
            status, rows_waiting=rows, files_waiting=files, waiting_seconds=seconds, held_back=held
        )
    worked_at = newest.id.created_at if newest.kind == "batch" else None
    error = history.standing_error(place.job, worked_at)
    if error is not None:
        status = msgspec.structs.replace(status, error=error.text, error_at=error.at, error_run=error.run)
    return status if status.running else msgspec.structs.replace(status, ended=ended(history, newest, lease, error))


def _held_back(place: JobPlace, newest: Manifest, noted: LagRecord) -> dict[str, tuple[float | None, str]]:
    """Return the sources that wait for others, given which of them have unread data."""
    declared = declaration(open_store(place.state), place.job)
    if declared is None or declared.align is None:
        return {}
    parts = ((name, each) for name, partitions in noted.behind.items() for each in partitions.values())
    waiting = {name for name, each in parts if each.rows or each.files}
    ahead = declared.align.held_back(newest, waiting)
    return {name: (None if lead is None else lead / 1e9, by) for name, (lead, by) in ahead.items()}


def _look_at_first_start(job: str, lease: LeaseState, history: History) -> JobStatus:
    status = _with_holder(JobStatus(job, lease.at_work), lease.holder)
    if status.running:
        return status
    if lease.left is None or not lease.left.failed:
        return msgspec.structs.replace(status, ended="stopped" if lease.left is None else "killed")
    errors = [error for error in history.errors(job) if error.run == lease.left.run]
    error = errors[-1] if errors else None
    if error is not None:
        status = msgspec.structs.replace(status, error=error.text, error_at=error.at, error_run=error.run)
    return msgspec.structs.replace(status, ended="failed")


def ended(
    history: History, newest: Manifest, lease: LeaseState, error: ErrorRecord | None
) -> Literal["stopped", "killed", "failed"]:
    """Return how the last run ended, for a job that has commits and is not running. `error` is its newest error."""
    if (error is not None and not error.restarted) or (lease.left is not None and lease.left.failed):
        return "failed"
    # What stands in the lease is of the last run, whether that has kept a history or not, and has come to a commit or not.
    run = newest.run if lease.left is None else lease.left.run
    noted = history.run_that_was(newest.id.stream_id, run, newest.id.created_at)
    if noted is None:
        return "stopped" if lease.left is None else "killed"
    return "stopped" if noted.ended is not None else "killed"


def stop(place: JobPlace, newest: Manifest | None, wait: float) -> tuple[Holder | None, bool]:
    """Order the run that has the job to stop. Return the run (None: the job is not running), and whether it has ended.

    Wait up to so many seconds for the end.
    """
    _check_single(newest)
    with open_cells(cells_of(place)) as connection:
        watch = LeaseWatch(connection)
        holder = watch.settled().worker
        if holder is None:
            return None, True
        order_stop(connection, holder.run)
        return holder, _has_ended(watch, holder, time.monotonic() + wait)


def _has_ended(watch: LeaseWatch, holder: Holder, deadline: float) -> bool:
    while time.monotonic() < deadline:
        present = watch.settled().worker
        if present is None or present.run != holder.run:
            return True
        time.sleep(_POLL_SECONDS)
    return False


def _check_single(newest: Manifest | None) -> None:
    if newest is not None and newest.fleet is not None:
        raise StateError(
            f"job {newest.id.stream_id!r} is run by a fleet; `tidewheel fleet status` shows its nodes, and `tidewheel fleet "
            "drain` ends one of them in order"
        )
