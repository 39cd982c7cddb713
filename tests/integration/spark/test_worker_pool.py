"""The pool of worker processes: when they start, what they return, and how they end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from support.waiting import SOON, eventually
from tidewheel import Job
from tidewheel._connectors.split import Split
from tidewheel._core import pickling
from tidewheel._engine import report as reports
from tidewheel._engine.batch_spec import BatchSpec
from tidewheel._engine.job_run import JobRun
from tidewheel._engine.task_layout import DEFAULT_LIMITS, Layout, TaskLimits
from tidewheel._spark import worker_pool
from tidewheel._spark.worker_pool import BatchFailed, WorkerPool
from tidewheel.sinks import discard
from tidewheel.sources import iterable


@dataclass(frozen=True)
class Numbers(Split):
    """A split that gives numbers, fails, or ends the process that reads it."""

    numbers: tuple[int, ...]
    does: str = ""
    path: str = ""
    size: int = 0

    def read(self):
        import pyarrow as pa

        if self.does == "fails":
            raise OSError("the disk is gone")
        if self.does == "crashes":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.does == "forks and crashes":
            if child := os.fork():
                Path(self.path).write_text(str(child))
                os.kill(os.getpid(), signal.SIGKILL)
            signal.pause()
        if self.does == "is told to end":
            os.kill(os.getpid(), signal.SIGTERM)
        if self.does == "is told to end twice":
            os.kill(os.getpid(), signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGTERM)
        if self.does == "prints":
            print("seen at once")
        yield pa.RecordBatch.from_pydict({"value": list(self.numbers)})


AT_ONCE = TaskLimits(pool_after=0)
ALONE = BatchSpec("job", "memory:", "", 1, 0, 2, "run", 4, 1, 1_000)


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
def workers(run):
    # The class of the split is this test's own, and the workers cannot import it.
    pickling.send_by_value(Numbers)
    with pool(run, AT_ONCE) as workers:
        yield workers


def pool(run: JobRun, limits: TaskLimits = DEFAULT_LIMITS) -> WorkerPool:
    return WorkerPool(pickling.dumps(run.plan), "digest", os.environ, most=2, limits=limits)


def can_run(workers: WorkerPool, tasks: int) -> bool:
    return workers.accepts(Layout(ALONE, range(1, 2), [[]] * tasks))


def await_ready(workers: WorkerPool, tasks: int = 1) -> None:
    workers.count_batch()
    eventually(lambda: can_run(workers, tasks), "the processes")


def ran(workers: WorkerPool, run: JobRun, spec: BatchSpec, split: Numbers):
    answers = workers.run(Layout(spec, range(len(run.plan.levels)), [[(0, split)]]))
    return [reports.decode(answer) for answer in answers]


def test_a_run_of_few_batches_starts_no_process(run):
    with pool(run) as workers:
        for _ in range(DEFAULT_LIMITS.pool_after):
            workers.count_batch()
            assert not can_run(workers, 1)
        assert not workers._workers


def test_no_more_processes_are_started_than_spark_has_tasks_at_a_time(workers):
    workers.count_batch()
    assert not can_run(workers, 3)
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
    found = [reports.decode(answer) for answer in workers.run(Layout(spec, range(1, 2), [numbers, numbers]))]
    assert [(report.level, report.partition) for report in found] == [(1, 0), (1, 1)]
    changed = [sum(report.changed.values()) for report in found]
    assert all(changed)
    assert sum(changed) == 50


def test_a_failed_batch_is_reported_and_the_next_one_runs(workers, run, tmp_path):
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


def test_a_crash_is_noticed_also_where_a_child_of_the_process_lives_on(workers, run, tmp_path):
    await_ready(workers)
    child = tmp_path / "child"
    with pytest.raises(BatchFailed, match="has ended"):
        ran(workers, run, run.spec(1, f"{tmp_path}/local"), Numbers((1,), "forks and crashes", str(child)))
    os.kill(int(child.read_text()), signal.SIGKILL)


def test_output_of_functions_is_visible_with_the_batch(workers, run, tmp_path, capfd, monkeypatch):
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    await_ready(workers)
    ran(workers, run, run.spec(1, f"{tmp_path}/local"), Numbers((1,), "prints"))
    assert "seen at once" in capfd.readouterr().err


ABORTED = """
import os, sys, time
from tidewheel._core import pickling
from tidewheel._spark.worker_pool import _Worker

class Endless:
    def __reduce__(self):
        return time.sleep, (10**6,)

worker = _Worker(os.environ, pickling.dumps((b"", "digest")))
while not worker.is_ready():
    time.sleep(0.01)
worker._connection.send_bytes(pickling.dumps(Endless()))
print(worker.process.pid, flush=True)
os._exit(130)
"""
"""A driver that is aborted while a process beside it is in a function that never returns."""


def test_no_process_outlives_the_driver():
    driver = subprocess.run([sys.executable, "-c", ABORTED], capture_output=True, text=True, timeout=120)
    pid = int(driver.stdout)
    eventually(lambda: not Path(f"/proc/{pid}").exists(), "the end of the process")


def test_an_abandoned_batch_leaves_no_answer_for_the_next_one(workers, run, tmp_path):
    await_ready(workers, 2)
    spec = msgspec.structs.replace(run.spec(2, f"{tmp_path}/local"), shared_key="value")
    with pytest.raises(TypeError):
        workers.run(Layout(spec, range(1, 2), [[(0, Numbers((1, 2)))], [(0, threading.Lock())]]))
    await_ready(workers)
    found = ran(workers, run, run.spec(1, f"{tmp_path}/local"), Numbers((1,)))
    assert [report.level for report in found] == list(range(len(run.plan.levels)))


def warnings(caplog) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]


def test_processes_that_cannot_start_are_abandoned_and_the_run_continues(run, monkeypatch, caplog):

    def refused(*_, **__):
        raise BlockingIOError("no more processes")

    with pool(run, AT_ONCE) as workers, monkeypatch.context() as patched:
        patched.setattr(worker_pool.subprocess, "Popen", refused)
        for _ in range(worker_pool._FAILURES):
            workers.count_batch()
            assert not can_run(workers, 1)
        patched.undo()
        assert not can_run(workers, 1)
        assert not workers._workers
    (told,) = warnings(caplog)
    assert "all batches run in tasks of Spark" in told
    assert "no more processes" in told


def test_processes_that_end_while_they_start_are_abandoned(caplog):
    environment = {**os.environ, "PYTHONPATH": "", "PYTHONHOME": "/nowhere"}
    with WorkerPool(b"", "digest", environment, most=1, limits=AT_ONCE) as workers:
        for failures in range(1, worker_pool._FAILURES + 1):
            workers.count_batch()
            eventually(lambda n=failures: not can_run(workers, 1) and workers._failures == n, "the end of the process")
        workers.count_batch()
        assert not can_run(workers, 1)
        assert not workers._workers
    (told,) = warnings(caplog)
    assert "a process ended before it had a batch, with status 1" in told


def test_a_batch_fails_after_all_tasks_ended_and_survivors_run_the_next(workers, run, tmp_path):
    await_ready(workers, 2)
    spec = msgspec.structs.replace(run.spec(2, f"{tmp_path}/local"), shared_key="value")
    hands = [[(0, Numbers((1,), "crashes"))], [(0, Numbers((1, 2, 3)))]]
    lives = workers._workers[1]
    with pytest.raises(BatchFailed, match="has ended"):
        workers.run(Layout(spec, range(1, 2), hands))
    assert workers._workers == [lives]
    assert ran(workers, run, run.spec(1, f"{tmp_path}/local"), Numbers((1,)))[0].counts["in"] == 1


def test_batches_that_processes_never_finish_go_to_spark_with_one_warning(workers, run, tmp_path, caplog):
    await_ready(workers)
    spec = run.spec(1, f"{tmp_path}/local")
    for _ in range(worker_pool._FAILURES):
        assert can_run(workers, 1)
        with pytest.raises(BatchFailed):
            ran(workers, run, spec, Numbers((1,), "fails"))
    for _ in range(2):
        assert not can_run(workers, 1)
    (told,) = warnings(caplog)
    assert "all batches run in tasks of Spark" in told
    assert "OSError: the disk is gone" in told


def test_one_that_is_killed_while_nothing_runs_is_not_used(workers, run):
    await_ready(workers)
    killed = workers._workers[0].process
    workers.cancel()
    killed.wait()
    with pytest.raises(BatchFailed, match="has ended"):
        workers.run(Layout(run.spec(1, ""), range(1), [[]]))
    assert not workers._workers


def test_sigterm_ends_an_idle_process(workers):
    await_ready(workers)
    (worker,) = workers._workers
    worker.process.terminate()
    assert worker.process.wait(SOON) == 128 + signal.SIGTERM


def test_sigterm_lets_a_task_finish_before_the_process_ends(workers, run, tmp_path):
    await_ready(workers)
    (worker,) = workers._workers
    assert ran(workers, run, run.spec(1, f"{tmp_path}/local"), Numbers((1, 2), "is told to end"))
    assert worker.process.wait(SOON) == 128 + signal.SIGTERM


def test_a_second_sigterm_ends_a_process_in_the_middle_of_a_task(workers, run, tmp_path):
    await_ready(workers)
    with pytest.raises(BatchFailed, match="has ended"):
        ran(workers, run, run.spec(1, f"{tmp_path}/local"), Numbers((1, 2), "is told to end twice"))
