"""The list of jobs: state, rate, lag and last error of each; and one job's overview, with its graph."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from tidewheel._cells.errors import Offline
from tidewheel._checkpoint.manifest import Manifest
from tidewheel._engine.job_status import ended, table_versions
from tidewheel._observe.backlog import Backlog, backlog
from tidewheel._observe.records import CommitRecord, ErrorRecord, RunRecord
from tidewheel._time.duration import MAX_TIME
from tidewheel._ui.site import Site, Standing
from tidewheel._ui.views.figures import at_work, hot_keys, is_quiet, rate, recent, step_figures
from tidewheel.errors import NotFound, StorageError, TidewheelError

SUMMARY_NS = 10 * 60 * 10**9
"""How much history before the newest commit the overview covers."""
_SPARK = 60
"""The number of newest commits in a job's small chart."""

_RUNNING = ("running", "perhaps", "fleet")
_OVER = ("stopped", "failed", "killed", "gone")


def jobs(site: Site) -> list[dict[str, Any]]:
    """Return a summary of every job. A job that cannot be read is shown with its error."""
    return [summary(site, name) for name in site.names()]


def summary(site: Site, name: str) -> dict[str, Any]:
    """Return the summary of one job."""
    try:
        job = site.job(name)
        head = job.head_if_any()
        standing = job.standing()
        records = newest_records(site, name)
        error = _last_error(site, name, head)
        state = _state(site, standing, head, error)
        last = records[-1] if records else None
        behind = _behind(site, name, standing, last if state == "fleet" else None)
    except TidewheelError as wrong:
        state = "unreachable" if is_passing(wrong) else "unreadable"
        return {"name": name, "state": state, "error": {"text": str(wrong), "at": None}}
    return {
        "name": name,
        "state": state,
        "phase": standing.lease.holder.phase if standing.lease.holder else None,
        "host": standing.holder.host if standing.holder else None,
        "pid": standing.holder.pid if standing.holder else None,
        "since": standing.holder.since / 1e9 if standing.holder and standing.holder.since else None,
        "sequence": head.sequence if head else last.sequence if last else None,
        "committed_at": _seconds(head.id.created_at if head else last.at if last else None),
        "events": head.event_count if head else last.events if last else 0,
        "parallelism": head.parallelism if head else None,
        "n_shards": head.n_shards if head else None,
        "rate": rate(records) if _is_working(state, records) else 0.0 if state in _RUNNING and records else None,
        "rows_behind": behind.rows,
        "files_behind": behind.files,
        "seconds_behind": behind.seconds,
        "clock": _seconds(None if head is None or head.epoch == MAX_TIME else head.epoch),
        "spark": [each.rows for each in records[-_SPARK:]],
        "error": None if error is None else _error_details(error, standing),
        "now": time.time(),
    }


def overview(site: Site, name: str) -> dict[str, Any]:
    """Return one job: the summary, and its graph with the figures of each step."""
    site.job(name)
    records = newest_records(site, name)
    run = newest_run(site, name)
    job_summary, head = summary(site, name), site.job(name).head_if_any()
    last = _commits_for_rates(job_summary["state"], records)
    return job_summary | {
        "state_bytes": None if head is None or head.fleet is not None else sum(file.size for file in head.files()),
        "steps": step_figures(run.steps if run else (), records, last),
        "window_seconds": (records[-1].at - records[0].at) / 1e9 if records else 0,
        "hot_keys": hot_keys(last),
        "rates_over": len(last),
        "worked_at": _seconds(last[-1].at) if last and job_summary["state"] in _OVER else None,
        "run": run.run if run else None,
        "version": run.version if run else None,
        "ran_in": (records[-1].ran_in or None) if records else None,
        "state_url": site.store.url,
        "tables": {} if head is None else table_versions(head),
    }


def is_passing(error: TidewheelError) -> bool:
    """Return whether an error only concerns access, so that the next attempt may succeed, and not the content."""
    return isinstance(error, StorageError | Offline) and not isinstance(error, NotFound)


def _state(site: Site, standing: Standing, head: Manifest | None, error: ErrorRecord | None) -> str:
    """Return the state of a job in one word."""
    lease = standing.lease
    if head is not None and head.fleet is not None:
        return "fleet"
    if lease.at_work:
        # Without a commit it can only be starting, even if its holder does not say so or has not shown activity yet.
        return standing.life if head is not None else "starting"
    if head is not None:
        return ended(site.history, head, lease, error)
    if lease.left is None:
        return "gone"
    return "failed" if lease.left.failed else "killed"


def newest_records(site: Site, name: str) -> list[CommitRecord]:
    """Return the commits of the last minutes before the newest one."""
    last = site.history.latest(name)
    return [] if last is None else site.history.records(name, since=last.at - SUMMARY_NS)


def newest_run(site: Site, name: str) -> RunRecord | None:
    """Return the newest run that recorded its graph."""
    runs: Sequence[RunRecord] = site.history.runs(name, since=time.time_ns())
    return runs[-1] if runs else None


def _commits_for_rates(state: str, records: Sequence[CommitRecord]) -> Sequence[CommitRecord]:
    """Return the commits for a job's rates: the latest or, for a finished job, those of its last active minute."""
    if state in _OVER:
        return recent(at_work(records))
    return recent(records) if _is_working(state, records) else []


def _is_working(state: str, records: Sequence[CommitRecord]) -> bool:
    """Return whether a job runs and had rows recently."""
    return state in _RUNNING and not is_quiet(records, time.time())


def _last_error(site: Site, name: str, head: Manifest | None) -> ErrorRecord | None:
    """Return the newest error, unless the job has committed a batch since."""
    worked_at = head.id.created_at if head is not None and head.kind == "batch" else None
    return site.history.standing_error(name, worked_at)


def _error_details(error: ErrorRecord, standing: Standing) -> dict[str, Any]:
    earlier = standing.holder is not None and standing.holder.run != error.run
    return {"text": error.text, "at": error.at / 1e9, "restarted": error.restarted, "earlier": earlier}


def _behind(site: Site, name: str, standing: Standing, of_fleet: CommitRecord | None) -> Backlog:
    """Return the backlog of a job's sources. The backlog of a stopped job is unknown, because more may have arrived."""
    if of_fleet is not None:
        return backlog(of_fleet)
    noted = None if standing.holder is None else site.history.lag(name, standing.holder.run)
    return Backlog() if noted is None else backlog(noted)


def _seconds(nanoseconds: int | None) -> float | None:
    return None if nanoseconds is None else nanoseconds / 1e9
