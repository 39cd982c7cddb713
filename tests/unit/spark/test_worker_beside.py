"""The process beside the driver that runs small batches: when it is there, what it gives, and how it ends."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass

import pytest

from tidewheel import Job
from tidewheel._connectors.direct import Split
from tidewheel._core import pickling
from tidewheel._engine import report as reports
from tidewheel._engine.batch_spec import BatchSpec
from tidewheel._engine.run import JobRun
from tidewheel._spark import worker_beside
from tidewheel._spark.worker_beside import BatchFailed, WorkerBeside
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
def worker(run, monkeypatch):
    monkeypatch.setattr(worker_beside, "_AFTER", 0)
    # The class of the split is this test's own, and the worker cannot import it.
    pickling.send_by_value(Numbers)
    with WorkerBeside(pickling.dumps(run.plan), "digest", os.environ) as worker:
        yield worker


def ran(worker: WorkerBeside, run: JobRun, spec: BatchSpec, split: Numbers):
    answers = worker.reports(spec, range(len(run.plan.levels)), [(0, split)])
    return [reports.decode(answer) for answer in answers]


def test_a_run_of_few_small_batches_starts_no_process(run):
    with WorkerBeside(pickling.dumps(run.plan), "digest", os.environ) as worker:
        assert not any(worker.is_ready() for _ in range(worker_beside._AFTER))
        assert worker._process is None


def test_it_gives_the_reports_of_all_levels_batch_after_batch(worker, run, tmp_path):
    eventually(worker.is_ready, "the process")
    spec = run.spec(1, f"{tmp_path}/local")
    for numbers in ((7, 8, 7), (9,)):
        found = ran(worker, run, spec, Numbers(numbers))
        assert [report.level for report in found] == list(range(len(run.plan.levels)))
        assert found[0].counts["in"] == len(numbers)
        assert sum(found[-1].changed.values()) == len(set(numbers))


def test_what_fails_in_it_is_told_and_the_next_batch_runs(worker, run, tmp_path):
    eventually(worker.is_ready, "the process")
    spec = run.spec(1, f"{tmp_path}/local")
    with pytest.raises(BatchFailed, match="OSError: the disk is gone"):
        ran(worker, run, spec, Numbers((1,), "fails"))
    assert ran(worker, run, spec, Numbers((1,)))[0].counts["in"] == 1


def test_a_crash_ends_it_and_not_the_driver_and_another_one_is_started(worker, run, tmp_path):
    eventually(worker.is_ready, "the process")
    spec = run.spec(1, f"{tmp_path}/local")
    with pytest.raises(BatchFailed, match="has ended"):
        ran(worker, run, spec, Numbers((1,), "crashes"))
    eventually(worker.is_ready, "another process")
    assert ran(worker, run, spec, Numbers((1,)))[0].counts["in"] == 1


def test_batches_that_it_never_brings_to_an_end_are_left_to_tasks(worker, run, tmp_path):
    eventually(worker.is_ready, "the process")
    spec = run.spec(1, f"{tmp_path}/local")
    for _ in range(worker_beside._FAILURES):
        assert worker.is_ready()
        with pytest.raises(BatchFailed):
            ran(worker, run, spec, Numbers((1,), "fails"))
    assert not worker.is_ready()


def test_one_that_is_killed_while_nothing_runs_is_not_used(worker, run):
    eventually(worker.is_ready, "the process")
    killed = worker._process
    worker.kill()
    killed.wait()
    with pytest.raises(BatchFailed, match="has ended"):
        worker.reports(run.spec(1, ""), range(1), [])
    assert worker._process is None
