"""A job on hosts with their own networks: one worker on each of three, and driver, master and S3 server on a fourth."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from chaos import harness
from chaos.test_cluster import PROGRAM, ROWS, batches, until
from servers.network_hosts import Host, running_hosts
from servers.spark_cluster import SparkCluster, python_without_tidewheel, running_cluster
from servers.stores import running_seaweedfs

SEED = 23
PATIENCE = {
    # How long Spark waits until it takes a silent executor for lost; two minutes by default.
    "spark.network.timeout": "20s",
    "spark.network.timeoutInterval": "5s",
    "spark.executor.heartbeatInterval": "2s",
    "spark.locality.wait": "0s",
}


def start(folder: Path, cluster: SparkCluster, host: Host, state: str, python: Path) -> subprocess.Popen[str]:
    """Start the driver on a host."""
    settings = {**cluster.conf(host.address), **PATIENCE, "spark.pyspark.python": str(python)}
    conf = [f"--conf={name}={value}" for name, value in settings.items()]
    command = [sys.executable, "-m", "tidewheel", "run", str(PROGRAM), "--master", cluster.url, "--state", state]
    options = ["--parallelism", "3", "--restarts", "50", "--backoff", "1 s", "--json"]
    with (folder / "out.log").open("a") as out, (folder / "err.log").open("a") as err:
        return subprocess.Popen(
            [*host.inside, *command, *options, *conf],
            env={**os.environ, "CLUSTER_FOLDER": str(folder), "SPARK_LOCAL_IP": host.address},
            stdout=out,
            stderr=err,
            cwd=folder,
            text=True,
            start_new_session=True,
        )


@pytest.mark.slow
def test_results_stay_exact_while_hosts_die_join_and_are_cut_off(tmp_path):
    folder = tmp_path
    everything: list[tuple[str, int]] = []

    def more(files: int) -> int:
        """Write more input; return how many batches there are when it is read."""
        first = len(list((folder / "in").glob("part-*"))) if everything else 0
        everything.extend(harness.write_input(folder, files=files, records=ROWS, seed=SEED + first, first=first))
        return first + files

    def done(number: int, what: str) -> None:
        until(process, folder, lambda: len({fact["batch"] for fact in batches(folder)}) >= number, what)

    with (
        running_hosts(5) as (center, *hosts, spare),
        running_seaweedfs(folder / "weed", center.addresses[1], center.inside) as store,
        running_cluster(folder / "cluster", center) as cluster,
    ):
        state, python = store.url("hosts"), python_without_tidewheel(folder / "python")
        workers = [cluster.add_worker(host=host) for host in hosts]
        cluster.wait_for_workers()
        end = more(2)
        process = start(folder, cluster, center, state, python)
        try:
            done(end, "the first batches on three hosts")
            end = more(3)
            done(end - 2, "a batch before a host dies")
            workers[0].kill()
            done(end, "the batches without that host")
            cluster.add_worker(host=spare)
            cluster.wait_for_workers()
            done(more(2), "batches with the host that joined")
            hosts[1].cut_off(center.addresses[1])
            end = more(2)
            until(
                process,
                folder,
                lambda: len({fact["batch"] for fact in batches(folder)}) >= end or failed(folder),
                "a failure",
            )
            hosts[1].reconnect()
            done(end, "the batches after a host was cut off from the store")
            hosts[2].cut_off(center.address)
            done(more(2), "the batches while a host is cut off from the driver")
            hosts[2].reconnect()
            end = more(3)
            done(end - 2, "a batch before the driver dies")
            harness.kill(process)
            process.wait()
            process = start(folder, cluster, spare, state, python)
            done(end, "the batches of the driver on another host")
            os.kill(process.pid, signal.SIGINT)
            assert process.wait(300) == 0, (folder / "err.log").read_text()[-3000:]
            harness.check_exact(folder, everything, state)
        finally:
            harness.kill(process)
            process.wait()


def failed(folder: Path) -> bool:
    """Return whether the run has had to start a batch again."""
    said = (folder / "err.log").read_text()
    return "runs again" in said or "restart" in said or "unreachable" in said
