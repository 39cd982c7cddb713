"""A job on hosts with their own networks: one worker on each of two or three, and driver, master and S3 server on another."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from chaos import harness
from chaos.test_cluster import PROGRAM, ROWS, batches, until
from servers.network_hosts import Host, grow, running_hosts, small_disk
from servers.spark_cluster import SparkCluster, Worker, python_without_tidewheel, running_cluster
from servers.stores import running_seaweedfs

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes network namespaces and mounts disks")

SEED = 23
SETTINGS = {
    # How long Spark waits until it takes a silent executor for lost; two minutes by default.
    "spark.network.timeout": "20s",
    "spark.network.timeoutInterval": "5s",
    "spark.executor.heartbeatInterval": "2s",
    "spark.locality.wait": "0s",
    # A task that failed on a host with a full disk runs on another one.
    "spark.excludeOnFailure.taskAndStage.enabled": "true",
}


class JobOnHosts:
    """The chaos job, with its driver on one of the hosts."""

    def __init__(self, folder: Path, cluster: SparkCluster, state: str, tasks: int) -> None:
        self._folder, self._cluster, self._state, self._tasks = folder, cluster, state, tasks
        self._python = python_without_tidewheel(folder / "python")
        self._everything: list[tuple[str, int]] = []
        self._files = 0
        self._process: subprocess.Popen[str] | None = None

    def start(self, host: Host) -> None:
        """Start the driver on a host."""
        settings = {**self._cluster.conf(host.address), **SETTINGS, "spark.pyspark.python": str(self._python)}
        conf = [f"--conf={name}={value}" for name, value in settings.items()]
        command = [sys.executable, "-m", "tidewheel", "run", str(PROGRAM), "--master", self._cluster.url]
        options = ["--state", self._state, "--parallelism", str(self._tasks), "--restarts", "50", "--backoff", "1 s"]
        with (self._folder / "out.log").open("a") as out, (self._folder / "err.log").open("a") as err:
            self._process = subprocess.Popen(
                [*host.inside, *command, *options, "--json", *conf],
                env={**os.environ, "CLUSTER_FOLDER": str(self._folder), "SPARK_LOCAL_IP": host.address},
                stdout=out,
                stderr=err,
                cwd=self._folder,
                text=True,
                start_new_session=True,
            )

    def kill(self) -> None:
        """Kill the driver."""
        if self._process is not None:
            harness.kill(self._process)
            self._process.wait()

    def more(self, files: int) -> int:
        """Write more input; return how many batches there are when it is read."""
        first, self._files = self._files, self._files + files
        self._everything += harness.write_input(self._folder, files, ROWS, SEED + first, first)
        return self._files

    def until(self, condition: Callable[[], object], what: str) -> None:
        """Wait for a condition while the driver runs."""
        assert self._process is not None
        until(self._process, self._folder, condition, what)

    def done(self, number: int, what: str) -> None:
        """Wait until so many batches are committed."""
        self.until(lambda: self.is_done(number), what)

    def is_done(self, number: int) -> bool:
        return len({fact["batch"] for fact in batches(self._folder)}) >= number

    def failures(self) -> int:
        """Return how often the driver has reported that something failed."""
        return len(re.findall("runs again|restart|unreachable", self._said()))

    def stop_and_check(self) -> None:
        """Stop the driver; check that state and sinks are exact."""
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGINT)
        assert self._process.wait(300) == 0, self._said()[-3000:]
        harness.check_exact(self._folder, self._everything, self._state)

    def _said(self) -> str:
        return (self._folder / "err.log").read_text()


@contextlib.contextmanager
def job_on(hosts: list[Host], folder: Path, tasks: int) -> Iterator[tuple[JobOnHosts, SparkCluster]]:
    """Run master and store on the first host, and make a job whose driver is not started yet."""
    center = hosts[0]
    with (
        running_seaweedfs(folder / "weed", center.addresses[1], center.inside) as store,
        running_cluster(folder / "cluster", center) as cluster,
    ):
        job = JobOnHosts(folder, cluster, store.url("hosts"), tasks)
        try:
            yield job, cluster
        finally:
            job.kill()


def said_by_executors(worker: Worker) -> str:
    return "".join(log.read_text() for log in worker.folder.glob("work/*/*/stderr"))


def test_results_stay_exact_while_a_disk_is_full_and_a_network_slow(tmp_path):
    with (
        running_hosts(3) as hosts,
        small_disk(tmp_path / "disk", "64k") as disk,
        job_on(hosts, tmp_path, tasks=2) as (job, cluster),
    ):
        center, one, other = hosts
        full = cluster.add_worker({"TIDEWHEEL_LOCAL": str(disk)}, one)
        cluster.add_worker(host=other)
        cluster.wait_for_workers()
        end = job.more(1)
        job.start(center)
        job.until(full.has_executor, "an executor on the host with the full disk")
        job.done(end, "the first batch")
        # New processes have no states in memory and need copies.
        job.kill()
        job.start(center)
        job.done(job.more(2), "the batches while a disk is full")
        job.until(lambda: "the local disk is full" in said_by_executors(full), "a task that failed on that host")
        grow(disk, "64m")
        one.slow_down("1mbit")
        job.done(job.more(2), "the batches while a network is slow")
        one.speed_up()
        assert any(disk.glob("chaos-*/*/data.mdb"))
        job.stop_and_check()


@pytest.mark.slow
def test_results_stay_exact_while_hosts_die_join_and_are_cut_off(tmp_path):
    with running_hosts(5) as all_hosts, job_on(all_hosts, tmp_path, tasks=3) as (job, cluster):
        center, *hosts, spare = all_hosts
        workers = [cluster.add_worker(host=host) for host in hosts]
        cluster.wait_for_workers()
        end = job.more(2)
        job.start(center)
        job.done(end, "the first batches on three hosts")
        end = job.more(3)
        job.done(end - 2, "a batch before a host dies")
        workers[0].kill()
        job.done(end, "the batches without that host")
        cluster.add_worker(host=spare)
        cluster.wait_for_workers()
        job.done(job.more(2), "batches with the host that joined")
        before = job.failures()
        hosts[1].cut_off(center.addresses[1])
        end = job.more(2)
        job.until(lambda: job.is_done(end) or job.failures() > before, "a failure")
        hosts[1].reconnect()
        job.done(end, "the batches after a host was cut off from the store")
        hosts[2].cut_off(center.address)
        job.done(job.more(2), "the batches while a host is cut off from the driver")
        hosts[2].reconnect()
        end = job.more(3)
        job.done(end - 2, "a batch before the driver dies")
        job.kill()
        job.start(spare)
        job.done(end, "the batches of the driver on another host")
        job.stop_and_check()
