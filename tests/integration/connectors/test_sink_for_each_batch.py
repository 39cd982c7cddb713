"""for_each_batch: a Spark DataFrame over what was staged and committed."""

from __future__ import annotations

import pytest

from tidewheel import sinks
from tidewheel.errors import Retry, StepError


class Kept:
    """A function that keeps what it was given."""

    def __init__(self):
        self.calls = []

    def __call__(self, frame, sequence):
        rows = sorted(tuple(row.asDict().items()) for row in frame.collect())
        self.calls.append((sequence, frame.schema.simpleString(), rows))


@pytest.fixture(params=["file", "memory"])
def state(request, tmp_path):
    return str(tmp_path) if request.param == "file" else f"memory:{tmp_path.name}"


def test_the_function_gets_all_tasks_rows_and_the_sequence(harnessed, state, spark):
    kept = Kept()
    harness = harnessed(sinks.for_each_batch(kept), state, spark=spark)
    tokens = [harness.stage(2, [{"n": task}], [{"n": task + 10}], task=task) for task in range(2)]
    harness.publish(2, *tokens)
    assert kept.calls == [(2, "struct<n:bigint>", [(("n", n),) for n in (0, 1, 10, 11)])]


def test_tasks_whose_columns_differ_where_nothing_declares_them(harnessed, state, spark):
    kept = Kept()
    harness = harnessed(sinks.for_each_batch(kept), state, spark=spark)
    harness.publish(2, harness.stage(2, [{"n": 1}]), harness.stage(2, [{"n": 2.5}], task=1))
    assert kept.calls == [(2, "struct<n:double>", [(("n", 1.0),), (("n", 2.5),)])]


def test_incompatible_columns_are_an_error_that_says_what_to_declare(harnessed):
    harness = harnessed(sinks.for_each_batch(print), "memory:unlike")
    with pytest.raises(StepError, match=r"sink 'out'.*returns="):
        harness.stage(2, [{"n": 1}], [{"n": "x"}])


def test_a_function_that_fails_is_named_by_its_sink_and_sequence(harnessed, spark):
    harness = harnessed(sinks.for_each_batch(lambda frame, sequence: 1 / 0), "memory:failing", spark=spark)
    token = harness.stage(2, [{"n": None}])
    with pytest.raises(StepError, match=r"sink 'out'.*sequence 2: ZeroDivisionError"):
        harness.publish(2, token)


def test_an_error_of_the_classes_retry_is_transient(harnessed, spark):
    class Away(Exception):
        pass

    def write(frame, sequence):
        raise Away

    for sink, error in (
        (sinks.for_each_batch(write, retry=(Away,)), Retry),
        (sinks.for_each_batch(write), StepError),
    ):
        harness = harnessed(sink, "memory:away", spark=spark)
        with pytest.raises(error, match=r"sink 'out'.*sequence 2: .*Away"):
            harness.publish(2, harness.stage(2, [{"n": 1}]))


def test_an_empty_commit_does_not_call_it(harnessed):
    kept = Kept()
    harnessed(sinks.for_each_batch(kept), "memory:empty").publish(2)
    assert kept.calls == []


def test_spark_reads_published_files_but_no_staged_ones(harnessed, tmp_path, spark):
    harness = harnessed(sinks.files(tmp_path / "out", partition_by="p"), str(tmp_path / "state"))
    harness.publish(2, harness.stage(2, [{"p": "a/b", "n": 1}, {"p": None, "n": 2}]))
    harness.stage(3, [{"p": "c", "n": 3}])
    found = {(row.p, row.n) for row in spark.read.parquet(str(tmp_path / "out")).collect()}
    assert found == {("a/b", 1), (None, 2)}
