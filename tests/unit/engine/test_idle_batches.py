"""An idle job that waits for time commits nothing when nothing changed."""

from __future__ import annotations

import pytest

from support.internals import faults
from tidewheel import Job, Message, Output, StatefulLogic, Timer, count, tumbling
from tidewheel.errors import FencedError
from tidewheel.fleet._nodes.run import FleetRun
from tidewheel.sinks import collect
from tidewheel.sources import iterable
from tidewheel.testing import Clock, MemoryRun

SECOND = 10**9


class Alarm(StatefulLogic[int]):
    """Emits a minute of the wall clock after a key's message."""

    def on_data(self, message: Message, state: int, output: Output) -> int:
        output.set_timer(output.now + 60 * SECOND, clock="wall")
        return state + 1

    def on_timer(self, timer: Timer, state: int, output: Output) -> None:
        output.emit({"start": "alarm", "n": state})


class Idle:
    """Runs of a job with windows, an input `b` beside the one that gives data, and an alarm of the wall clock."""

    def __init__(self, state: str, windows: str = "10 ns", **bound) -> None:
        self.state, self.bound, self.clock, self.out = state, bound, Clock(), collect()
        self.windows = tumbling(windows)

    def job(self) -> Job:
        job = Job("idle", state=self.state, n_shards=4)
        sides = []
        for name in ("a", "b"):
            timed = job.source(name, iterable([]), type=dict).assign_timestamps(f"{name}-time", "at", unit="ns")
            sides.append(timed.limit_out_of_orderness(f"{name}-bound", "0 s", **self.bound))
        keyed = sides[0].union("both", sides[1]).key_by("by", "k")
        windows = keyed.window("w", self.windows, n=count())
        windows.map("plain", lambda row: {"start": str(row.start), "n": row.n}).sink("out", self.out)
        keyed.stateful_op("alarm", Alarm(), default=0).sink("alarms", self.out)
        self.limit = job.cell("limit", int, default=1)
        return job

    def run(self, **options) -> MemoryRun:
        return MemoryRun(self.job(), clock=self.clock, **options)

    def ticks(self, run: MemoryRun, number: int, seconds: int = 1) -> list[int]:
        """Run a batch each second, or every so many; return the sequences that were committed."""
        before = set(run.run.checkpoints.sequences())
        for _ in range(number):
            self.clock.advance(seconds)
            run.batch({})
        return sorted(set(run.run.checkpoints.sequences()) - before)

    def rows(self):
        return [(row["start"], row["n"]) for row in self.out.records]


def at(*times):
    return [{"k": "x", "at": time} for time in times]


@pytest.fixture(autouse=True)
def disarmed():
    yield
    faults.arm("")


def test_unchanged_batches_are_not_committed_and_later_ones_are():
    idle = Idle("memory:idle-plain", idle_after=None)
    with idle.run() as run:
        run.batch({"a": at(1), "b": at(1)})
        # The epoch that follows from the data goes out with the first tick. It says something new.
        assert len(idle.ticks(run, 1)) == 1
        sequence, batch = run.run.head.sequence, run.run.head.batch
        assert idle.ticks(run, 30) == []
        assert (run.run.head.sequence, run.run.head.batch) == (sequence, batch + 30)
        run.batch({"a": at(15), "b": at(12)})
        assert run.run.head.sequence == sequence + 1
        assert len(idle.ticks(run, 5)) == 1, "the window is out; then there is nothing to say"
    assert idle.rows() == [("0", 2)]


def test_results_of_wall_clock_timers_are_committed():
    idle = Idle("memory:idle-wall", idle_after=None)
    with idle.run() as run:
        run.batch({"a": at(1), "b": at(1)})
        idle.ticks(run, 1)
        assert idle.ticks(run, 58) == []
        assert len(idle.ticks(run, 1)) == 1
        assert idle.rows() == [("alarm", 2)]


def test_silence_is_committed_where_it_moves_the_clock():
    idle = Idle("memory:idle-silent", idle_after="10 s")
    with idle.run() as run:
        run.batch({"a": at(1), "b": at(1)})
        run.batch({"a": at(25)})
        assert idle.ticks(run, 9) == []
        # Input b is idle, and so is a at the next: the epoch moves, and goes out.
        assert len(idle.ticks(run, 4)) >= 2
        assert idle.rows() == [("0", 2)]
        assert idle.ticks(run, 20) == []


def test_silence_commits_only_due_results():
    idle = Idle("memory:idle-advancing", advance_after="10 s", idle_after=None)
    with idle.run() as run:
        run.batch({"a": at(1), "b": at(1)})
        idle.ticks(run, 1)
        assert idle.ticks(run, 10) == [], "the epoch has moved, and goes out with the next batch"
        assert len(idle.ticks(run, 1)) == 1
        assert idle.rows() == [("0", 2)]
        epoch = run.run.head.epoch
        assert idle.ticks(run, 30) == []
        assert run.run.head.epoch == epoch + 30 * SECOND, "the run goes on as if it were committed"
        # What comes behind the epoch is late, what is above it is not.
        run.batch({"a": at(epoch + 30 * SECOND, epoch + 32 * SECOND)})
        assert run.run.head.counts["a-bound/late"] == 1


def test_a_window_closes_in_time_with_few_commits_during_silence():
    idle = Idle("memory:idle-hours", windows="10 hours", advance_after="10 s", idle_after=None)
    with idle.run() as run:
        run.batch({"a": at(1), "b": at(1)})
        idle.ticks(run, 1)
        idle.ticks(run, 3, seconds=30)  # The alarm.
        before, sequence = idle.rows(), run.run.head.sequence
        idle.ticks(run, 3600 // 30 * 10 - 3, seconds=30)
        assert 5 < run.run.head.sequence - sequence < 25
        assert idle.rows() == before
        assert len(idle.ticks(run, 2, seconds=30)) == 1
        assert idle.rows() == [*before, ("0", 2)]


def test_the_clock_that_silence_moved_is_recorded_at_the_end_of_a_run():
    idle = Idle("memory:idle-advanced-stop", advance_after="10 s", idle_after=None)
    with idle.run() as run:
        run.batch({"a": at(1), "b": at(1)})
        idle.ticks(run, 40)
        head = run.run.head
        assert run.run.checkpoints.latest().epoch < head.epoch
    with idle.run() as run:
        assert (run.run.head.epoch, run.run.head.frontiers) == (head.epoch, head.frontiers)


def test_a_run_that_dies_loses_little_of_the_clock_that_silence_moved():
    idle = Idle("memory:idle-advanced-lost", windows="1 hour", advance_after="10 s", idle_after=None)
    with idle.run() as run:
        run.batch({"a": at(1), "b": at(1)})
        idle.ticks(run, 101, seconds=30)
        epoch = run.run.head.epoch
        with idle.run(take_over=True) as successor:
            assert epoch * 3 // 4 <= successor.run.head.epoch < epoch
            idle.ticks(successor, 60, seconds=30)
            assert idle.rows() == [("alarm", 2), ("0", 2)]
            successor.batch({"a": at(2)})
            assert successor.run.head.counts["a-bound/late"] == 1


def test_a_changed_cell_and_a_new_parallelism_are_committed():
    idle = Idle("memory:idle-cells", idle_after=None)
    with idle.run() as run:
        run.batch({"a": at(1), "b": at(1)})
        idle.ticks(run, 2)
        with run.run.cells.connection.writer("limit", int, namespace="cells") as cell:
            cell.write(5)
        assert len(idle.ticks(run, 2)) == 1
        run.job.rescale(2)
        assert len(idle.ticks(run, 2)) == 1


def test_a_run_that_is_taken_over_while_it_is_idle_stops():
    idle = Idle("memory:idle-fenced", idle_after=None)
    with idle.run() as run:
        run.batch({"a": at(1), "b": at(1)})
        idle.ticks(run, 3)
        with idle.run(take_over=True), pytest.raises(FencedError, match="taken over"):
            idle.ticks(run, 1)


def test_a_run_killed_while_idle_is_followed_by_an_exact_one():
    idle = Idle("memory:idle-killed", idle_after=None)
    with idle.run() as run:
        run.batch({"a": at(1), "b": at(1)})
        idle.ticks(run, 1)
        batch = run.run.head.batch
        faults.arm("commit.skipped=raise@5")
        with pytest.raises(faults.InjectedFault):
            idle.ticks(run, 10)
    with idle.run() as run:
        assert run.run.head.batch == batch
        run.batch({"a": at(15), "b": at(12)})
        idle.ticks(run, 3)
    assert idle.rows() == [("0", 2)]


def test_output_before_idle_batches_is_recorded_as_published_at_the_end():
    idle = Idle("memory:idle-published", idle_after=None)
    with idle.run() as run:
        run.batch({"a": at(1, 15), "b": at(15)})
        idle.ticks(run, 5)
        assert run.run.head.outputs
    with idle.run() as run:
        assert not run.run.head.outputs
    assert idle.rows() == [("0", 1)]


def test_a_fleets_nodes_commit_all_their_batches():
    assert FleetRun.commits_idle_batches
