"""A job on a server of Spark Connect, which the test starts."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from connect_server import running_connect_server
from tidewheel import Job, StoredJob
from tidewheel._spark.session import session
from tidewheel.errors import ConfigError
from tidewheel.sinks import collect
from tidewheel.sources import iterable


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with running_connect_server(tmp_path_factory.mktemp("connect")) as url:
        yield url


ROWS = 60_000


def counting(folder, out) -> Job:
    job = Job("remote", state=f"file://{folder}/state", n_shards=8)
    numbers = job.source("in", iterable([{"n": n, "text": "x" * 20} for n in range(ROWS)], batch_size=ROWS // 2))
    counted = numbers.key_by("by", lambda record: record["n"] % 7)
    counted.stateful_map("count", lambda key, record, count: (None, count + 1), default=0).sink("out", out)
    return job


@pytest.mark.parametrize("parallelism", [1, 2])
def test_a_job_runs_on_spark_connect_with_and_without_a_shuffle(tmp_path, server, parallelism):
    job = counting(tmp_path, collect())
    spark = session(server)
    try:
        result = job.run(
            bounded=True, spark=spark, shared_state=True, parallelism=parallelism, local=f"{tmp_path}/local"
        )
    finally:
        spark.stop()
    assert result.event_count == ROWS
    assert sum(count for _, count in StoredJob("remote", state=job.state).scan("count")) == ROWS


PROGRAM = """
from tidewheel import Job, sinks, sources

job = Job("remote", n_shards=4)
numbers = job.source("in", sources.iterable([1, 2, 3]))
numbers.key_by("by", lambda n: n % 2).reduce("sum", lambda a, b: a + b).sink("out", sinks.files("out", format="json"))
"""


def test_the_command_line_runs_a_program_on_spark_connect(tmp_path, server):
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "tidewheel", "run", "program.py", "--bounded", "--remote", server]
    options = ["--state", f"file://{tmp_path}/state", "--shared-state", "--local", f"{tmp_path}/local"]
    ran = subprocess.run([*command, *options], cwd=tmp_path, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr[-3000:]
    lines = [line for file in (tmp_path / "out").rglob("*.json") for line in file.read_text().splitlines()]
    assert sorted(json.loads(line)["value"] for line in lines) == [2, 4]


def test_a_state_folder_that_is_not_shared_is_refused(tmp_path, server):
    with pytest.raises(ConfigError, match="the tasks run on the hosts of Spark Connect"):
        counting(tmp_path, collect()).run(bounded=True, master=server)


def test_a_server_that_is_not_there_is_named():
    with pytest.raises(ConfigError, match=r"Spark Connect at sc://127\.0\.0\.1:1 does not answer"):
        session("sc://127.0.0.1:1")
