"""The bridge from Spark's Python workers to the task step."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest

from tidewheel._core import pickling
from tidewheel._core.own_code import digest_of, own_code
from tidewheel._engine import wire
from tidewheel._engine.batch_spec import BatchSpec
from tidewheel._engine.commit import check_reports
from tidewheel._engine.report import decode
from tidewheel._spark import entry, shipping
from tidewheel._spark.shipping import archive, package_sources
from tidewheel.errors import ConfigError


@pytest.fixture
def worker(monkeypatch):
    """A Python worker of Spark in which no program is loaded yet."""
    context = SimpleNamespace(partitionId=lambda: 3, taskAttemptId=lambda: 0)
    monkeypatch.setattr(entry, "TaskContext", SimpleNamespace(get=lambda: context))
    monkeypatch.setattr(entry, "_plans", {})


def spec_at(local) -> BatchSpec:
    return BatchSpec("job", "memory:unit-entry", str(local), 1, 0, 2, "run", n_shards=4, parallelism=4, now=0)


def test_a_task_refuses_a_batch_of_a_driver_that_runs_other_code(worker, tmp_path):
    rows = iter(["a row"])
    tasks = entry.LevelTasks(b"not even a pickle", "digest", "0.1-00000000", spec_at(tmp_path), range(1, 2))
    found = [decode(data) for data in wire.reports_in(tasks.arrow_function()(rows))]
    with pytest.raises(
        ConfigError, match=r"the driver has 0\.1-00000000, the task .*Nothing is committed: start the program"
    ):
        check_reports(found, {1: 4})
    assert found[0].partition == 3
    assert list(rows) == []


def test_the_digest_of_the_code_is_the_same_in_a_folder_and_in_an_archive(tmp_path):
    path = tmp_path / "code.zip"
    path.write_bytes(archive({**package_sources(), "own_module.py": b"pass"}))
    code = f"import sys; sys.path.insert(0, {str(path)!r}); from tidewheel._core import own_code; print(own_code.own_code())"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd="/", check=True)
    assert said.stdout.strip() == own_code()


def test_the_digest_of_the_code_changes_with_a_file():
    sources = package_sources()
    changed = {**sources, "tidewheel/sinks.py": sources["tidewheel/sinks.py"] + b"#"}
    assert digest_of(sources) == own_code() != digest_of(changed)


def test_a_driver_does_not_send_code_that_changed_since_it_was_loaded(monkeypatch):
    monkeypatch.setattr(shipping, "package_sources", lambda: {"tidewheel/sinks.py": b"other"})
    context = SimpleNamespace(master="spark://host:7077", applicationId="changed")
    with pytest.raises(ConfigError, match=r"was changed after this process had loaded it.*start the program again"):
        shipping.ship(SimpleNamespace(sparkContext=context))


def test_attempts_of_two_jvms_of_one_run_have_different_numbers(worker, monkeypatch, tmp_path):
    # A run may outlive its JVM, and Spark counts attempts from 0 in each.
    tasks = []
    monkeypatch.setattr(entry, "run_level", lambda plan, spec, level, task, batches, *_: tasks.append(task) or iter(()))
    for _ in range(2):
        level = entry.LevelTasks(pickling.dumps("a plan"), "digest", own_code(), spec_at(tmp_path), range(1))
        list(level.arrow_function()(iter(())))
    assert [task.partition for task in tasks] == [3, 3]
    assert tasks[0].attempt != tasks[1].attempt


def test_a_task_of_a_plain_job_runs_the_tasks_of_its_queue_in_their_order(worker, monkeypatch, tmp_path):
    tasks, splits = [], []

    def run_level(plan, spec, level, task, batches, own, source):
        tasks.append(task)
        splits.append(own)
        return iter(())

    monkeypatch.setattr(entry, "run_level", run_level)
    rows, by_task = iter(["a row"]), [[(0, number)] for number in range(6)]
    queues = [[0], [1], [2], [3, 5], [4]]
    level = entry.LevelTasks(
        pickling.dumps("a plan"), "digest", own_code(), spec_at(tmp_path), range(1), by_task, queues=queues
    )
    assert level.reports(rows) == []
    assert [task.partition for task in tasks] == [3, 5]
    assert splits == [by_task[3], by_task[5]]
    assert tasks[0].attempt != tasks[1].attempt
    assert list(rows) == []
