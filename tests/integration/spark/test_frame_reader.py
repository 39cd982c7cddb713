"""Streaming DataFrames of users: read by a query of Spark, committed with everything else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tidewheel import Job, RunOptions, StoredJob, sinks, sources
from tidewheel._core import faults
from tidewheel.errors import ConfigError, StateError

SCHEMA = "user string, n long"


class Program:
    """A job that sums up what a DataFrame over files gives, beside an iterable."""

    def __init__(self, path: Path, spark) -> None:
        self.path, self.spark = path, spark
        (path / "in").mkdir()

    def put(self, name: str, user: str, n: int) -> None:
        (self.path / "in" / f"{name}.json").write_text(json.dumps({"user": user, "n": n}) + "\n")

    def frame(self, spark):
        return spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(self.path / "in"))

    def job(self, items: int = 0, function=None) -> Job:
        job = Job("sums", state=f"file://{self.path}/state", n_shards=4)
        both = job.source("frame", sources.dataframe(function or self.frame))
        if items:
            given = [{"user": "items", "n": 1}] * items
            both = both.union("both", job.source("items", sources.iterable(given, batch_size=2)))
        keyed = both.key_by("by-user", "user")
        keyed.stateful_map("sum", lambda key, row, n: (row, n + row["n"]), default=0).sink("out", sinks.discard())
        return job

    def run(self, job: Job, **options) -> dict[str, int]:
        chosen = RunOptions(until="caught-up", spark=self.spark, local=f"{self.path}/local", **options)
        self.result = job.run(options=chosen)
        return dict(StoredJob("sums", state=job.state).scan("sum"))


@pytest.fixture
def program(tmp_path, spark):
    return Program(tmp_path, spark)


def test_a_dataframe_and_our_own_sources_are_read_together_and_continue(program, caplog):
    program.put("a", "ada", 1)
    program.put("b", "bob", 2)
    assert program.run(program.job(items=5)) == {"ada": 1, "bob": 2, "items": 5}
    assert "step 'sum' (stateful_map) may give other results at every run: source 'frame' does not" in caplog.text
    assert [batch.rows for batch in program.result.batches] == [3, 3, 1]
    program.put("c", "ada", 10)
    assert program.run(program.job(items=6)) == {"ada": 11, "bob": 2, "items": 6}
    assert program.run(program.job(items=6)) == {"ada": 11, "bob": 2, "items": 6}, "nothing is read twice"


@pytest.mark.parametrize("point", ["batch.ran", "commit.before", "commit.created"])
def test_a_batch_that_fails_is_exact_after_a_restart(program, point):
    for number, user in enumerate(["ada", "bob", "ada"]):
        program.put(str(number), user, 10**number)
    faults.arm(f"{point}=raise@2")
    try:
        assert program.run(program.job(), restarts=1, backoff="10 ms") == {"ada": 101, "bob": 10}
    finally:
        faults.arm("")


def test_an_unbounded_run_reads_later_records_and_stops(program):
    program.put("a", "ada", 1)
    seen = []

    def progress(batch) -> None:
        seen.append(batch.rows)
        if len(seen) == 1:
            program.put("b", "bob", 2)
        elif len(seen) == 2:
            run.stop()

    run = program.job().start(options=RunOptions(spark=program.spark, local=f"{program.path}/local", progress=progress))
    run.wait("5 min")
    assert seen == [1, 1]
    assert program.run(program.job()) == {"ada": 1, "bob": 2}


def test_a_function_that_gives_no_streaming_dataframe_is_refused(program):
    with pytest.raises(ConfigError, match=r"'frame': it gave a DataFrame that is not streaming; use spark.readStream"):
        program.run(program.job(function=lambda spark: spark.range(3).selectExpr("'x' as user", "id as n")))


def test_a_function_that_fails_is_named_with_its_source(program):
    with pytest.raises(ConfigError, match=r"source 'frame' .*cannot be read: no such thing"):
        program.run(program.job(function=lambda spark: (_ for _ in ()).throw(ValueError("no such thing"))))


def test_a_dataframe_of_other_streams_cannot_continue(program):
    program.put("a", "ada", 1)
    program.run(program.job())

    def twice(spark):
        read = spark.readStream.schema(SCHEMA)
        return read.json(str(program.path / "in")).union(read.json(str(program.path / "in")))

    with pytest.raises(StateError, match=r"'frame' read files and now reads 2 streams \(files, files\)"):
        program.run(program.job(function=twice))
