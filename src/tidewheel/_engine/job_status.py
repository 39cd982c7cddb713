"""Whether a job runs, where, since when, how far it is and how late; and the order that ends it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Literal

import msgspec

from tidewheel._cells import open_cells
from tidewheel._checkpoint.manifest import Manifest
from tidewheel._checkpoint.transfer import JobPlace
from tidewheel._engine.control import cells_of, order_stop
from tidewheel._engine.job_lease import Holder, JobLease
from tidewheel._observe.backlog import backlog
from tidewheel._observe.history import History
from tidewheel._observe.records import ErrorRecord
from tidewheel._time.duration import MAX_TIME
from tidewheel.errors import StateError

_POLL_SECONDS = 0.2
_NOBODY = ""
"""The token of one who looks at a lease and does not want it."""


class JobStatus(msgspec.Struct, frozen=True):
    """A job as its lease and its newest commit show it. Times are ns since 1970."""

    job: str
    running: bool
    sequence: int
    """Of the newest commit."""
    committed_at: int
    age_seconds: float
    """How long ago that was."""
    events: int
    """Events of the sources in all commits together."""
    parallelism: int
    epoch: int | None
    """The clock of the data; None: there is none yet, or a bounded run has ended the job."""
    behind_seconds: float | None
    """How far that clock is behind the time of day."""
    state_bytes: int = 0
    """Of all files that the newest commit refers to."""
    run: str | None = None
    host: str | None = None
    pid: int | None = None
    since: int | None = None
    """When the run took the job."""
    rows_waiting: int | None = None
    """Rows that the sources hold and a running job has not read, as it saw last; None: that is not known."""
    files_waiting: int | None = None
    """The same for sources of files, whose rows nobody has counted."""
    waiting_seconds: float | None = None
    """For how long the oldest of it has waited."""
    error: str | None = None
    """The newest error in the history, if the job has committed no batch since."""
    error_at: int | None = None
    ended: Literal["stopped", "killed", "failed"] | None = None
    """How the last run ended: in order, without saying so, or with an error; None: it runs."""


def status_of(newest: Manifest, holder: Holder | None, now: int) -> JobStatus:
    """Return the status of a job with this newest commit, which somebody at work holds or nobody does. Pure."""
    epoch = None if newest.epoch == MAX_TIME else newest.epoch
    status = JobStatus(
        job=newest.id.stream_id,
        running=holder is not None,
        sequence=newest.sequence,
        committed_at=newest.id.created_at,
        age_seconds=(now - newest.id.created_at) / 1e9,
        events=newest.event_count,
        parallelism=newest.parallelism,
        epoch=epoch,
        behind_seconds=None if epoch is None else (now - epoch) / 1e9,
        state_bytes=sum(file.size for file in newest.files()),
    )
    if holder is None:
        return status
    return msgspec.structs.replace(status, run=holder.run, host=holder.host, pid=holder.pid, since=holder.since or None)


def look(place: JobPlace, newest: Manifest, clock: Callable[[], int] = time.time_ns) -> JobStatus:
    """Return the status of a job; for a holder on another machine this takes some seconds."""
    _check_single(newest)
    with open_cells(cells_of(place)) as connection:
        status = status_of(newest, JobLease(connection, _NOBODY).other(), clock())
    history = History(place.state)
    noted = None if status.run is None else history.lag(place.job, status.run)
    if noted is not None:
        rows, files, seconds = backlog(noted)
        status = msgspec.structs.replace(status, rows_waiting=rows, files_waiting=files, waiting_seconds=seconds)
    worked_at = newest.id.created_at if newest.kind == "batch" else None
    error = history.standing_error(place.job, worked_at)
    if error is not None:
        status = msgspec.structs.replace(status, error=error.text, error_at=error.at)
    return status if status.running else msgspec.structs.replace(status, ended=_ended(history, newest, error))


def _ended(history: History, newest: Manifest, error: ErrorRecord | None) -> Literal["stopped", "killed", "failed"]:
    if error is not None and not error.restarted:
        return "failed"
    return "stopped" if history.ended_in_order(newest.id.stream_id, newest.id.created_at) else "killed"


def stop(place: JobPlace, newest: Manifest, wait: float) -> tuple[Holder | None, bool]:
    """Tell the run that has the job to end in order; return who that is, None if nobody runs it, and whether it has ended.

    Wait up to so many seconds for the end.
    """
    _check_single(newest)
    with open_cells(cells_of(place)) as connection:
        lease = JobLease(connection, _NOBODY)
        holder = lease.other()
        if holder is None:
            return None, True
        order_stop(connection, holder.run)
        return holder, _has_ended(lease, holder, time.monotonic() + wait)


def _has_ended(lease: JobLease, holder: Holder, deadline: float) -> bool:
    while time.monotonic() < deadline:
        present = lease.other()
        if present is None or present.run != holder.run:
            return True
        time.sleep(_POLL_SECONDS)
    return False


def _check_single(newest: Manifest) -> None:
    if newest.fleet is not None:
        raise StateError(
            f"job {newest.id.stream_id!r} is run by a fleet; `tidewheel fleet status` shows its nodes, and `tidewheel fleet "
            "drain` ends one of them in order"
        )
