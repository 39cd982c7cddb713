"""YARN on loopback: Hadoop's own resource manager and node manager, each a process, stopped by its own pid."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark

from servers.java_archive import java_options
from servers.kafka_jars import yarn_jars
from servers.spark_cluster import processes_of
from servers.stores import _start, _wait, free_ports

_HOST = "127.0.0.1"
_SPARK_JARS = Path(pyspark.__file__).parent / "jars"
_QUEUES = {
    "yarn.scheduler.capacity.root.queues": "default",
    "yarn.scheduler.capacity.root.default.capacity": 100,
    "yarn.scheduler.capacity.maximum-am-resource-percent": 1,
}
_LOGGING = """
log4j.rootLogger=INFO, console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=%d{HH:mm:ss} %p %c{1}: %m%n
"""


class YarnCluster:
    """A resource manager and one node manager. `conf` is the folder for `HADOOP_CONF_DIR`."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.conf = folder, folder / "conf"
        self.conf.mkdir(parents=True)
        client, scheduler, tracker, admin, self._ui, node, localizer, node_ui = free_ports(8)
        manager = "yarn.resourcemanager"
        self._write(
            "yarn-site",
            {
                f"{manager}.hostname": _HOST,
                f"{manager}.address": f"{_HOST}:{client}",
                f"{manager}.scheduler.address": f"{_HOST}:{scheduler}",
                f"{manager}.resource-tracker.address": f"{_HOST}:{tracker}",
                f"{manager}.admin.address": f"{_HOST}:{admin}",
                f"{manager}.webapp.address": f"{_HOST}:{self._ui}",
                # What is due is looked at often: a test waits for it.
                "yarn.nodemanager.heartbeat.interval-ms": 100,
                f"{manager}.nodemanagers.heartbeat-interval-ms": 100,
                "yarn.nodemanager.hostname": _HOST,
                "yarn.nodemanager.address": f"{_HOST}:{node}",
                "yarn.nodemanager.localizer.address": f"{_HOST}:{localizer}",
                "yarn.nodemanager.webapp.address": f"{_HOST}:{node_ui}",
                "yarn.nodemanager.local-dirs": folder / "local",
                "yarn.nodemanager.log-dirs": folder / "logs",
                "yarn.nodemanager.resource.memory-mb": 4096,
                "yarn.nodemanager.resource.cpu-vcores": 8,
                "yarn.nodemanager.vmem-check-enabled": "false",
                "yarn.nodemanager.pmem-check-enabled": "false",
                "yarn.nodemanager.disk-health-checker.enable": "false",
                "yarn.scheduler.minimum-allocation-mb": 128,
            },
        )
        self._write("capacity-scheduler", _QUEUES)
        self._write("core-site", {"fs.defaultFS": "file:///"})
        (self.conf / "log4j.properties").write_text(_LOGGING)
        self._processes: list[subprocess.Popen[bytes]] = []

    def _write(self, name: str, settings: dict[str, Any]) -> None:
        lines = [f"<property><name>{key}</name><value>{value}</value></property>" for key, value in settings.items()]
        (self.conf / f"{name}.xml").write_text("\n".join(["<configuration>", *lines, "</configuration>"]))

    def start(self) -> None:
        jars = yarn_jars()
        for name in ("resourcemanager.ResourceManager", "nodemanager.NodeManager"):
            command = [shutil.which("java") or "java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
            command += ["--add-opens", "java.base/java.lang=ALL-UNNAMED", "-cp", f"{self.conf}:{jars}/*"]
            log = self.folder / f"{name}.log"
            self._processes.append(_start([*command, f"org.apache.hadoop.yarn.server.{name}"], log))
        _wait(self._ready, self._processes[-1], log)

    def _ready(self) -> bool:
        nodes = (self._get("nodes") or {}).get("nodes") or {}
        return any(node["state"] == "RUNNING" for node in nodes.get("node", ()))

    def _get(self, what: str) -> dict[str, Any] | None:
        try:
            with urllib.request.urlopen(f"http://{_HOST}:{self._ui}/ws/v1/cluster/{what}", timeout=5) as answer:
                found: dict[str, Any] = json.load(answer)
                return found
        except (OSError, json.JSONDecodeError):
            return None

    def applications(self) -> list[dict[str, Any]]:
        """Return what the resource manager says of each application, the newest last."""
        apps = ((self._get("apps") or {}).get("apps") or {}).get("app", [])
        return sorted(apps, key=lambda app: app["id"])

    def attempts(self, application: str) -> list[dict[str, Any]]:
        """Return the attempts of an application."""
        found = (self._get(f"apps/{application}/appattempts") or {}).get("appAttempts") or {}
        return found.get("appAttempt", [])

    def kill_driver(self) -> None:
        """SIGKILL to the application master of cluster mode, and to the program that it runs: the attempt dies."""
        for pid in processes_of(self._processes[1].pid):
            with contextlib.suppress(OSError):
                if "deploy.yarn.ApplicationMaster\0" in Path(f"/proc/{pid}/cmdline").read_text():
                    for each in [pid, *processes_of(pid)]:
                        with contextlib.suppress(ProcessLookupError):
                            os.kill(each, signal.SIGKILL)

    def logs(self) -> str:
        """Return the end of what each container has said."""
        return "\n".join(f"{path}:\n{path.read_text()[-3000:]}" for path in self.folder.glob("logs/*/*/std*"))

    def stop(self) -> None:
        # Containers are in sessions of their own: the node manager ends them when it is asked to end.
        for process in reversed(self._processes):
            containers = processes_of(process.pid)
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
            process.kill()
            process.wait()
            for pid in containers:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def settings(self, python: str) -> dict[str, str]:
        """Return Spark's settings for small containers that start quickly and use the jars of this installation."""
        small = {f"spark.{each}.memoryOverhead": "256m" for each in ("executor", "driver", "yarn.am")}
        options = {f"spark.{each}.extraJavaOptions": java_options() for each in ("executor", "yarn.am")}
        return {
            **small,
            **options,
            "spark.yarn.jars": f"local:{_SPARK_JARS}/*",
            "spark.yarn.stagingDir": str(self.folder / "staging"),
            "spark.executor.instances": "1",
            "spark.executor.memory": "512m",
            "spark.driver.memory": "512m",
            "spark.yarn.am.memory": "512m",
            "spark.driver.host": _HOST,
            "spark.pyspark.python": python,
            "spark.ui.enabled": "false",
        }


@contextlib.contextmanager
def running_yarn(folder: Path) -> Iterator[YarnCluster]:
    """Run YARN for a while."""
    cluster = YarnCluster(folder)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
