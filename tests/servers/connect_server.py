"""A server of Spark Connect on loopback, from the pyspark package: a process that is stopped by its own pid."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyspark

from servers.java_archive import java_options
from servers.stores import _start, free_ports
from support.waiting import eventually

_HOME = Path(pyspark.__file__).parent
_CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"


def _package() -> list[str]:
    """Return how spark-submit gets the server: from 4.1 on it is in the pyspark package, before it is a package of Maven's."""
    if list((_HOME / "jars").glob("spark-connect_*.jar")):
        return []
    return ["--packages", f"org.apache.spark:spark-connect_2.13:{pyspark.__version__}"]


@contextlib.contextmanager
def running_connect_server(
    folder: Path, python: str | Path = sys.executable, prefix: Sequence[str] = ()
) -> Iterator[str]:
    """Run a server with two cores for a while, whose tasks run with a Python; give its URL. `prefix` starts the command."""
    folder.mkdir(parents=True, exist_ok=True)
    (port,) = free_ports(1)
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": java_options(),
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
    }
    given = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    # In a folder of its own, and without the path of the tests: as on another host.
    apart = ["env", "--chdir", str(folder), "--unset", "PYTHONPATH"]
    submit = [str(_HOME / "bin" / "spark-submit"), "--class", _CLASS, "--master", "local[2]"]
    command = [*prefix, *apart, *submit, *given, *_package()]
    log = folder / "connect.log"
    environment = {"SPARK_HOME": str(_HOME), "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": str(python)}
    server: subprocess.Popen[bytes] = _start([*command, "spark-internal"], log, environment)
    try:

        def ready() -> bool:
            assert server.poll() is None, log.read_text()[-3000:]
            return "Spark Connect server started" in log.read_text()

        eventually(ready, "the server of Spark Connect started", seconds=300)
        yield f"sc://127.0.0.1:{port}"
    finally:
        server.kill()
        server.wait()
