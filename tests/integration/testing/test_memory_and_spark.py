"""A `MemoryRun` on the state of a job that runs on Spark, and the reverse."""

from __future__ import annotations

import json
import logging
from pathlib import Path

from tidewheel import Job, RunOptions, StoredJob
from tidewheel.sinks import collect
from tidewheel.sources import files
from tidewheel.testing import MemoryRun


def put(folder: Path, name: str, user: str, n: int) -> None:
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps({"user": user, "n": n}) + "\n")


def totals(folder: Path, name: str = "totals", source: str = "in") -> Job:
    job = Job(name, state=f"file://{folder}/state", n_shards=4)
    if source != "in":
        job.alias(source, "in")
    job.source(source, files(f"{folder}/in", format="json", schema="user string, n long")).key_by(
        "by-user", "user", value="n"
    ).stateful_map("sum", lambda user, n, total: (total + n, total + n), default=0).sink("out", collect())
    return job


def run(spark, job: Job) -> dict:
    job.run(until="caught-up", parallelism=1, options=RunOptions(spark=spark))
    return sums(job)


def sums(job: Job) -> dict:
    return dict(StoredJob(job.name, state=job.state).scan("sum"))


def test_a_run_on_spark_continues_its_positions_after_batches_in_memory(spark, tmp_path):
    put(tmp_path / "in", "a", "ada", 1)
    assert run(spark, totals(tmp_path)) == {"ada": 1}
    offsets = StoredJob("totals", state=f"file://{tmp_path}/state").show().source_offsets
    for _ in range(2):
        with MemoryRun(totals(tmp_path)) as memory:
            memory.batch({"in": [{"user": "ada", "n": 100}]})
            memory.batch({"in": [{"user": "bob", "n": 1}]})
            assert memory.run.head.source_offsets == offsets
    put(tmp_path / "in", "b", "ada", 10)
    assert run(spark, totals(tmp_path)) == {"ada": 211, "bob": 2}
    # Under another name the source goes on too, in memory and after it.
    with MemoryRun(totals(tmp_path, source="orders")) as memory:
        memory.batch({"orders": [{"user": "bob", "n": 1}]})
        assert memory.run.head.source_offsets.keys() == {"orders"}
    put(tmp_path / "in", "c", "ada", 1000)
    assert run(spark, totals(tmp_path, source="orders")) == {"ada": 1211, "bob": 3}


def test_a_memory_run_on_the_state_of_a_real_job_warns(spark, tmp_path, caplog):
    put(tmp_path / "in", "a", "ada", 1)
    run(spark, totals(tmp_path))
    with caplog.at_level(logging.WARNING, "tidewheel"), MemoryRun(totals(tmp_path)):
        pass
    (told,) = [record.getMessage() for record in caplog.records]
    assert "has read its sources" in told
    assert "tidewheel checkpoints savepoint totals" in told
    stored = StoredJob("totals", state=f"file://{tmp_path}/state")
    stored.savepoint("before")
    stored.fork("before", "trial")
    caplog.clear()
    with caplog.at_level(logging.WARNING, "tidewheel"), MemoryRun(totals(tmp_path, "trial")) as memory:
        memory.batch({"in": [{"user": "ada", "n": 5}]})
    assert not caplog.records
    assert (sums(totals(tmp_path)), sums(totals(tmp_path, "trial"))) == ({"ada": 1}, {"ada": 6})


def test_a_run_on_spark_after_a_memory_run_reads_sources_from_the_start(spark, tmp_path, caplog):
    with MemoryRun(totals(tmp_path)) as memory:
        for _ in range(2):
            memory.batch({"in": [{"user": "ada", "n": 100}]})
    put(tmp_path / "in", "a", "ada", 1)
    with caplog.at_level(logging.WARNING, "tidewheel"):
        assert run(spark, totals(tmp_path)) == {"ada": 201}
    (told,) = [record.getMessage() for record in caplog.records]
    assert "MemoryRun" in told
    assert "from their beginning" in told
    put(tmp_path / "in", "b", "ada", 10)
    assert run(spark, totals(tmp_path)) == {"ada": 211}
