"""counted and triggered: windows that messages end."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta

import pytest

from tidewheel import Job, agg, counted, sinks, sources, sum_, triggered, tumbling
from tidewheel.errors import GraphError
from tidewheel.sinks import collect
from tidewheel.testing import run_in_memory

_fresh = itertools.count()


def ran(windows, rows, batch=3, timed=True, dead=False, **fold):
    job = Job("windows", state=f"memory:message-windows-{next(_fresh)}")
    stream = job.source("in", lambda spark: None)
    if timed:
        stream = stream.event_time("at", unit="ns", max_delay="0 s", name="clock", max_ahead=None)
    stream.key_by("by", "key").window("w", windows, **fold).sink("out", collect())
    if dead:
        job.dead_letter("dead", sinks.collect())
    return run_in_memory(job, [{"in": rows[at : at + batch]} for at in range(0, len(rows), batch)])


def rows(*numbers, key="a"):
    return [{"key": key, "at": at, "n": n} for at, n in enumerate(numbers)]


LISTED = {"add": lambda kept, row: [*kept, row.n], "default": list}


def test_a_counted_window_is_emitted_when_it_is_complete():
    out = ran(counted(3), rows(*range(7)), **LISTED).outputs["out"]
    assert [(row["start"], row["end"], row["value"]) for row in out] == [
        (0, 2, [0, 1, 2]),
        (3, 5, [3, 4, 5]),
        (6, 6, [6]),
    ]


def test_aggregates_of_counted_windows():
    out = ran(counted(3), rows(*range(7)), total=sum_("n"), all=agg.collect("n", limit=9)).outputs["out"]
    assert [(row["start"], row["end"], row["total"], row["all"]) for row in out] == [
        (0, 2, 3, [0, 1, 2]),
        (3, 5, 12, [3, 4, 5]),
        (6, 6, 6, [6]),
    ]
    assert not any(row["correction"] for row in out)


@pytest.mark.parametrize("fold", [LISTED, {"value": agg.collect("n", limit=99)}], ids=["function", "aggregates"])
def test_overlapping_windows_have_the_last_messages(fold):
    out = ran(counted(4, every=3), rows(*range(9)), batch=2, **fold).outputs["out"]
    # The last window has what came after message 6.
    assert [row["value"] for row in out] == [[0], [0, 1, 2, 3], [3, 4, 5, 6], [6, 7, 8]]


@pytest.mark.parametrize("fold", [LISTED, {"value": agg.collect("n", limit=99)}], ids=["function", "aggregates"])
def test_a_stream_without_timestamps_gives_windows_without_times(fold):
    out = ran(counted(2), rows(1, 2, 3), timed=False, **fold).outputs["out"]
    assert [(row["start"], row["end"], row["value"]) for row in out] == [(None, None, [1, 2]), (None, None, [3])]


@pytest.mark.parametrize("fold", [LISTED, {"value": agg.collect("n", limit=99)}], ids=["function", "aggregates"])
def test_times_of_windows_are_datetimes_where_the_times_of_messages_are(fold):
    job = Job("windows", state=f"memory:message-windows-{next(_fresh)}")
    first = datetime(2026, 1, 1, tzinfo=UTC)
    at = [{"key": 1, "at": first + timedelta(hours=n), "n": n} for n in range(2)]
    timed = job.source("in", sources.iterable(at)).event_time("at", max_delay="0 s")
    timed.key_by("by", "key").window("w", counted(2), **fold).sink("out", collect())
    (row,) = run_in_memory(job).outputs["out"]
    assert (row["start"], row["end"]) == (first, first + timedelta(hours=1))


def test_complete_windows_leave_no_state():
    for fold in (LISTED, {"total": sum_("n")}):
        assert "w" not in ran(counted(2), rows(1, 2), **fold).states


def test_a_rejected_record_is_not_counted():
    result = ran(counted(2), rows(1, 2**63 - 1, 3, 4), batch=4, dead=True, total=sum_("n"), n=agg.collect("n", limit=9))
    assert [row["n"] for row in result.outputs["out"]] == [[1], [3, 4]]
    letters = result.outputs["dead"]
    assert len(letters) == 1


def test_a_trigger_ends_a_window():
    out = ran(triggered(lambda kept, row: sum(kept) >= 5), rows(2, 3, 9, 1, 1), **LISTED).outputs["out"]
    assert [row["value"] for row in out] == [[2, 3], [9], [1, 1]]


def test_a_timeout_ends_a_window():
    never = triggered(lambda kept, row: False, timeout="10 ns")
    records = [{"key": "a", "at": at, "n": at} for at in (0, 4, 9, 10, 15, 40)] + rows(7, key="b")
    for batch in (1, 2, 7):
        out = ran(never, records[:6], batch=batch, **LISTED).outputs["out"]
        assert [(row["start"], row["end"], row["value"]) for row in out] == [
            (0, 9, [0, 4, 9]),
            (10, 15, [10, 15]),
            (40, 40, [40]),
        ]


def test_the_clock_ends_a_window_whose_timeout_has_passed():
    job = Job("windows", state=f"memory:message-windows-{next(_fresh)}")
    timed = job.source("in", lambda spark: None).event_time("at", unit="ns", max_delay="0 s", name="clock")
    never = triggered(lambda kept, row: False, timeout="10 ns")
    timed.key_by("by", "key").window("w", never, **LISTED).sink("out", collect())
    batches = [{"in": [{"key": key, "at": at, "n": at}]} for key, at in (("a", 0), ("b", 50), ("b", 51))]
    result = run_in_memory(job, batches, flush=False)
    assert [(row["key"], row["value"]) for row in result.outputs["out"]] == [("a", [0])]


def test_results_keep_their_time_for_windows_behind_them():
    job = Job("windows", state=f"memory:message-windows-{next(_fresh)}")
    timed = job.source("in", lambda spark: None).event_time("at", unit="ns", max_delay="0 s", name="clock")
    pairs = timed.key_by("by", "key").window("pairs", counted(2), total=sum_("n"))
    pairs.window("tens", tumbling("10 ns"), total=sum_("total")).sink("out", collect())
    records = [{"key": "a", "at": at, "n": 1} for at in (1, 5, 8, 9, 12)]
    out = run_in_memory(job, [{"in": records}]).outputs["out"]
    assert [(row["start"], row["total"]) for row in out] == [(0, 4), (10, 1)]


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda s: s.window("w", counted(2), n=sum_("n"), early="batch"), "for windows of time"),
        (lambda s: s.window("w", counted(2), n=sum_("n"), allowed_lateness="1 s"), "for windows of time"),
        (lambda s: s.window("w", triggered(lambda kept, row: True), n=sum_("n")), "takes a function and not"),
        (lambda s: s.window("w", triggered(lambda row: True), **LISTED), "called with folded and value"),
        (lambda s: s.window("w", triggered(lambda a, b: 1, timeout="1 s"), **LISTED), "add event_time"),
        (lambda s: counted(0), "at least 1"),
        (lambda s: counted(2, every=3), "in no window"),
        (lambda s: triggered(5), "takes a function"),
    ],
)
def test_a_window_that_cannot_work_is_refused(make, text):
    stream = Job("j").source("in", sources.iterable([{"key": 1, "n": 1}])).key_by("by", "key")
    with pytest.raises(GraphError, match=text):
        make(stream)
