"""Which runner runs the tasks of a batch, and how many tasks there are, without Spark."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace

import msgspec
import pytest

from support.internals import FileRef, PartRef, ShardParts
from tidewheel._checkpoint.shard_map import ShardMap
from tidewheel._engine import report as reports
from tidewheel._engine.batch_spec import BatchSpec
from tidewheel._engine.report import Report
from tidewheel._engine.task_layout import Layout, TaskLimits
from tidewheel._engine.task_runner import TaskRunner
from tidewheel._spark.batch_tasks import BatchTasks
from tidewheel._spark.program import Program
from tidewheel._spark.worker_pool import BatchFailed
from tidewheel.errors import TidewheelError


class Runner(TaskRunner):
    """Notes each batch that it runs, and reports that its tasks took so long altogether."""

    def __init__(self, seconds: float, ran: list[str]) -> None:
        self.seconds, self.ran = seconds, ran

    def run(self, layout: Layout) -> list[bytes]:
        self.ran.append(self.told(layout))
        tasks = [(level, task) for level, number in layout.tasks.items() for task in range(number)]
        return [reports.encode(Report(level, task, took=self.seconds / len(tasks))) for level, task in tasks]


class Pool(Runner):
    place = "the pool"

    def __init__(self, seconds: float, ran: list[str], ready: bool, failing: bool) -> None:
        super().__init__(seconds, ran)
        self.ready, self.failing = ready, failing

    def told(self, layout: Layout) -> str:
        return f"{len(layout.splits)} in the pool"

    def count_batch(self) -> None:
        pass

    def accepts(self, layout: Layout) -> bool:
        return self.ready and not layout.shuffles

    def overhead(self, layout: Layout) -> float:
        return 0.005

    def run(self, layout: Layout) -> list[bytes]:
        found = super().run(layout)
        if self.failing:
            raise BatchFailed("the process has ended")
        return found


class Spark(Runner):
    """Stands for tasks of Spark."""

    place = "Spark"
    plan = SimpleNamespace(levels=[(), ()], sources=list)
    overhead = Program.overhead
    limits = TaskLimits()

    def __init__(
        self, seconds: float, *, ready: bool = False, failing: bool = False, shared_key: str | None = None
    ) -> None:
        super().__init__(seconds, [])
        self.shared_key, self.pool = shared_key, Pool(seconds, self.ran, ready, failing)

    def worker_pool(self) -> Pool:
        return self.pool

    def told(self, layout: Layout) -> str:
        return "shuffle" if layout.shuffles else f"{layout.spec.parallelism} of Spark"


PINNED = BatchSpec("job", "memory:", "", 1, 0, 2, "run", 4, 2, 1_000)
MB = 1 << 20


def run_batches(program: Spark, sizes: list[int], *, local: bool = True, pinned: BatchSpec = PINNED) -> BatchTasks:
    """Run batches of these many bytes, each of one split."""
    tasks = BatchTasks(program, local=local)
    for size in sizes:
        tasks.run(pinned, [(0, SimpleNamespace(size=size, reading="cheap"))], {})
    return tasks


@pytest.mark.parametrize(
    ("seconds", "ready", "shared_key", "ran_in"),
    [
        pytest.param(0.6, False, None, "Spark, with a shuffle", id="shuffle"),
        pytest.param(
            0.6, False, "user", "Spark, each task reading the whole batch, without a shuffle", id="shared reading"
        ),
        pytest.param(0.6, True, "user", "the pool, each task reading the whole batch, without a shuffle", id="pool"),
        pytest.param(0.0, True, None, "the pool, without a shuffle", id="one task"),
    ],
)
def test_a_batch_says_where_it_ran_and_whether_it_was_shuffled(seconds, ready, shared_key, ran_in):
    tasks = run_batches(Spark(seconds, ready=ready, shared_key=shared_key), [MB])
    split = SimpleNamespace(size=MB if seconds else 1, reading="cheap")
    assert tasks.run(PINNED, [(0, split)], {}).ran_in == ran_in


class Forgetful(Spark):
    """Loses the report of the first task."""

    def run(self, layout: Layout) -> list[bytes]:
        return super().run(layout)[1:]

    def run_with_frames(self, layout: Layout, frames: Mapping[int, str]) -> list[bytes]:
        """Report of as many tasks as each frame has letters."""
        tasks = {**layout.tasks, 0: sum(map(len, frames.values()))}
        return [reports.encode(Report(level, task)) for level, number in tasks.items() for task in range(number)]


def test_a_batch_is_refused_if_a_task_that_reads_does_not_report():
    with pytest.raises(TidewheelError, match="level 0 of the batch has reports of the partitions"):
        run_batches(Forgetful(0.6), [MB])


def test_a_batch_with_a_dataframe_has_as_many_tasks_as_spark_divides_it_into():
    outcome = BatchTasks(Forgetful(0.6), local=True).run(PINNED, [], {0: "abcde"})
    assert len(outcome.reports) == 5 + PINNED.parallelism


@pytest.mark.parametrize(
    ("seconds", "local", "sizes", "ran"),
    [
        pytest.param(0.2, True, [MB, MB], ["shuffle", "1 of Spark"], id="little work"),
        pytest.param(0.2, True, [MB, 9 * MB], ["shuffle", "shuffle"], id="nine times as much"),
        pytest.param(0.2, True, [MB, 1_000, MB], ["shuffle", "1 of Spark", "1 of Spark"], id="a tiny one between"),
        pytest.param(0.6, True, [MB, MB], ["shuffle", "shuffle"], id="much work"),
        pytest.param(0.2, False, [MB, MB], ["shuffle", "shuffle"], id="a cluster"),
    ],
)
def test_a_batch_that_should_take_less_time_than_a_shuffle_runs_in_one_task(seconds, local, sizes, ran):
    program = Spark(seconds)
    run_batches(program, sizes, local=local)
    assert program.ran == ran


@pytest.mark.parametrize(("size", "ran", "tasks"), [(1_000, "1 of Spark", 1), (MB, "shuffle", 2)])
def test_due_work_of_a_large_state_is_divided_among_tasks(size, ran, tasks):
    """At the end of a bounded job all that is open is due, and one task would need the shards of all hosts."""
    program = Spark(0.1)
    last = run_batches(program, [1_000])
    state = ShardMap.of({0: ShardParts(PartRef(FileRef("state/a", size, 0), 1, size, keys=1))}, 4)
    assert last.run_without_input(PINNED, state)[1] == tasks
    assert program.ran == ["1 of Spark", ran]


@pytest.mark.parametrize(
    ("seconds", "ready", "ran"),
    [
        pytest.param(0.06, True, ["2 in the pool", "2 in the pool"], id="worth two processes"),
        pytest.param(0.004, True, ["2 in the pool", "1 in the pool"], id="not worth two"),
        pytest.param(0.06, False, ["2 of Spark", "1 of Spark"], id="not worth two tasks of Spark"),
        pytest.param(0.6, False, ["2 of Spark", "2 of Spark"], id="worth two tasks of Spark"),
    ],
)
def test_a_batch_without_a_shuffle_has_as_many_tasks_as_are_worth_it(seconds, ready, ran):
    program = Spark(seconds, ready=ready, shared_key="user")
    run_batches(program, [MB, MB])
    assert program.ran == ran


@pytest.mark.parametrize(("ready", "ran"), [(True, "1 in the pool"), (False, "1 of Spark")])
def test_a_job_with_one_task_never_shuffles(ready, ran):
    program = Spark(0.6, ready=ready)
    alone = msgspec.structs.replace(PINNED, parallelism=1)
    tasks = run_batches(program, [MB, 9 * MB], pinned=alone)
    state = ShardMap.of({0: ShardParts(PartRef(FileRef("state/a", MB, 0), 1, MB, keys=1))}, 4)
    tasks.run_without_input(alone, state)
    assert program.ran == [ran] * 3


def test_a_batch_that_fails_in_the_pool_runs_in_tasks_of_spark():
    program = Spark(0.6, ready=True, failing=True, shared_key="user")
    run_batches(program, [MB])
    assert program.ran == ["2 in the pool", "2 of Spark"]


def test_on_a_cluster_nothing_runs_in_the_pool():
    program = Spark(0.6, ready=True, shared_key="user")
    run_batches(program, [MB], local=False)
    assert program.ran == ["2 of Spark"]
