"""Scripts: items and the events between them."""

from __future__ import annotations

import pytest

from tidewheel import Job
from tidewheel._testing.script import Batch, Flush, steps
from tidewheel.errors import ConfigError
from tidewheel.sinks import collect
from tidewheel.sources import files, iterable
from tidewheel.testing import CELL, CRASH, EOF, PAUSE, RESCALE, Clock, ScriptedSource, run_in_memory, run_script


def totals(source, **settings):
    job = Job("totals", **settings)
    job.source("in", source).key_by("parity", lambda n: n % 2).stateful_map(
        "sum", lambda key, n, total: (total + n, total + n), default=0
    ).sink("out", collect())
    return job


def test_items_between_markers_are_a_batch():
    assert steps({"in": ([1, 2, RESCALE(3), 3, PAUSE(1), PAUSE(2), 4], None)}) == [
        Batch({"in": [1, 2]}),
        RESCALE(3),
        Batch({"in": [3]}),
        PAUSE(1),
        PAUSE(2),
        Batch({"in": [4]}),
    ]


def test_a_batch_size_cuts_further():
    assert steps({"in": ([1, 2, 3, EOF()], 2)}) == [Batch({"in": [1, 2]}), Batch({"in": [3]}), Flush()]


def test_crashes_belong_to_the_batch_before_them():
    assert steps({"in": ([CRASH("start.claimed"), 1, CRASH(), CRASH("commit.created"), EOF(), CRASH()], None)}) == [
        Batch({}, ("start.claimed",)),
        Batch({"in": [1]}, ("commit.before", "commit.created")),
        Flush(("commit.before",)),
    ]


def test_several_sources_give_together_and_end_when_all_have():
    found = steps({"a": ([1, RESCALE(2), 2, EOF()], None), "b": ([7, 8, 9, EOF()], 2)})
    assert found == [Batch({"a": [1], "b": [7, 8]}), RESCALE(2), Batch({"a": [2], "b": [9]}), Flush()]


def test_nothing_comes_after_the_end():
    with pytest.raises(ConfigError, match="can follow EOF"):
        ScriptedSource([1, EOF(), 2])


def test_an_unknown_fault_point_is_refused_with_those_there_are():
    with pytest.raises(ConfigError, match=r"no fault point 'nowhere'; there are .*commit\.before"):
        ScriptedSource([1, CRASH("nowhere")])


@pytest.mark.parametrize("partitions", [1, 3])
def test_a_script_runs_through_crashes_and_rescales(partitions):
    script = [
        1,
        2,
        3,
        CRASH(),
        4,
        CRASH("commit.created"),
        CRASH("publish.before-sink"),
        RESCALE(3),
        5,
        6,
        EOF(),
        CRASH(),
    ]
    result = run_in_memory(totals(ScriptedSource(script, partitions=partitions)))
    assert [r["value"] for r in result.outputs["out"] if r["key"] == 1] == [1, 4, 9]
    assert [r["value"] for r in result.outputs["out"] if r["key"] == 0] == [2, 6, 12]
    assert result.states == {"sum": {0: 12, 1: 9}}
    assert result.checkpoint.event_count == 6
    assert result.checkpoint.parallelism == 3
    assert result.checkpoint.kind == "flush"


def test_without_an_end_the_job_can_continue():
    result = run_in_memory(totals(ScriptedSource([1, 2])))
    assert result.checkpoint.flushed is None


def test_a_pause_moves_the_clock():
    clock = Clock(5)
    result = run_script(totals(ScriptedSource([1, PAUSE(2), 2])), clock=clock)
    assert result.checkpoint.now == clock.now == 2_000_000_005


def test_an_iterable_is_a_script_without_markers():
    result = run_in_memory(totals(iterable([1, 2, 3], batch_size=2)))
    assert result.states == {"sum": {0: 2, 1: 4}}
    assert result.checkpoint.batch == 1


def test_a_source_that_needs_spark_asks_for_inputs():
    with pytest.raises(ConfigError, match=r"needs Spark; pass its records as inputs"):
        run_in_memory(totals(files("/data/in")))


def test_the_same_script_on_spark(spark):
    script = [1, 2, 3, CRASH("batch.ran"), RESCALE(3), 4, 5, 6, EOF()]
    job = totals(ScriptedSource(script, partitions=2))
    step = job.cell("step", int, default=1)
    job.source("more", ScriptedSource([7, CELL("step", 10), 7, EOF()])).map("times", lambda n: n * step.value).sink(
        "steps", collect()
    )
    result = run_script(job, spark=spark, parallelism=2)
    assert result.outputs["steps"] == [{"value": 7}, {"value": 70}]
    assert result.states == {"sum": {0: 12, 1: 9}}
    assert sorted(r["value"] for r in result.outputs["out"]) == [1, 2, 4, 6, 9, 12]
    assert result.checkpoint.event_count == 8
    assert result.checkpoint.parallelism == 3
