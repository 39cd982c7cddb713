"""Idle inputs in a job: time in which the run did not ask an input for data does not count."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tidewheel import Job, count, tumbling
from tidewheel._time.now import SKEW, batch_time
from tidewheel.sinks import collect
from tidewheel.sources import iterable
from tidewheel.testing import Clock, MemoryRun


class Jobs:
    """Runs of a job of two inputs, each idle after a minute; `slow` seconds pass while a batch is worked on."""

    def __init__(self, state: str) -> None:
        self.state, self.clock, self.slow = state, Clock(), 0
        self.out, self.late = collect(), collect()

    def run(self) -> MemoryRun:
        job = Job("idle", state=self.state, n_shards=4)
        sides = []
        for name in ("a", "b"):
            timed = job.source(name, iterable([]), type=dict).assign_timestamps(f"{name}-time", "at", unit="ns")
            sides.append(timed.limit_out_of_orderness(f"{name}-bound", "0 s"))
        a, b = sides
        both = a.union("both", b).inspect("work", lambda _: self.clock.advance(self.slow))
        both.key_by("by", "k").window("w", tumbling("10 ns"), n=count()).sink("out", self.out)
        a.late.union("lates", b.late).sink("late", self.late)
        return MemoryRun(job, clock=self.clock)

    def windows(self):
        return [(row["start"], row["n"]) for row in self.out.records]


def at(*times):
    return [{"k": "x", "at": time} for time in times]


@pytest.mark.parametrize("downtime", [1, 61, 86_400])
def test_an_input_was_not_idle_while_the_job_was_down(downtime):
    jobs = Jobs(f"memory:idle-down-{downtime}")
    with jobs.run() as run:
        run.batch({"a": at(1), "b": at(1)})
    jobs.clock.advance(downtime)
    with jobs.run() as run:
        run.batch({"a": at(95)})
        jobs.clock.advance(1)
        run.batch({"b": at(5, 15, 25)})
        jobs.clock.advance(1)
        run.batch({})
    assert jobs.late.records == []
    assert jobs.windows() == [(0, 3), (10, 1)]


def test_an_input_was_not_idle_while_a_batch_took_longer_than_its_limit():
    jobs = Jobs("memory:idle-slow")
    with jobs.run() as run:
        jobs.slow = 61
        run.batch({"a": at(1), "b": at(1)})
        jobs.slow = 0
        run.batch({"a": at(95)})
        run.batch({"b": at(5, 15)})
        run.batch({})
    assert jobs.late.records == []
    assert jobs.windows() == [(0, 3)]


def test_an_input_that_was_asked_for_longer_than_its_limit_is_idle():
    jobs = Jobs("memory:idle-asked")
    with jobs.run() as run:
        run.batch({"a": at(1), "b": at(1)})
        jobs.clock.advance(61)
        run.batch({"a": at(95)})
        run.batch({"b": at(5)})
    assert [row["at"] for row in jobs.late.records] == [5]
    assert jobs.windows() == [(0, 2)]


def test_the_time_of_a_batch_never_goes_back_and_never_stops_for_good():
    jobs = Jobs("memory:idle-clock")
    true = jobs.clock.now
    jobs.clock.now = true + SKEW
    with jobs.run() as run:
        run.batch({"a": at(1)})
        jobs.clock.now = true + 5
        run.batch({"a": at(1)})
        assert run.run.head.now == true + SKEW
        jobs.clock.now = true + SKEW + int(timedelta(days=365).total_seconds()) * 10**9
        run.batch({"a": at(1)})
        jobs.clock.now = true + 6
        run.batch({"a": at(1)})
        assert run.run.head.now == true + 6


def test_the_batch_time_is_the_clocks_or_a_little_ahead_of_it():
    for last in (0, 50, 100, 101, 100 + SKEW, 101 + SKEW, 10**18):
        assert 100 <= batch_time(100, last) <= 100 + SKEW
