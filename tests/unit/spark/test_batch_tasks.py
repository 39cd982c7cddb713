"""Who runs the tasks of a batch, without Spark."""

from __future__ import annotations

from types import SimpleNamespace

import msgspec
import pytest

from tidewheel._checkpoint.shard_map import ShardMap
from tidewheel._engine import report as reports
from tidewheel._engine import wire
from tidewheel._engine.batch_spec import BatchSpec
from tidewheel._engine.report import Report
from tidewheel._spark.batch_tasks import BatchTasks
from tidewheel._spark.workers_beside import BatchFailed
from tidewheel._state.references import FileRef, PartRef, ShardParts


class Programs:
    """Stands for Spark: tells of each batch whether it ran as a query of two tasks or in one, and how long that took."""

    plan = SimpleNamespace(levels=[(), ()], sources=list)
    shared_key = None

    def __init__(self, seconds: float) -> None:
        self.seconds, self.ran = seconds, []

    def direct_query(self, spec, levels, hands):
        self.ran.append("query")
        found = [Report(0, 0, took=self.seconds / 2), *(Report(1, task, took=self.seconds / 4) for task in (0, 1))]
        rows = [SimpleNamespace(edge=wire.REPORT, payload=reports.encode(report)) for report in found]
        return SimpleNamespace(collect=lambda: rows)

    def in_this_process(self, splits, spec):
        self.ran.append(f"{spec.parallelism} task")
        # A level is at work for as long as those that it reads from.
        return [reports.encode(Report(level, 0, took=self.seconds)) for level in (0, 1)]


PINNED = BatchSpec("job", "memory:", "", 1, 0, 2, "run", 4, 2, 1_000)


def run_batches(
    program: Programs, sizes: list[int], *, local: bool = True, in_driver: bool = True, pinned: BatchSpec = PINNED
) -> BatchTasks:
    """Run batches of these many bytes."""
    tasks = BatchTasks(program, in_driver=in_driver, beside=local)
    for size in sizes:
        tasks.run(pinned, [(0, SimpleNamespace(size=size, reading="cheap"))], {})
    return tasks


MB = 1 << 20


@pytest.mark.parametrize(
    ("seconds", "local", "sizes", "ran"),
    [
        pytest.param(0.1, True, [MB, MB], ["query", "1 task"], id="little work"),
        pytest.param(0.1, True, [MB, 9 * MB], ["query", "query"], id="nine times as much"),
        pytest.param(0.1, True, [MB, 1_000, MB], ["query", "1 task", "1 task"], id="a tiny one between"),
        pytest.param(0.6, True, [MB, MB], ["query", "query"], id="much work"),
        pytest.param(0.1, False, [MB, MB], ["query", "query"], id="a cluster"),
    ],
)
def test_a_batch_that_should_take_less_time_than_a_shuffle_runs_in_one_task(seconds, local, sizes, ran):
    program = Programs(seconds)
    run_batches(program, sizes, local=local)
    assert program.ran == ran


@pytest.mark.parametrize(("size", "ran", "tasks"), [(1_000, "1 task", 1), (MB, "query", 2)])
def test_what_is_due_in_a_large_state_is_divided_among_tasks_however_small_the_last_batch_was(size, ran, tasks):
    # At the end of a bounded job all that is open is due, and one task would need the shards of all hosts.
    program = Programs(0.1)
    last = run_batches(program, [1_000])
    state = ShardMap.of({0: ShardParts(PartRef(FileRef("state/a", size, 0), 1, size, keys=1))}, 4)
    assert last.run_without_input(PINNED, state).tasks == tasks
    assert program.ran == ["1 task", ran]


class WithoutShuffle(Programs):
    """The same for a program whose tasks each read the whole batch: tells also which batches ran beside this process."""

    shared_key = "user"

    def __init__(self, seconds: float, ready: bool, *, failing: bool = False) -> None:
        super().__init__(seconds)
        self.are_ready = lambda tasks: ready
        self.failing = failing

    def count_batch(self):
        pass

    def beside(self):
        return self

    def reports(self, spec, levels, hands):
        self.ran.append(f"{len(hands)} beside")
        if self.failing:
            raise BatchFailed("the process has ended")
        return self._reports(levels, hands)

    def in_tasks(self, spec, levels, hands):
        self.ran.append(f"{len(hands)} of Spark")
        return self._reports(levels, hands)

    def _reports(self, levels, hands):
        return [
            reports.encode(Report(level, task, took=self.seconds / len(hands) / len(levels)))
            for level in levels
            for task in range(len(hands))
        ]


@pytest.mark.parametrize(
    ("seconds", "ready", "ran"),
    [
        pytest.param(0.06, True, ["2 beside", "2 beside"], id="worth two processes"),
        pytest.param(0.004, True, ["2 beside", "1 beside"], id="not worth two"),
        pytest.param(0.06, False, ["2 of Spark", "1 of Spark"], id="not worth two tasks of Spark"),
        pytest.param(0.6, False, ["2 of Spark", "2 of Spark"], id="worth two tasks of Spark"),
    ],
)
def test_a_batch_without_a_shuffle_runs_beside_the_driver_in_as_many_processes_as_are_worth_it(seconds, ready, ran):
    program = WithoutShuffle(seconds, ready)
    run_batches(program, [MB, MB], in_driver=False)
    assert program.ran == ran


@pytest.mark.parametrize(("ready", "ran"), [(True, "1 beside"), (False, "1 of Spark")])
def test_a_job_with_one_task_has_no_query_however_large_its_batches_and_its_state_are(ready, ran):
    program = WithoutShuffle(0.6, ready)
    alone = msgspec.structs.replace(PINNED, parallelism=1)
    tasks = run_batches(program, [MB, 9 * MB], in_driver=False, pinned=alone)
    state = ShardMap.of({0: ShardParts(PartRef(FileRef("state/a", MB, 0), 1, MB, keys=1))}, 4)
    tasks.run_without_input(alone, state)
    assert program.ran == [ran, ran, "1 of Spark"]


def test_a_batch_that_fails_beside_the_driver_runs_in_tasks_of_spark():
    program = WithoutShuffle(0.6, ready=True, failing=True)
    run_batches(program, [MB], in_driver=False)
    assert program.ran == ["2 beside", "2 of Spark"]


def test_batches_that_fail_in_the_driver_run_in_tasks_of_spark_and_that_is_told_once(caplog):
    class Failing(WithoutShuffle):
        def in_this_process(self, splits, spec):
            raise MemoryError("too large")

    program = Failing(0.6, ready=False)
    run_batches(program, [1, 1])
    assert program.ran == ["1 of Spark", "1 of Spark"]
    (told,) = [record.getMessage() for record in caplog.records]
    assert told.endswith("MemoryError: too large")


def test_on_a_cluster_nothing_runs_beside_the_driver():
    program = WithoutShuffle(0.6, ready=True)
    run_batches(program, [MB], in_driver=False, local=False)
    assert program.ran == ["2 of Spark"]
