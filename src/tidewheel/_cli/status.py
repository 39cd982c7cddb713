"""`tidewheel status`: show whether, where and since when a job runs, its progress and its lag."""

from __future__ import annotations

import datetime
from collections.abc import Mapping

from tidewheel._cli.echo import echo
from tidewheel._cli.stored import DEFAULT_STATE, AsJson, CellsUrl, JobName, State, shown, size, when
from tidewheel._engine.job_status import JobStatus, find, look
from tidewheel._storage import open_store

_ENDED = {
    "stopped": "it was stopped, or came to its end",
    "killed": "its last run did not record its end; was it killed?",
    "failed": "it failed",
}
_SHOWN = 3
"""The maximum number of clock inputs to name, because there may be many partitions."""
_STARTING = {
    "stopped": "it was stopped",
    "killed": "it was killed while it was starting",
    "failed": "it failed while it was starting",
}


def status(job: JobName, state: State = DEFAULT_STATE, cells: CellsUrl = None, as_json: AsJson = False) -> None:
    """Show whether, where and since when a job runs, its progress and its lag.

    A run on another machine must show a sign of life, for which the command waits up to 17 seconds.

    For example:

        tidewheel status clicks --state s3://bucket/state

        tidewheel status clicks --state s3://bucket/state --json
    """
    seen = look(*find(open_store(state), job, cells))
    echo(shown(seen) if as_json else "\n".join(lines(seen)))


def lines(status: JobStatus) -> list[str]:
    """Return a status as lines of text."""
    text = [f"{status.job}: {_life(status)}"]
    if status.sequence is None or status.committed_at is None or status.age_seconds is None:
        return [*text, "last commit: none yet", *_error(status)]
    text += [
        f"last commit: {status.sequence}, at {when(status.committed_at)} UTC, {duration(status.age_seconds)} ago; "
        f"{status.events:,} events so far, {'1 task' if status.parallelism == 1 else f'{status.parallelism} tasks'}",
        f"state: {size(status.state_bytes)}, the files of the last commit",
    ]
    if status.ran_in is not None:
        text.append(f"last batch: ran in {status.ran_in}")
    text += [
        f"table {name}: version {table['version']}, {table['rows']:,} rows, loaded at {when(table['loaded_at'])} UTC"
        for name, table in status.tables.items()
    ]
    if status.final_commit is not None:
        text.append(
            f"ended for good: a bounded run closed all windows with commit {status.final_commit}, and no run can add data"
        )
    waiting = [
        f"{number:,} {unit}"
        for number, unit in ((status.rows_waiting, "rows"), (status.files_waiting, "files"))
        if number is not None
    ]
    if status.running and not waiting:
        text.append("behind: –")
    if waiting:
        oldest = status.waiting_seconds
        since = f", the oldest for {duration(oldest)}" if oldest else ""
        text.append(f"behind: {', '.join(waiting)} not read yet{since}")
    if status.epoch is not None and status.behind_seconds is not None:
        text.append(
            f"clock of the data: {when(status.epoch)} UTC, {duration(abs(status.behind_seconds))} "
            f"{'behind' if status.behind_seconds >= 0 else 'ahead of'} the time of day"
        )
    return text + _clock_inputs(status) + _held_back(status) + _error(status)


def _held_back(status: JobStatus) -> list[str]:
    """Return a line for each source that waits for another.

    >>> _held_back(JobStatus("a", True, held_back={"live": (7260.0, "archive"), "other": (None, "archive")}))
    ['held back: live, 2:01:00 ahead of archive', 'held back: other, until archive has a timestamp']
    """
    return [
        f"held back: {name}, " + (f"until {by} has a timestamp" if lead is None else f"{duration(lead)} ahead of {by}")
        for name, (lead, by) in status.held_back.items()
    ]


def _clock_inputs(status: JobStatus) -> list[str]:
    """Return the inputs that hold back the clock: those without a timestamp yet, or the one that is furthest behind."""
    inputs = _holding(status.clock_inputs, status.epoch)
    silent = sorted(name for name, time in inputs.items() if time is None)
    if silent and status.epoch is None:
        return [f"no timestamp yet at: {_some(silent)}; the clock of the data waits for it until it counts as idle"]
    text = [f"no timestamp yet at: {_some(silent)}"] if silent else []
    times = sorted((time, name) for name, time in inputs.items() if time is not None)
    if times and len(status.clock_inputs) > 1:
        named = _some([f"{name} {when(time)}" for time, name in times])
        text.append(f"inputs of the clock, the furthest behind first: {named}")
    return text


def _holding(inputs: Mapping[str, int | None], epoch: int | None) -> dict[str, int | None]:
    """Return the inputs that may hold back the clock.

    An input that is behind the clock or without data holds it back only if all others are ahead of it; otherwise it is
    idle.

    >>> _holding({"orders": 40, "refunds": None, "payments": 10}, 40)
    {'orders': 40}
    >>> _holding({"orders": 90, "refunds": None, "payments": 10}, 40)
    {'refunds': None, 'payments': 10}
    """
    ahead = {name: time for name, time in inputs.items() if epoch is None or (time is not None and time >= epoch)}
    if epoch is None or epoch in ahead.values() or not ahead:
        return ahead
    return {name: time for name, time in inputs.items() if name not in ahead}


def _some(texts: list[str]) -> str:
    """Return the first few texts of a list.

    >>> _some(["a", "b", "c", "d", "e"])
    'a, b, c and 2 more'
    """
    more = f" and {len(texts) - _SHOWN:,} more" if len(texts) > _SHOWN else ""
    return ", ".join(texts[:_SHOWN]) + more


def _life(status: JobStatus) -> str:
    since = f" since {when(status.since)} UTC" if status.since else ""
    where = f"on {status.host}, process {status.pid}{since}"
    if status.running:
        return f"runs {where}" if status.phase is None else f"is starting {where}, at: {status.phase}"
    if status.ended is None:
        return "does not run"
    if status.phase is not None:
        return f"does not run: {_STARTING[status.ended]} {where}, at: {status.phase}"
    return f"does not run: {_ENDED[status.ended]}"


def _error(status: JobStatus) -> list[str]:
    if status.error is None or status.error_at is None:
        return []
    whose = ", of an earlier run" if status.running and status.error_run != status.run else ""
    return [f"last error{whose}, at {when(status.error_at)} UTC: {status.error}"]


def duration(seconds: float) -> str:
    """Return a duration as text.

    >>> duration(0.25), duration(59.9), duration(3700)
    ('0.2 s', '59.9 s', '1:01:40')
    """
    return f"{seconds:.1f} s" if seconds < 60 else str(datetime.timedelta(seconds=round(seconds)))
