"""E2: a message with a timestamp at or below the last epoch goes to the late stream; none is dropped silently."""

from __future__ import annotations

from tidewheel import count, tumbling
from tidewheel.sinks import collect


def test_e2_messages_up_to_the_last_epoch_go_to_the_late_stream(runner):
    job, out, late_out = runner.job(), collect(), collect()
    source = runner.source(job, "in", [10, 7, 8, 9, 6, 20, 11], batch=2)
    # Up to 2 behind the latest is on time, so after 10 the epoch is 7.
    on_time = source.assign_timestamps("time", lambda time: time, unit="ns").limit_out_of_orderness("bound", "2 ns")
    late = on_time.late
    on_time.sink("out", out)
    late.sink("late", late_out)
    runner.run(job)
    # 7 came with 10, before its epoch.
    assert [record["value"] for record in out.records] == [10, 7, 8, 9, 20]
    assert [record["value"] for record in late_out.records] == [6, 11]


def test_e2_late_messages_without_a_reader_are_counted(memory_runner):
    from tidewheel.testing import MemoryRun

    job = memory_runner.job()
    source = job.source("in", lambda spark: None)
    on_time = source.assign_timestamps("time", "t", unit="ns").limit_out_of_orderness("bound", "0 s")
    on_time.sink("out", collect())
    with MemoryRun(job) as run:
        run.batch({"in": [{"t": 10}]})
        run.batch({"in": [{"t": 9}, {"t": 10}, {"t": 3}]})
        assert run.run.head.counts["bound/late"] == 2
        assert run.run.head.counts["out"] == 2


def test_e2_a_message_too_late_for_a_window_is_in_its_late_stream(memory_runner):
    job, out, late_out = memory_runner.job(), collect(), collect()
    source = memory_runner.source(job, "in", [5, 35, 5, 6, 15], batch=1)
    on_time = source.assign_timestamps("time", lambda time: time, unit="ns").limit_out_of_orderness("bound", "0 s")
    late = on_time.late
    windows = on_time.union("all", late).key_by("one", lambda value: "k").window("w", tumbling("10 ns"), n=count())
    windows.sink("out", out)
    windows.late.sink("late", late_out)
    memory_runner.run(job)
    # The first 5 that is late arrives with the epoch that ends its window, and is still taken in.
    assert [(r["start"], r["n"], r["correction"]) for r in out.records] == [(0, 2, False), (30, 1, False)]
    assert [record["value"] for record in late_out.records] == [6, 15]
