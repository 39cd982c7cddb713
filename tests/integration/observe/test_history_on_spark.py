"""A run on Spark leaves its figures, its graph and its error at the state URL."""

from __future__ import annotations

import pytest

from tidewheel import Job, RunOptions, sinks, sources
from tidewheel._observe.history import History
from tidewheel.errors import StepError


def test_a_run_that_ends_and_one_that_fails_leave_their_history(spark, tmp_path):
    state = f"file://{tmp_path}/state"

    options = RunOptions(spark=spark, local=f"{tmp_path}/local", parallelism=2, until="caught-up")
    job = Job("history", state=state)
    numbers = job.source("in", sources.iterable(list(range(100)), partitions=2)).key_by("by-parity", lambda n: n % 2)
    numbers.stateful_map("total", lambda key, n, total: (total + n, total + n), default=0).sink("out", sinks.discard())
    job.run(options=options)
    failing = Job("failing", state=state)
    failing.source("in", sources.iterable([1])).map("broken", lambda n: 1 // 0).sink("out", sinks.discard())
    with pytest.raises(StepError):
        failing.run(options=options)

    history = History(state)
    records = [record for record in history.records("history") if record.kind == "batch"]
    assert history.jobs() == ["failing", "history"]
    assert sum(record.rows for record in records) == 100
    assert sum(record.rows_in["total"] for record in records) == 100
    assert sum(record.rows_out["out"] for record in records) == 100
    assert records[-1].stored["total"].keys == 2
    assert set(records[-1].phases) == {"offsets", "read", "tasks", "commit", "publish"}
    assert sum(records[-1].phases.values()) == pytest.approx(records[-1].seconds)
    (ended,) = history.runs("history")
    assert ended.ended is not None
    assert [(operator.name, operator.level) for operator in ended.steps] == [
        ("in", 0),
        ("by-parity", 0),
        ("total", 1),
        ("out", 1),
    ]
    (error,) = history.errors("failing")
    (failed,) = history.runs("failing")
    assert "step 'broken'" in error.text
    assert "ZeroDivisionError" in error.traceback
    assert (error.run, failed.ended) == (failed.run, None)
