"""Who runs the tasks of a batch, without Spark."""

from __future__ import annotations

from types import SimpleNamespace

from tidewheel._connectors.direct import ReadBySpark
from tidewheel._engine.batch_spec import BatchSpec
from tidewheel._spark import batch_tasks
from tidewheel._spark.batch_tasks import BatchTasks, Offered


def test_a_batch_that_spark_reads_after_all_keeps_what_was_pinned_for_it(monkeypatch):
    # A second look at the clock would count the tasks' vain reading as time in which the sources had no data.
    def refused(*_):
        raise ReadBySpark("a line that Arrow does not take")

    sources = SimpleNamespace(direct=SimpleNamespace(why_not=None, splits=refused), lines=())
    program = SimpleNamespace(
        plan=SimpleNamespace(levels=[(), ()], sources=list),
        key="user",
        python_levels=[1],
        query=lambda frame, spec: SimpleNamespace(collect=list),
    )
    monkeypatch.setattr(batch_tasks, "check_reports", lambda *_: None)
    pinned = BatchSpec("job", "memory:", "", 1, 0, 2, "run", 4, 2, 1_000)
    tasks = BatchTasks(program, sources, in_driver=False, beside=False)
    ran = tasks.run(Offered(SimpleNamespace(), None, "v1\n{}", (), {}), pinned, read_by_spark=True)
    assert (ran.spec.now, ran.spec.keyed_by_spark) == (1_000, True)
