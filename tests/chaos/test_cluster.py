"""A job on a standalone Spark of several workers, each with its own folder for local copies, the state in a bucket."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from chaos import harness
from servers.spark_cluster import SparkCluster, python_without_tidewheel, running_cluster
from support.waiting import eventually
from tidewheel._engine.control import cells_url, rescale

PROGRAM = Path(__file__).with_name("cluster_program.py")
SEED = 17
ROWS = 11_000
"""More than a batch may have that runs in one task without a shuffle."""


@pytest.fixture
def cluster(tmp_path):
    with running_cluster(tmp_path / "cluster") as started:
        yield started


def start(folder: Path, cluster: SparkCluster, state: str, python: Path, *options: str) -> subprocess.Popen[str]:
    """Start `tidewheel run` of the program on the cluster, from a folder where nothing can be imported."""
    settings = {**cluster.conf(), "spark.pyspark.python": str(python)}
    conf = [f"--conf={name}={value}" for name, value in settings.items()]
    command = [sys.executable, "-m", "tidewheel", "run", str(PROGRAM), "--master", cluster.url, "--state", state]
    with (folder / "out.log").open("w") as out, (folder / "err.log").open("w") as err:
        return subprocess.Popen(
            [*command, "--parallelism", "2", "--json", *conf, *options],
            env={**os.environ, "CLUSTER_FOLDER": str(folder)},
            stdout=out,
            stderr=err,
            cwd=folder,
            text=True,
            start_new_session=True,
        )


def batches(folder: Path) -> list[dict]:
    lines = [line for line in (folder / "out.log").read_text().splitlines() if line.startswith("{")]
    return [fact for fact in map(json.loads, lines) if "parallelism" in fact]


def until(process: subprocess.Popen[str], folder: Path, condition, what: str) -> None:
    def ended_or_so() -> bool:
        ended = process.poll() is not None
        assert not ended, f"the run ended before {what}\n{(folder / 'err.log').read_text()[-6000:]}"
        return condition()

    eventually(ended_or_so, what, seconds=600)


def test_a_worker_dies_in_a_batch_another_joins_and_parallelism_changes(tmp_path, cluster, seaweedfs):
    """Two levels of a batch are done or under way on both workers when one is killed: its part of the shuffle is gone."""
    state = seaweedfs.url("cluster")
    python = python_without_tidewheel(tmp_path / "python")
    first = cluster.add_worker()
    # Two deltas a batch: it stands still in the second level of the third one.
    doomed = cluster.add_worker({"TIDEWHEEL_FAULTS": "task.delta=stop@6"})
    cluster.wait_for_workers()
    everything = harness.write_input(tmp_path, files=5, records=ROWS, seed=SEED)
    process = start(tmp_path, cluster, state, python)
    try:
        until(process, tmp_path, doomed.is_held, "a task on the second worker was stopped")
        doomed.kill()
        rescale(cells_url(state, "chaos"), 3)
        until(process, tmp_path, lambda: len(batches(tmp_path)) == 5, "the batches were done without that worker")
        joined = cluster.add_worker()
        until(process, tmp_path, joined.has_executor, "an executor started on the new one")
        rescale(cells_url(state, "chaos"), 4)
        everything += harness.write_input(tmp_path, files=4, records=ROWS, seed=SEED + 1, first=5)
        until(process, tmp_path, lambda: len(batches(tmp_path)) == 9, "all batches were committed")
        os.kill(process.pid, signal.SIGINT)
        assert process.wait(300) == 0, (tmp_path / "err.log").read_text()[-3000:]
    finally:
        harness.kill(process)
        process.wait()
    harness.check_exact(tmp_path, everything, state)
    assert re.search(r"was lost; batch \d runs again from commit \d", (tmp_path / "err.log").read_text())
    assert {fact["parallelism"] for fact in batches(tmp_path)} == {2, 3, 4}
    assert all(any(worker.local.glob("chaos-*/*")) for worker in (first, joined)), "each host has copies of its own"


def test_a_host_that_lacks_a_package_is_named_with_it(tmp_path, cluster, seaweedfs):
    cluster.add_worker()
    cluster.wait_for_workers()
    harness.write_input(tmp_path, files=1, records=1, seed=SEED)
    python = python_without_tidewheel(tmp_path / "python", "msgspec", "lmdb")
    process = start(tmp_path, cluster, seaweedfs.url("cluster-poor"), python)
    assert process.wait(300) == 1
    said = (tmp_path / "err.log").read_text()
    assert "lmdb, msgspec" in said
    assert str(python) in said
