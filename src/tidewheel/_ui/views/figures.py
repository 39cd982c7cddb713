"""Figures over several commits: rates, steps, and charts of bounded size."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tidewheel._observe.backlog import Backlog, backlog
from tidewheel._observe.records import ENOUGH_FOR_SHARES, Called, CommitRecord, StepRecord

PHASES = ("offsets", "read", "tasks", "commit", "publish")
RECENT_NS = 60 * 10**9
"""Rates cover the last minute before the newest commit."""
QUIET_SECONDS = 60.0
"""After this many seconds without rows, the rate is 0."""
_FEW = 5
_HOT = 0.1
"""Keys with more than this share of the messages are reported."""
_HOT_KEYS = 3
"""The maximum number of reported keys per `key_by`."""


def recent(records: Sequence[CommitRecord]) -> Sequence[CommitRecord]:
    """Return the commits of the last minute, but at least a few."""
    if not records:
        return []
    since = records[-1].at - RECENT_NS
    first = next(place for place, record in enumerate(records) if record.at >= since)
    return records[max(0, min(first, len(records) - _FEW)) :]


def at_work(records: Sequence[CommitRecord]) -> Sequence[CommitRecord]:
    """Return the commits up to the last one with rows: after that the job had nothing to do."""
    last = next((place for place in range(len(records), 0, -1) if records[place - 1].rows), 0)
    return records[:last]


def span_seconds(records: Sequence[CommitRecord]) -> float:
    """Return the time that commits cover: from the start of the first to the newest."""
    return 0.0 if not records else (records[-1].at - records[0].at) / 1e9 + records[0].seconds


def rate(records: Sequence[CommitRecord]) -> float | None:
    """Return rows per second over the last minute; None if unknown."""
    last = recent(records)
    seconds = span_seconds(last)
    return sum(record.rows for record in last) / seconds if seconds > 0 else None


def is_quiet(records: Sequence[CommitRecord], now: float) -> bool:
    """Return whether no batch has had rows for a while before `now`, in seconds since 1970.

    The times of commits are by the clock of the run's host. If that clock is ahead of the reader's, rates are shown
    longer, otherwise shorter, by the difference.
    """
    last = next((record.at for record in reversed(records) if record.rows), None)
    return last is None or now - last / 1e9 > QUIET_SECONDS


def step_figures(
    steps: Iterable[StepRecord], records: Sequence[CommitRecord], last: Sequence[CommitRecord]
) -> list[dict[str, Any]]:
    """Return each step with its figures: rates of the `last` commits, totals of all of them, keys as of the newest.

    Without `last` commits, as for a job that has had no rows for a while, rates are 0.
    """
    seconds = span_seconds(last)
    busy = {each.name: sum(record.busy.get(each.name, 0.0) for record in last) for each in steps}
    slowest = max(busy, key=lambda name: busy[name], default=None)
    # A step that shows as busy 0 % is not a bottleneck.
    if (slowest is not None and busy[slowest] < 0.005 * seconds) or not any(busy.values()):
        slowest = None
    stored = {name: held for record in records for name, held in record.stored.items()}
    rows = []
    for each in steps:
        name, held = each.name, stored.get(each.name)
        rows.append(
            {
                "name": name,
                "kind": each.kind,
                "level": each.level,
                "stateful": each.stateful,
                "inputs": [[source, port] for source, port in each.inputs],
                "in_rate": sum(record.rows_in.get(name, 0) for record in last) / seconds if seconds else 0.0,
                "out_rate": sum(record.rows_out.get(name, 0) for record in last) / seconds if seconds else 0.0,
                "busy": busy[name] / seconds if seconds else 0.0,
                "slowest": name == slowest,
                "keys": held.keys if held else None,
                "bytes": held.bytes if held else None,
                "late": sum(record.late.get(name, 0) for record in records),
                "dead": sum(record.dead.get(name, 0) for record in records),
                "dropped": sum(record.dropped.get(name, 0) for record in records),
                "failed": sum(record.failed.get(name, 0) for record in records),
                **_calls([record.called[name] for record in records if name in record.called]),
            }
        )
    return rows


def _calls(called: Sequence[Called]) -> dict[str, Any]:
    """Return how often a step called a service, and how long a call took on average; empty for steps without calls."""
    calls = sum(each.calls for each in called)
    if not called:
        return {}
    mean = sum(each.milliseconds for each in called) / calls if calls else 0.0
    return {"calls": calls, "call_failures": sum(each.failures for each in called), "call_ms": mean}


def hot_keys(last: Sequence[CommitRecord]) -> list[dict[str, Any]]:
    """Return the keys with a large share of the messages of the `last` commits, a few per `key_by`, the largest first."""
    shares: dict[tuple[str, str], float] = {}
    for record in last:
        for step, keys in record.hot.items():
            for key, share in keys.items():
                shares[step, key] = shares.get((step, key), 0.0) + share * record.rows_out.get(step, 0)
    counts: Counter[str] = Counter()
    found: list[dict[str, Any]] = []
    for (step, key), messages in sorted(shares.items(), key=lambda each: -each[1]):
        rows = (record.rows_out.get(step, 0) for record in last)
        total = sum(each for each in rows if each >= ENOUGH_FOR_SHARES)
        if total and messages > _HOT * total and counts[step] < _HOT_KEYS:
            counts[step] += 1
            found.append({"step": step, "key": key, "share": messages / total})
    return sorted(found, key=lambda each: -each["share"])


def bar(record: CommitRecord) -> dict[str, Any]:
    """Return one commit as a bar of the timeline."""
    known = {phase: record.phases.get(phase, 0.0) for phase in PHASES}
    return {
        "sequence": record.sequence,
        "at": record.at / 1e9,
        "kind": record.kind,
        "batch": record.batch,
        "node": record.node,
        "run": record.run,
        "seconds": record.seconds,
        "phases": known | {"other": max(0.0, record.seconds - sum(known.values()))},
        "rows": record.rows,
        "changed": sum(record.changed.values()),
        "tasks": record.tasks,
        "parallelism": record.parallelism,
        "delta_bytes": record.delta_bytes,
        "snapshot_bytes": record.snapshot_bytes,
        "dead": sum(record.dead.values()),
        "late": sum(record.late.values()),
    }


def charts(
    records: Sequence[CommitRecord], points: int, backlog_of: Callable[[CommitRecord], Backlog] = backlog
) -> dict[str, list[Any]]:
    """Return the history as columns of at most `points` points, each for an equal time span with a commit.

    Rows are per second over the span; seconds are the mean batch; the lag is the maximum.
    """
    columns: dict[str, list[Any]] = {
        name: []
        for name in (
            "at",
            "rate",
            "seconds",
            "rows_behind",
            "files_behind",
            "seconds_behind",
            "clock_behind",
            "commits",
        )
    }
    for group, width in _stretches(records, points):
        length = width or span_seconds(group)
        rows = 0
        took = 0.0
        behind: int | None = None
        files: int | None = None
        waited: float | None = None
        clock: float | None = None
        # Plain comparisons, because this runs for every commit of the history.
        for record in group:
            rows += record.rows
            took += record.seconds
            if record.behind:
                unread = backlog_of(record)
                if unread.rows is not None and (behind is None or unread.rows > behind):
                    behind = unread.rows
                if unread.files is not None and (files is None or unread.files > files):
                    files = unread.files
                if unread.seconds is not None and (waited is None or unread.seconds > waited):
                    waited = unread.seconds
            if record.epoch is not None:
                late = (record.at - record.epoch) / 1e9
                if clock is None or late > clock:
                    clock = late
        columns["at"].append(group[-1].at / 1e9)
        columns["rate"].append(rows / length if length > 0 else None)
        columns["seconds"].append(took / len(group))
        columns["rows_behind"].append(behind)
        columns["files_behind"].append(files)
        columns["seconds_behind"].append(waited)
        columns["clock_behind"].append(clock)
        columns["commits"].append(len(group))
    return columns


def _stretches(records: Sequence[CommitRecord], points: int) -> Iterable[tuple[list[CommitRecord], float]]:
    """Yield groups of commits, each with the seconds it covers; 0: its own."""
    if len(records) <= points:
        before: CommitRecord | None = None
        for record in records:
            yield [record], record.seconds if before is None else (record.at - before.at) / 1e9
            before = record
        return
    first = records[0].at
    width = max(1, -(-(records[-1].at - first + 1) // points))
    group: list[CommitRecord] = []
    for record in records:
        if group and (record.at - first) // width != (group[0].at - first) // width:
            yield group, width / 1e9
            group = []
        group.append(record)
    if group:
        yield group, width / 1e9
