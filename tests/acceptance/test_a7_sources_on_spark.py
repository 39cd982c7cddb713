"""A7, on Spark: offsets belong to the names of sources, whatever the program does with their order."""

from __future__ import annotations

import json
import os

import pytest

from tidewheel import Job, RunOptions, StoredJob
from tidewheel._spark.driver import Driver
from tidewheel.errors import StateError
from tidewheel.sinks import discard
from tidewheel.sources import files, iterable


def counted(key, record, n):
    return None, n + 1


class Inputs:
    """Folders of files, one for each source, and a job that counts the records of each."""

    def __init__(self, tmp_path, spark):
        self.path, self.spark = tmp_path, spark
        self.written = 0

    def add(self, name: str, records: int = 3) -> None:
        folder = self.path / name
        folder.mkdir(exist_ok=True)
        self.written += 1
        file = folder / f"{self.written:03d}.json"
        unready = folder / f"_{file.name}"
        unready.write_text("".join(json.dumps({"k": name}) + "\n" for _ in range(records)))
        os.utime(unready, (1_700_000_000 + self.written,) * 2)
        unready.rename(file)

    def job(self, *names: str, folders: dict[str, str] | None = None, timed: bool = False) -> Job:
        job = Job("counts", state=f"file://{self.path}/state", n_shards=4)
        streams = []
        for name in names:
            place = self.path / (folders or {}).get(name, name)
            streams.append(job.source(name, files(place, "json", schema="k string"), type=dict))
        merged = streams[0].union("all", *streams[1:]) if len(streams) > 1 else streams[0]
        waiting = {"ttl": "10000 days", "ttl_clock": "wall"} if timed else {}
        merged.key_by("by", lambda record: record["k"]).stateful_map("n", counted, default=0, **waiting).sink(
            "out", discard()
        )
        return job

    def run(self, job: Job, **options) -> dict[str, int]:
        job.run(
            until="caught-up",
            parallelism=2,
            options=RunOptions(spark=self.spark, local=f"{self.path}/local", **options),
        )
        return self.counts()

    def run_on(self, job: Job) -> dict[str, int]:
        """Run with a clock among the sources, until a batch is committed: a tick that changes nothing is none."""
        driver: Driver

        def after(batch) -> None:
            driver.stop()

        driver = Driver(
            job,
            job.plan(),
            RunOptions(spark=self.spark, local=f"{self.path}/local", parallelism=2, tick="200 ms", progress=after),
        )
        driver.execute()
        return self.counts()

    def counts(self) -> dict[str, int]:
        return dict(StoredJob("counts", state=f"file://{self.path}/state").scan("n"))


@pytest.fixture
def inputs(tmp_path, spark):
    found = Inputs(tmp_path, spark)
    for _ in range(3):
        found.add("a")
    for _ in range(2):
        found.add("b")
    return found


def test_a7_swapped_sources_read_on_where_they_were(inputs):
    assert inputs.run(inputs.job("a", "b")) == {"a": 9, "b": 6}
    assert inputs.run(inputs.job("b", "a")) == {"a": 9, "b": 6}
    inputs.add("a")
    inputs.add("b")
    assert inputs.run(inputs.job("a", "b")) == {"a": 12, "b": 9}


def test_a7_a_source_inserted_above_another_does_not_move_the_other(inputs):
    assert inputs.run(inputs.job("b")) == {"b": 6}
    inputs.add("b")
    assert inputs.run(inputs.job("a", "b")) == {"a": 9, "b": 9}


def test_a7_a_missing_source_is_refused_unless_dropped_and_then_starts_new(inputs):
    assert inputs.run(inputs.job("a", "b")) == {"a": 9, "b": 6}
    with pytest.raises(StateError, match="has read the source 'a', which the program lacks"):
        inputs.run(inputs.job("b"))
    inputs.add("b")
    assert inputs.run(inputs.job("b"), allow_dropped_source=["a"]) == {"a": 9, "b": 9}
    assert inputs.run(inputs.job("b")) == {"a": 9, "b": 9}
    assert inputs.run(inputs.job("a", "b")) == {"a": 18, "b": 9}


def test_a7_a_renamed_source_continues_under_its_alias(inputs):
    assert inputs.run(inputs.job("a", "b")) == {"a": 9, "b": 6}
    inputs.add("a")
    renamed = inputs.job("b", "new", folders={"new": "a"})
    renamed.alias("new", "a")
    assert inputs.run(renamed) == {"a": 12, "b": 6}
    # From now on it is known by its new name.
    assert inputs.run(inputs.job("new", "b", folders={"new": "a"})) == {"a": 12, "b": 6}


def test_a7_a_source_of_another_kind_is_refused_and_both_kinds_are_named(inputs):
    assert inputs.run(inputs.job("a")) == {"a": 9}
    job = Job("counts", state=f"file://{inputs.path}/state", n_shards=4)
    rows = job.source("a", iterable([{"k": "a"}]), type=dict)
    rows.key_by("by", lambda record: record["k"]).stateful_map("n", counted, default=0).sink("out", discard())
    with pytest.raises(StateError, match="source 'a' read files and now reads iterable"):
        inputs.run(job)


def test_a7_a_source_is_added_to_a_job_that_has_a_clock(inputs):
    assert inputs.run_on(inputs.job("a", timed=True)) == {"a": 9}
    inputs.add("a")
    assert inputs.run_on(inputs.job("a", "b", timed=True)) == {"a": 12, "b": 6}
    # And without the clock, in another order.
    inputs.add("b")
    assert inputs.run(inputs.job("b", "a", timed=True)) == {"a": 12, "b": 9}


def test_a7_a_source_of_several_streams_has_all_their_offsets(inputs):
    def both(spark):
        read = spark.readStream.schema("k string")
        first = read.json(f"{inputs.path}/a")
        return first.union(read.json(f"{inputs.path}/b")).union(first.where("false"))

    def job(*names: str) -> Job:
        job = Job("counts", state=f"file://{inputs.path}/state", n_shards=4)
        made = {"both": both, "c": files(inputs.path / "c", "json", schema="k string")}
        streams = [job.source(name, made[name], type=dict) for name in names]
        merged = streams[0].union("all", *streams[1:]) if len(streams) > 1 else streams[0]
        merged.key_by("by", lambda record: record["k"]).stateful_map("n", counted, default=0).sink("out", discard())
        return job

    assert inputs.run(job("both")) == {"a": 9, "b": 6}
    inputs.add("b")
    inputs.add("c")
    assert inputs.run(job("c", "both")) == {"a": 9, "b": 9, "c": 3}
    assert inputs.run(job("both", "c")) == {"a": 9, "b": 9, "c": 3}
