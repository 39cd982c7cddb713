"""A9: restarts continue from the last commit; a program error that repeats stops with step, key and record named."""

from __future__ import annotations

import uuid

import pytest

from support.internals import faults, open_store
from tidewheel import RunOptions
from tidewheel._observe.history import History
from tidewheel.errors import StepError
from tidewheel.sinks import collect
from tidewheel.sources import files, iterable
from tidewheel.testing import MemoryRun


@pytest.fixture(autouse=True)
def disarmed():
    yield
    faults.arm("")


def summed(job, source, out, function=lambda key, value, total: (total + value, total + value)):
    source.key_by("parity", lambda number: number % 2).stateful_map("sum", function, default=0).sink("out", out)
    return job


def spark_run(job, spark, tmp_path, **options):
    return job.run(
        until="end",
        parallelism=2,
        options=RunOptions(spark=spark, local=f"{tmp_path}/local", backoff="10 ms", **options),
    )


@pytest.mark.parametrize("point", ["batch.ran", "commit.before", "commit.created", "publish.before-sink"])
def test_a9_a_failure_is_survived_from_the_last_commit(spark, runner_spark, tmp_path, point):
    job, out = runner_spark.job(), collect()
    summed(job, job.source("in", iterable(list(range(20)), batch_size=5)), out)
    faults.arm(f"{point}=raise@2")
    result = spark_run(job, spark, tmp_path, restarts=1)
    assert result.event_count == 20
    assert sorted(r["value"] for r in out.records if r["key"] == 0) == [0, 2, 6, 12, 20, 30, 42, 56, 72, 90]
    assert len(out.records) == 20


def test_a9_a_retried_failure_is_recorded_with_the_same_text_as_a_final_one(spark, runner_spark, tmp_path):
    job = runner_spark.job()
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.parquet").write_bytes(b"this is no file of that kind")
    job.source("in", files(f"file://{tmp_path}/in", format="parquet", schema="n int")).sink("out", collect())
    with pytest.raises(StepError, match=r"a\.parquet cannot be read as a Parquet file"):
        spark_run(job, spark, tmp_path, restarts=1)
    again, last = History(open_store(job.state)).errors(job.name)
    assert (again.restarted, last.restarted) == (True, False)
    assert (again.text, again.kind) == (last.text, last.kind)


def test_a9_a_failure_outside_of_a_batch_is_recorded_without_a_batch(spark, runner_spark, tmp_path):
    """An earlier failure of a batch does not count: that batch may have succeeded since."""
    job = summed(job := runner_spark.job(), job.source("in", iterable([1, 2])), collect())
    faults.arm("batch.ran=raise;start.published=raise@2")
    spark_run(job, spark, tmp_path, restarts=2)
    errors = History(open_store(job.state)).errors(job.name)
    assert [error.batch for error in errors] == [0, None]


def test_a9_without_restarts_the_failure_is_raised(spark, runner_spark, tmp_path):
    job = summed(job := runner_spark.job(), job.source("in", iterable([1, 2])), collect())
    faults.arm("batch.ran=raise")
    with pytest.raises(faults.InjectedFault):
        spark_run(job, spark, tmp_path)


def test_a9_a_repeated_program_error_stops_and_names_step_key_and_record(spark, runner_spark, tmp_path):
    def divide(key: int, value: int, total: int) -> tuple[float, int]:
        return 1 / (value - 7), total

    job = summed(
        job := runner_spark.job(), job.source("in", iterable(list(range(10)), batch_size=5)), collect(), divide
    )
    with pytest.raises(StepError) as caught:
        spark_run(job, spark, tmp_path, restarts=50)
    text = str(caught.value)
    assert "step 'sum'" in text
    assert "key 1" in text
    assert "record 7" in text
    assert "ZeroDivisionError" in text


def test_a9_a_rejected_record_is_in_the_dead_letters_of_the_same_commit(runner):
    def divide(key: int, value: int, total: int) -> tuple[float, int]:
        return 12 / (value - 3), total + 1

    job, out, dead = runner.job(), collect(), collect()
    job.dead_letter("rejected", dead)
    summed(job, runner.source(job, "in", [1, 2, 3, 4, 5], batch=5), out, divide)
    runner.run(job)
    assert sorted(record["value"] for record in out.records) == [-12.0, -6.0, 6.0, 12.0]
    (letter,) = dead.records
    assert (letter["step"], letter["key"], letter["record"]) == ("sum", "1", "3")
    assert "ZeroDivisionError" in letter["error"]


def test_a9_a_rejected_record_leaves_the_state_as_it_was(memory_runner):
    def gather(key: int, value: int, seen: list[int]) -> tuple[int, list[int]]:
        seen.append(value)
        if value == 2:
            raise ValueError("no twos")
        return len(seen), seen

    job, out, dead = memory_runner.job(), collect(), collect()
    job.dead_letter("rejected", dead)
    source = job.source("in", iterable([]), type=int)
    source.key_by("one", lambda number: 0).stateful_map("gather", gather, default=list).sink("out", out)
    with MemoryRun(job) as run:
        run.batch({"in": [1, 2, 3]})
        run.batch({"in": [2, 4]})
    assert [record["value"] for record in out.records] == [1, 2, 3]
    assert len(dead.records) == 2


@pytest.mark.parametrize("step", ["map", "map_batches"])
def test_a9_an_unavailable_service_delays_the_batch_and_loses_no_record(spark, runner_spark, tmp_path, step):
    """Tasks count their calls in a folder: the service refuses the first five of them."""
    calls = tmp_path / "calls"
    calls.mkdir()

    def asked(value):
        (calls / uuid.uuid4().hex).touch()
        if len(list(calls.iterdir())) <= 5:
            raise ConnectionRefusedError("the service is away")
        return value

    job, out, dead = runner_spark.job(), collect(), collect()
    job.dead_letter("dead", dead)
    stream = job.source("in", iterable([{"n": n} for n in range(8)], batch_size=4))
    (stream.map(step, asked) if step == "map" else stream.map_batches(step, asked)).sink("out", out)
    spark_run(job, spark, tmp_path, restarts=8)
    assert sorted(record["n"] for record in out.records) == list(range(8))
    assert dead.records == []
    errors = History(open_store(job.state)).errors(job.name)
    assert {(error.kind, error.restarted) for error in errors} == {("Retry", True)}
