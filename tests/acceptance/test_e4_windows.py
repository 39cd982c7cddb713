"""E4: windows fire once, when the epoch passes their end, also on an idle stream; at the end of a bounded run all fire."""

from __future__ import annotations

import pytest

from tidewheel import count, session, sliding, sum_, tumbling
from tidewheel.sinks import collect
from tidewheel.testing import MemoryRun

EVENTS = [
    {"key": key, "time": time}
    for key, time in [("a", 1), ("b", 3), ("a", 12), ("a", 4), ("b", 14), ("a", 31), ("b", 2), ("a", 50)]
]


def windowed(source, windows, out, late_out, **options):
    timed = source.assign_timestamps("time", lambda event: event.time, unit="ns")
    on_time = timed.limit_out_of_orderness("bound", "10 ns")
    late = on_time.late
    late.sink("late", late_out)
    keyed = on_time.key_by("by", lambda event: event.key)
    keyed.window("w", windows, lambda n, event: n + 1, default=0, merge=lambda a, b: a + b, **options).sink("out", out)


def results(out):
    return sorted((r["key"], r["start"], r["end"], r["value"]) for r in out.records)


@pytest.mark.parametrize(
    ("windows", "expected"),
    [
        (
            tumbling("10 ns"),
            [("a", 0, 10, 2), ("a", 10, 20, 1), ("a", 30, 40, 1), ("a", 50, 60, 1), ("b", 0, 10, 1), ("b", 10, 20, 1)],
        ),
        (session("10 ns"), [("a", 1, 22, 3), ("a", 31, 41, 1), ("a", 50, 60, 1), ("b", 3, 13, 1), ("b", 14, 24, 1)]),
    ],
    ids=["tumbling", "session"],
)
def test_e4_each_window_fires_once_and_counts_add_up(runner, windows, expected):
    job, out, late_out = runner.job(), collect(), collect()
    windowed(runner.source(job, "in", EVENTS, batch=2), windows, out, late_out)
    runner.run(job)
    assert results(out) == expected
    # The event of b at 2 came after the epoch had passed it.
    assert len(late_out.records) == 1
    assert sum(r["value"] for r in out.records) + len(late_out.records) == len(EVENTS)
    assert not any(r["correction"] for r in out.records)


def test_e4_a_message_is_in_every_sliding_window_that_covers_it(memory_runner):
    job, out, late_out = memory_runner.job(), collect(), collect()
    windowed(memory_runner.source(job, "in", EVENTS, batch=2), sliding("20 ns", "10 ns"), out, late_out)
    memory_runner.run(job)
    assert sum(r["value"] for r in out.records) == 2 * (len(EVENTS) - len(late_out.records))


def test_e4_windows_fire_on_an_idle_stream_as_soon_as_the_epoch_is_known(memory_runner):
    job, out = memory_runner.job(), collect()
    windowed(job.source("in", lambda spark: None), tumbling("10 ns"), out, collect())
    with MemoryRun(job) as run:
        run.batch({"in": [{"key": "a", "time": 1}, {"key": "b", "time": 2}, {"key": "c", "time": 30}]})
        assert results(out) == []
        run.batch({})
        assert results(out) == [("a", 0, 10, 1), ("b", 0, 10, 1)]
        run.batch({})
        assert len(out.records) == 2
        run.flush()
        assert results(out)[2:] == [("c", 30, 40, 1)]


def test_e4_windows_close_on_a_silent_stream_whose_time_follows_the_clock(memory_runner):
    job, out, now = memory_runner.job(), collect(), [1000]
    timed = job.source("in", lambda spark: None).assign_timestamps("time", "time", unit="ns")
    on_time = timed.limit_out_of_orderness("bound", "0 s", advance_after="50 ns")
    on_time.key_by("by", "key").window("w", tumbling("10 ns"), n=count()).sink("out", out)
    with MemoryRun(job, clock=lambda: now[0]) as run:
        run.batch({"in": [{"key": "a", "time": 3}]})
        for now[0] in (1040, 1056, 1057):
            run.batch({})
            assert out.records == []
        # The window's last moment is 9, and the epoch that stood at 2 has gone on by 7; it goes out with the next batch.
        run.batch({})
        assert [(r["start"], r["n"]) for r in out.records] == [(0, 1)]


def test_e4_an_allowed_late_message_gives_a_marked_correction(memory_runner):
    job, out, late_out = memory_runner.job(), collect(), collect()
    source = job.source("in", lambda spark: None)
    timed = source.assign_timestamps("time", "time", unit="ns")
    on_time = timed.limit_out_of_orderness("bound", "0 s")
    late = on_time.late
    keyed = on_time.union("all", late).key_by("by", "key")
    windows = keyed.window("w", tumbling("10 ns"), allowed_lateness="20 ns", n=count(), total=sum_("amount"))
    windows.sink("out", out)
    windows.late.sink("late", late_out)

    def row(time, amount):
        return {"key": "a", "time": time, "amount": amount}

    with MemoryRun(job) as run:
        run.batch({"in": [row(1, 5), row(15, 1)]})
        run.batch({})
        run.batch({"in": [row(2, 6)]})
        assert [(r["start"], r["n"], r["total"], r["correction"]) for r in out.records] == [
            (0, 1, 5, False),
            (0, 2, 11, True),
        ]
        run.batch({"in": [row(29, 1)]})
        run.batch({})
        run.batch({"in": [row(9, 100)]})
        run.batch({"in": [row(60, 1)]})
        run.batch({})
        run.batch({"in": [row(9, 7)]})
        run.flush()
    last = {r["start"]: (r["n"], r["total"]) for r in out.records}
    assert last[0] == (3, 111)
    assert [r["amount"] for r in late_out.records] == [7]
