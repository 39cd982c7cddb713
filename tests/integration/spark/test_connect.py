"""A job on a Spark Connect server, which the test starts.

Its tasks run with a Python that has neither Tidewheel nor the program on its path, in another working folder.
"""

from __future__ import annotations

import importlib
import json
import subprocess
import sys

import pytest

from servers.connect_server import running_connect_server
from servers.spark_cluster import python_without_tidewheel
from servers.tcp_proxy import TcpProxy
from tidewheel import Job, RunOptions, StoredJob
from tidewheel._spark import driver
from tidewheel._spark.session import release, session
from tidewheel.errors import ConfigError
from tidewheel.sinks import collect
from tidewheel.sources import dataframe, iterable


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    return python_without_tidewheel(tmp_path_factory.mktemp("python"))


@pytest.fixture(scope="module")
def server(tmp_path_factory, python):
    with running_connect_server(tmp_path_factory.mktemp("connect"), python) as url:
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
            until="end",
            parallelism=parallelism,
            options=RunOptions(spark=spark, shared_state=True, local=f"{tmp_path}/local"),
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
    command = [sys.executable, "-m", "tidewheel", "run", "program.py", "--until", "end", "--remote", server]
    options = ["--state", f"file://{tmp_path}/state", "--shared-state", "--local", f"{tmp_path}/local"]
    ran = subprocess.run([*command, *options], cwd=tmp_path, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr[-3000:]
    lines = [line for file in (tmp_path / "out").rglob("*.json") for line in file.read_text().splitlines()]
    assert sorted(json.loads(line)["value"] for line in lines) == [2, 4]


CODE = {
    "own_steps.py": """
import os, sys
import own_rates

def told(n):
    paths = [path for path in sys.path if "own_code" in path]
    return {"rate": own_rates.RATE, "file": own_rates.__file__, "python": sys.executable, "cwd": os.getcwd(), "paths": paths}
""",
    "own_rates.py": "RATE = 7\n",
}


def test_tasks_on_the_server_run_the_code_of_the_program(tmp_path, server, python, monkeypatch):
    folder = tmp_path / "own_code"
    folder.mkdir()
    for name, text in CODE.items():
        (folder / name).write_text(text)
    monkeypatch.syspath_prepend(str(folder))
    job, out = Job("shipped", state=f"file://{tmp_path}/state", n_shards=4), collect()
    told = importlib.import_module("own_steps").told
    job.source("in", iterable([1, 2])).key_by("by", lambda n: n).map("tell", told).sink("out", out)
    try:
        job.run(until="end", options=RunOptions(master=server, shared_state=True, local=f"{tmp_path}/local"))
    finally:
        for name in CODE:
            sys.modules.pop(name.removesuffix(".py"), None)
    assert [(record["rate"], record["python"], record["paths"]) for record in out.records] == [(7, str(python), [])] * 2
    assert not any(record["file"].startswith(str(folder)) or record["cwd"] == str(folder) for record in out.records)


def test_the_session_of_a_run_that_failed_is_released(tmp_path, server, monkeypatch):
    made = []
    monkeypatch.setattr(driver, "session", lambda *options: made.append(session(*options)) or made[-1])
    with pytest.raises(ConfigError, match="the tasks run on the hosts of Spark Connect"):
        counting(tmp_path, collect()).run(until="end", options=RunOptions(master=server))
    assert [each.is_stopped for each in made] == [True]


def test_a_session_whose_server_is_gone_is_released_without_waiting(server):
    with TcpProxy(int(server.rpartition(":")[2])) as proxy:
        url = f"sc://127.0.0.1:{proxy.port}"
        spark = session(url)
    release(spark, url)
    # Otherwise PySpark retries for ten minutes when the process exits.
    assert spark.client.is_closed


def test_a_streaming_dataframe_is_refused_with_the_way_forward(tmp_path, server):
    job = Job("frame", state=f"file://{tmp_path}/state", n_shards=4)
    job.source("ticks", dataframe(lambda spark: spark.readStream.format("rate").load())).sink("out", collect())
    with pytest.raises(
        ConfigError, match=r"source 'ticks' is a streaming DataFrame.* run the job with --master"
    ) as told:
        job.run(until="end", options=RunOptions(master=server, shared_state=True, local=f"{tmp_path}/local"))
    assert "\n" not in str(told.value)


def test_a_state_folder_that_is_not_shared_is_refused(tmp_path, server):
    with pytest.raises(ConfigError, match="the tasks run on the hosts of Spark Connect"):
        counting(tmp_path, collect()).run(until="end", options=RunOptions(master=server))


def test_a_missing_server_is_named():
    with pytest.raises(ConfigError, match=r"Spark Connect at sc://127\.0\.0\.1:1 does not answer"):
        session("sc://127.0.0.1:1")
