"""An idle job that waits for time commits nothing when nothing changed."""

from __future__ import annotations

import pytest

from tidewheel import Job, Message, Output, StatefulLogic, count, tumbling
from tidewheel._core import faults
from tidewheel._fleet.run import FleetRun
from tidewheel._state.timers import Timer
from tidewheel.errors import FencedError
from tidewheel.sinks import collect
from tidewheel.sources import iterable
from tidewheel.testing import Clock, MemoryRun


class Alarm(StatefulLogic[int]):
    """Emits a minute of the wall clock after a key's message."""

    def on_data(self, message: Message, state: int, output: Output) -> int:
        output.set_timer(output.now + 60 * 10**9, clock="wall")
        return state + 1

    def on_timer(self, timer: Timer, state: int, output: Output) -> None:
        output.emit({"start": "alarm", "n": state})


class Idle:
    """Runs of a job with windows of ten, an input `b` beside the one that gives data, and an alarm of the wall clock."""

    def __init__(self, state: str, **bound) -> None:
        self.state, self.bound, self.clock, self.out = state, bound, Clock(), collect()

    def job(self) -> Job:
        job = Job("idle", state=self.state, n_shards=4)
        sides = []
        for name in ("a", "b"):
            timed = job.source(name, iterable([]), value=dict).assign_timestamps(f"{name}-time", "at", unit="ns")
            sides.append(timed.limit_out_of_orderness(f"{name}-bound", "0 s", **self.bound)[0])
        keyed = sides[0].union("both", sides[1]).key_by("by", "k")
        windows = keyed.window("w", tumbling("10 ns"), n=count())
        windows.map("plain", lambda row: {"start": str(row.start), "n": row.n}).sink("out", self.out)
        keyed.stateful_op("alarm", Alarm(), default=0).sink("alarms", self.out)
        self.limit = job.cell("limit", int, default=1)
        return job

    def run(self, **options) -> MemoryRun:
        return MemoryRun(self.job(), clock=self.clock, **options)

    def ticks(self, run: MemoryRun, seconds: int) -> list[int]:
        """Run a batch each second; return the sequences that were committed."""
        before = set(run.run.checkpoints.sequences())
        for _ in range(seconds):
            self.clock.advance(1)
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


def test_batches_that_change_nothing_are_not_committed_and_what_comes_after_them_is():
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


def test_what_the_wall_clock_brings_is_committed():
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


def test_an_input_that_goes_with_the_machines_clock_is_committed_as_soon_as_it_moves():
    idle = Idle("memory:idle-advancing", advance_after="10 s", idle_after=None)
    with idle.run() as run:
        run.batch({"a": at(1), "b": at(1)})
        idle.ticks(run, 1)
        assert idle.ticks(run, 8) == []
        assert len(idle.ticks(run, 3)) >= 1
        assert ("0", 2) in idle.rows()


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


def test_killed_while_idle_the_next_run_gives_the_numbers_again_and_is_exact():
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


def test_output_before_idle_batches_is_recorded_as_published_when_the_run_ends():
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
