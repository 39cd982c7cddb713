"""A handle on a run: two jobs in one process and one Spark, observed, queried, rescaled and stopped while they run."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import pytest
from typer.testing import CliRunner

from support.internals import app
from support.waiting import IN_TIME, eventually
from tidewheel import Job, RunOptions
from tidewheel.errors import StepError
from tidewheel.sinks import collect
from tidewheel.sources import files, iterable


def summing(folder: Path, name: str) -> Job:
    job = Job(name, state=f"file://{folder}/state", n_shards=4)
    (folder / name).mkdir()
    numbers = job.source("in", files(str(folder / name), "json", schema="key string, n long"))
    totals = numbers.key_by("by-key", "key", value="n").stateful_map(
        "total", lambda key, n, total: (total + n, total + n), default=0
    )
    totals.sink("out", collect())
    return job


def add(folder: Path, job: str, number: int, n: int) -> None:
    path = folder / job / f"_{number}.json"
    path.write_text(json.dumps({"key": "ada", "n": n}) + "\n")
    path.rename(folder / job / f"{number}.json")


def test_two_jobs_in_one_spark_are_queried_rescaled_and_stopped(spark, tmp_path):
    local = str(tmp_path / "local")
    jobs = [summing(tmp_path, name) for name in ("first", "second")]
    with (
        jobs[0].start(parallelism=1, options=RunOptions(local=local, spark=spark)) as first,
        jobs[1].start(parallelism=1, options=RunOptions(local=local)) as second,
    ):
        for number, run in enumerate((first, second)):
            add(tmp_path, run.job.name, 1, 10 + number)
        eventually(lambda: first.progress and second.progress, "a batch of each job")
        assert [run.status.state for run in (first, second)] == ["running", "running"]
        assert [run.query("total", "ada").value for run in (first, second)] == [10, 11]
        eventually(lambda: first.progress[0].durations, "Spark's durations")
        first.rescale(2)
        add(tmp_path, "first", 2, 100)
        eventually(lambda: len(first.progress) == 2, "the second batch")
        assert first.query("total", "ada").value == 110
        assert "<td>" in first._repr_html_()
        first.stop()
        result = first.wait(IN_TIME)
        assert (result.stopped, result.event_count, first.status.state) == (True, 2, "stopped")
        assert second.status.state == "running"
    assert second.wait().stopped


def test_tidewheel_stop_ends_the_run_that_has_the_job_and_not_the_next_one(spark, tmp_path):
    job, url = summing(tmp_path, "stopped"), f"file://{tmp_path}/state"
    options = RunOptions(parallelism=1, local=str(tmp_path / "local"), spark=spark)
    add(tmp_path, "stopped", 1, 10)
    with job.start(options=options) as run:
        eventually(lambda: run.progress, "a batch")
        shown = CliRunner().invoke(app, ["status", "stopped", "--state", url]).stdout
        assert f"stopped: runs on {socket.gethostname()}, process {os.getpid()} since " in shown
        ended = CliRunner().invoke(app, ["stop", "stopped", "--state", url])
        assert (ended.exit_code, "has ended" in ended.stdout) == (0, True), ended.output
        assert run.wait(IN_TIME).stopped
    assert "stopped: does not run" in CliRunner().invoke(app, ["status", "stopped", "--state", url]).stdout
    add(tmp_path, "stopped", 2, 100)
    with job.start(options=options) as again:
        eventually(lambda: again.progress, "a batch of the next run")
        assert again.status.state == "running"
        assert again.query("total", "ada").value == 110


def test_a_run_that_fails_has_the_error_as_its_status_and_wait_raises_it(spark, tmp_path):
    job = Job("failing", state=f"file://{tmp_path}/state", n_shards=4)
    job.source("in", iterable([1, 0])).map("inverse", lambda n: 1 / n).sink("out", collect())
    run = job.start(until="end", parallelism=1, options=RunOptions(local=str(tmp_path / "local"), spark=spark))
    with pytest.raises(StepError, match="inverse"):
        run.wait()
    assert run.status.state == "failed"
    assert isinstance(run.status.error, StepError)
