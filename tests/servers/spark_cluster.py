"""A standalone Spark on loopback: a master and workers from the pyspark package, each a process, stopped by its own pid."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
import venv
from collections.abc import Iterator
from pathlib import Path

import pyspark

from servers.java_archive import java_options
from servers.network_hosts import Host
from servers.stores import _start, free_ports
from support.waiting import SOON

_HOST = "127.0.0.1"
_HOME = Path(pyspark.__file__).parent


class Worker:
    """A worker of the cluster: one core, and an address, a disk and a folder for local copies of its own, as a host has them."""

    def __init__(self, process: subprocess.Popen[bytes], folder: Path) -> None:
        self.process, self.folder = process, folder

    @property
    def local(self) -> Path:
        return self.folder / "local"

    def is_held(self) -> bool:
        """Tell whether a fault point has stopped a task here."""
        return "T" in processes_of(self.process.pid).values()

    def has_executor(self) -> bool:
        """Tell whether an executor here is ready for tasks."""
        return any(
            "Successfully registered with driver" in log.read_text() for log in self.folder.glob("work/*/*/stderr")
        )

    def kill(self) -> None:
        """SIGKILL to the worker, its executors and their Python processes, and its disk is lost: the host is gone."""
        for pid in [self.process.pid, *processes_of(self.process.pid)]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


class SparkCluster:
    """A master, and the workers that were started."""

    def __init__(self, folder: Path, host: Host | None = None) -> None:
        """Start the master, on a host with a network of its own or on loopback."""
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.workers: list[Worker] = []
        port, self._ui = free_ports(2)
        self._address = _HOST if host is None else host.address
        self.url = f"spark://{self._address}:{port}"
        self._log = folder / "master.log"
        arguments = ("--port", str(port), "--webui-port", str(self._ui))
        self._master = _spark_class("master.Master", self._address, self._log, *arguments, host=host)

    def status(self) -> dict | None:
        """Return what the master says of itself, or None while it does not answer.

        A master that has just begun answers every path with its front page until the one for JSON is in place.
        """
        try:
            with urllib.request.urlopen(f"http://{self._address}:{self._ui}/json/", timeout=2) as answer:
                return json.load(answer)
        except (OSError, json.JSONDecodeError):
            return None

    def add_worker(self, env: dict[str, str] | None = None, host: Host | None = None) -> Worker:
        """Start a worker, not waiting until it serves; `env` is seen by the executors and the tasks on it."""
        number = len(self.workers)
        address = f"127.0.0.{2 + number}" if host is None else host.address
        folder = self.folder / f"worker-{number}"
        folder.mkdir()
        worker = Worker(
            _spark_class(
                *("worker.Worker", address, folder / "worker.log", "--port", "0", "--webui-port", "0"),
                *("--cores", "1", "--memory", "1g", "--work-dir", str(folder / "work"), self.url),
                env={"TIDEWHEEL_LOCAL": str(folder / "local"), "SPARK_LOCAL_DIRS": str(folder), **(env or {})},
                host=host,
            ),
            folder,
        )
        self.workers.append(worker)
        return worker

    def wait_for_workers(self) -> None:
        """Wait until every worker that was started and not killed has joined."""
        alive = [worker for worker in self.workers if worker.process.poll() is None]
        deadline = time.monotonic() + SOON
        while self._alive() < len(alive):
            logs = [self._log, *(worker.folder / "worker.log" for worker in alive)]
            said = "\n".join(log.read_text()[-2000:] for log in logs)
            assert time.monotonic() < deadline, f"the cluster did not get ready\n{said}"
            time.sleep(0.05)

    def _alive(self) -> int:
        status = self.status() or {"workers": []}
        return sum(worker["state"] == "ALIVE" for worker in status["workers"])

    def stop(self) -> None:
        for worker in self.workers:
            worker.kill()
        self._master.kill()
        self._master.wait()

    def conf(self, address: str = _HOST) -> dict[str, str]:
        """Return the settings with which a driver at an address uses this cluster, and its JVMs start quickly."""
        return {
            "spark.driver.host": address,
            "spark.driver.bindAddress": address,
            "spark.driver.memory": "1g",
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": java_options(),
            "spark.shuffle.io.retryWait": "1s",
        }


@contextlib.contextmanager
def running_cluster(folder: Path, host: Host | None = None) -> Iterator[SparkCluster]:
    """Run a cluster without workers for a while."""
    cluster = SparkCluster(folder, host)
    try:
        yield cluster
    finally:
        cluster.stop()


def python_without_tidewheel(folder: Path, *also: str) -> Path:
    """Make a Python that has what this one has installed, but not Tidewheel, nor the packages named: as on another host."""
    venv.create(folder, with_pip=False, symlinks=True)
    own = next((folder / "lib").glob("python*")) / "site-packages"
    installed = next(Path(path) for path in sys.path if path.endswith("site-packages"))
    if also:
        for entry in installed.iterdir():
            if entry.name.partition(".")[0] not in also and not entry.name.endswith((".pth", ".dist-info")):
                (own / entry.name).symlink_to(entry)
    else:
        # A folder that is added so brings its packages, but what it adds itself, such as an editable Tidewheel, it does not.
        (own / "others.pth").write_text(f"{installed}\n")
    return folder / "bin" / "python"


def _spark_class(
    name: str, address: str, log: Path, *arguments: str, env: dict[str, str] | None = None, host: Host | None = None
) -> subprocess.Popen[bytes]:
    command = [str(_HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", "--host", address, *arguments]
    return _start(
        [*(() if host is None else host.inside), *command],
        log,
        {
            "SPARK_HOME": str(_HOME),
            "SPARK_LOCAL_IP": address,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": java_options(),
            **(env or {}),
        },
    )


def processes_of(pid: int) -> dict[int, str]:
    """Return the processes that a process has started, and those that they have, with the letter of their state."""
    children: dict[int, list[tuple[int, str]]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            # The name, in parentheses, may have spaces.
            state, parent = path.read_text().rpartition(")")[2].split()[:2]
            children.setdefault(int(parent), []).append((int(path.parent.name), state))
    found: dict[int, str] = {}
    waiting = [pid]
    while waiting:
        for child, state in children.get(waiting.pop(), []):
            found[child] = state
            waiting.append(child)
    return found
