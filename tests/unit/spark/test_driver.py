"""The driver's decisions about one batch, without Spark."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

from tidewheel._connectors.direct import ReadBySpark
from tidewheel._engine.batch_spec import BatchSpec
from tidewheel._spark.driver import Driver


def test_a_batch_that_spark_reads_after_all_keeps_what_was_pinned_for_it(monkeypatch):
    # A second look at the clock would count the tasks' vain reading as time in which the sources had no data.
    times = itertools.count(1)
    driver = Driver.__new__(Driver)
    driver.sources = SimpleNamespace(direct=SimpleNamespace(why_not=None))
    driver._few = False
    driver._read_by_spark = True
    driver.program = SimpleNamespace(
        key="user", python_levels=[1], query=lambda frame, spec: SimpleNamespace(collect=lambda: [])
    )

    def pinned(self, **_):
        return BatchSpec("job", "memory:", "", 1, 0, 2, "run", 4, 2, next(times))

    def refused(self, *_):
        raise ReadBySpark("a line that Arrow does not take")

    monkeypatch.setattr(Driver, "_spec", pinned)
    monkeypatch.setattr(Driver, "_run_directly", refused)
    monkeypatch.setattr(Driver, "_reports", lambda self, rows, levels, spec: [])
    spec, _, _ = driver._run_tasks(None, None, "v1", [])
    assert spec.keyed_by_spark
    assert next(times) == 2
