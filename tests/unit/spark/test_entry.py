"""The bridge from Spark's Python workers to the task step."""

from __future__ import annotations

from types import SimpleNamespace

from tidewheel._core import pickling
from tidewheel._engine.batch_spec import BatchSpec
from tidewheel._spark import entry


def test_attempts_of_two_jvms_of_one_run_have_different_numbers(monkeypatch, tmp_path):
    # A run may outlive its JVM, and Spark counts attempts from 0 in each.
    context = SimpleNamespace(partitionId=lambda: 3, taskAttemptId=lambda: 0)
    monkeypatch.setattr(entry, "TaskContext", SimpleNamespace(get=lambda: context))
    tasks = []
    monkeypatch.setattr(entry, "run_level", lambda plan, spec, level, task, batches, *_: tasks.append(task) or iter(()))
    spec = BatchSpec(
        stream="job",
        state="memory:unit-entry",
        local=str(tmp_path),
        base=1,
        base_checksum=0,
        sequence=2,
        run="run",
        n_shards=4,
        parallelism=1,
        now=0,
    )
    for _ in range(2):
        list(entry.LevelTasks(pickling.dumps("a plan"), "digest", spec, range(1)).arrow_function()(iter(())))
    assert [task.partition for task in tasks] == [3, 3]
    assert tasks[0].attempt != tasks[1].attempt
