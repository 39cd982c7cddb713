"""The processes beside the driver that run batches: when they are there, what they give, and how they end."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass

import msgspec
import pytest

from tidewheel import Job
from tidewheel._connectors.direct import Split
from tidewheel._core import pickling
from tidewheel._engine import report as reports
from tidewheel._engine.batch_spec import BatchSpec
from tidewheel._engine.run import JobRun
from tidewheel._spark import workers_beside
from tidewheel._spark.workers_beside import BatchFailed, WorkersBeside
from tidewheel.sinks import discard
from tidewheel.sources import iterable
from waiting import eventually


@dataclass(frozen=True)
class Numbers(Split):
    """A split that gives numbers, fails, or ends the process that reads it."""

    numbers: tuple[int, ...]
    does: str = ""
    size: int = 0

    def read(self):
        import pyarrow as pa

        if self.does == "fails":
            raise OSError("the disk is gone")
        if self.does == "crashes":
            os.kill(os.getpid(), signal.SIGKILL)
        yield pa.RecordBatch.from_pydict({"value": list(self.numbers)})


@pytest.fixture
def run(tmp_path):
    job = Job("small", state=f"file://{tmp_path}/state", n_shards=4)
    numbers = job.source("in", iterable([{"value": 1}]))
    numbers.key_by("by-value", "value").stateful_map("count", lambda key, _, n: (n + 1, n + 1), default=0).sink(
        "out", discard()
    )
    run = JobRun(job, job.plan())
    run.reserve()
    run.begin()
    yield run
    run.release()


@pytest.fixture
def workers(run, monkeypatch):
    monkeypatch.setattr(workers_beside, "_AFTER", 0)
    # The class of the split is this test's own, and the workers cannot import it.
    pickling.send_by_value(Numbers)
    with beside(run) as workers:
        yield workers


def beside(run: JobRun) -> WorkersBeside:
    return WorkersBeside(pickling.dumps(run.plan), "digest", os.environ, most=2)


def await_ready(workers: WorkersBeside, tasks: int = 1) -> None:
    workers.count_batch()
    eventually(lambda: workers.are_ready(tasks), "the processes")


def ran(workers: WorkersBeside, run: JobRun, spec: BatchSpec, split: Numbers):
    answers = workers.reports(spec, range(len(run.plan.levels)), [[(0, split)]])
    return [reports.decode(answer) for answer in answers]


def test_a_run_of_few_batches_starts_no_process(run):
    with beside(run) as workers:
        for _ in range(workers_beside._AFTER):
            workers.count_batch()
            assert not workers.are_ready(1)
        assert not workers._workers


def test_no_more_processes_are_started_than_spark_has_tasks_at_a_time(workers):
    workers.count_batch()
    assert not workers.are_ready(3)
    assert not workers._workers


def test_one_gives_the_reports_of_all_levels_batch_after_batch(workers, run, tmp_path):
    await_ready(workers)
    spec = run.spec(1, f"{tmp_path}/local")
    for numbers in ((7, 8, 7), (9,)):
        found = ran(workers, run, spec, Numbers(numbers))
        assert [report.level for report in found] == list(range(len(run.plan.levels)))
        assert found[0].counts["in"] == len(numbers)
        assert sum(found[-1].changed.values()) == len(set(numbers))


def test_two_divide_a_batch_that_each_of_them_reads(workers, run, tmp_path):
    await_ready(workers, 2)
    spec = msgspec.structs.replace(run.spec(2, f"{tmp_path}/local"), shared_key="value")
    numbers = [(0, Numbers(tuple(range(50))))]
    found = [reports.decode(answer) for answer in workers.reports(spec, range(1, 2), [numbers, numbers])]
    assert [(report.level, report.partition) for report in found] == [(1, 0), (1, 1)]
    changed = [sum(report.changed.values()) for report in found]
    assert all(changed)
    assert sum(changed) == 50


def test_what_fails_in_one_is_told_and_the_next_batch_runs(workers, run, tmp_path):
    await_ready(workers)
    spec = run.spec(1, f"{tmp_path}/local")
    with pytest.raises(BatchFailed, match="OSError: the disk is gone"):
        ran(workers, run, spec, Numbers((1,), "fails"))
    assert ran(workers, run, spec, Numbers((1,)))[0].counts["in"] == 1


def test_a_crash_ends_one_and_not_the_driver_and_another_one_is_started(workers, run, tmp_path):
    await_ready(workers)
    spec = run.spec(1, f"{tmp_path}/local")
    with pytest.raises(BatchFailed, match="has ended"):
        ran(workers, run, spec, Numbers((1,), "crashes"))
    await_ready(workers)
    assert ran(workers, run, spec, Numbers((1,)))[0].counts["in"] == 1


def test_a_batch_fails_when_all_its_tasks_have_ended_and_those_who_live_run_the_next(workers, run, tmp_path):
    await_ready(workers, 2)
    spec = msgspec.structs.replace(run.spec(2, f"{tmp_path}/local"), shared_key="value")
    hands = [[(0, Numbers((1,), "crashes"))], [(0, Numbers((1, 2, 3)))]]
    lives = workers._workers[1]
    with pytest.raises(BatchFailed, match="has ended"):
        workers.reports(spec, range(1, 2), hands)
    assert workers._workers == [lives]
    assert ran(workers, run, run.spec(1, f"{tmp_path}/local"), Numbers((1,)))[0].counts["in"] == 1


def test_batches_that_they_never_bring_to_an_end_are_left_to_tasks(workers, run, tmp_path):
    await_ready(workers)
    spec = run.spec(1, f"{tmp_path}/local")
    for _ in range(workers_beside._FAILURES):
        assert workers.are_ready(1)
        with pytest.raises(BatchFailed):
            ran(workers, run, spec, Numbers((1,), "fails"))
    assert not workers.are_ready(1)


def test_one_that_is_killed_while_nothing_runs_is_not_used(workers, run):
    await_ready(workers)
    killed = workers._workers[0].process
    workers.kill()
    killed.wait()
    with pytest.raises(BatchFailed, match="has ended"):
        workers.reports(run.spec(1, ""), range(1), [[]])
    assert not workers._workers
