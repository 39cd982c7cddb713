"""A7: every step has a name; a duplicate, an empty or a changed one is a clear error."""

from __future__ import annotations

import pytest

from tidewheel import Job
from tidewheel.errors import GraphError, StateError
from tidewheel.sinks import collect
from tidewheel.sources import iterable


def test_a7_a_duplicate_name_is_an_error_when_the_graph_is_built():
    stream = Job("j").source("in", iterable([1]))
    stream.map("double", lambda value: value * 2)
    with pytest.raises(GraphError, match="two steps named 'double'"):
        stream.filter("double", bool)


@pytest.mark.parametrize("name", ["", "a b", "/x", None])
def test_a7_an_empty_or_unfit_name_is_an_error(name):
    with pytest.raises(GraphError, match="name"):
        Job("j").source(name, iterable([1]))


def counted(job, source, name):
    source.key_by("by", lambda value: value).stateful_map(name, lambda k, v, n: (n + 1, n + 1), default=0).sink(
        "out", collect()
    )
    return job


def test_a7_a_changed_name_is_an_error_at_restart(memory_runner):
    job = memory_runner.job("renamed")
    memory_runner.run(counted(job, memory_runner.source(job, "in", [1]), "count"))
    other = memory_runner.job("renamed")
    counted(other, memory_runner.source(other, "in", [1]), "tally")
    with pytest.raises(StateError) as caught:
        memory_runner.run(other)
    text = str(caught.value)
    assert "'count'" in text
    assert "'tally'" in text
    assert "--allow-dropped-state" in text


def test_a7_dropped_state_is_deleted_when_allowed(memory_runner):
    from tidewheel._engine.claim import ClaimTerms
    from tidewheel._engine.job_run import JobRun

    job = memory_runner.job("let-go")
    memory_runner.run(counted(job, memory_runner.source(job, "in", [1]), "count"))
    other = memory_runner.job("let-go")
    counted(other, memory_runner.source(other, "in", [1]), "tally")
    run = JobRun(other, other.plan(), ClaimTerms(allow_dropped_state=["count"]))
    run.begin()
    run.release()
    assert "count" not in run.head.operators


def test_a7_a_graph_that_leads_nowhere_is_refused():
    job = Job("j")
    job.source("in", iterable([1])).map("lost", lambda value: value)
    with pytest.raises(GraphError, match=r"'lost' .*has no sink"):
        job.plan()
