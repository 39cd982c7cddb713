"""The REST catalog of the tests: Apache Iceberg's own server (RESTCatalogServer), with its tables in an SQLite file.

It runs in a JVM of its own, on a free loopback port, stopped by its own pid. Hadoop's classes come with PySpark.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from servers.kafka_jars import NoMavenError, iceberg_rest_jars
from servers.stores import free_ports
from support.waiting import eventually

_QUICK = ("-Xmx300m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData")
_MAIN = "org.apache.iceberg.rest.RESTCatalogServer"


class IcebergRest:
    """One catalog. Its tables are there again after it was killed and started."""

    def __init__(self, folder: Path) -> None:
        self._folder, (self._port,) = folder, free_ports(1)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def properties(self) -> dict[str, str]:
        """What a client needs."""
        return {"type": "rest", "uri": f"http://127.0.0.1:{self._port}"}

    def start(self) -> None:
        """Start it and wait until it answers."""
        java = shutil.which("java")
        assert java is not None
        hadoop = (Path(pyspark.__file__).parent / "jars").glob("hadoop-client-*.jar")
        classes = os.pathsep.join([f"{iceberg_rest_jars()}/*", *map(str, hadoop)])
        settings = {
            "CATALOG_REST_PORT": str(self._port),
            # Otherwise one that reads keeps another one from writing, and the server does not try again.
            "CATALOG_URI": f"jdbc:sqlite:{self._folder}/catalog.db?journal_mode=WAL&busy_timeout=60000",
            "CATALOG_WAREHOUSE": f"file://{self._folder}/lake",
        }
        with (self._folder / "rest.log").open("ab") as log:
            self._process = subprocess.Popen(
                [java, *_QUICK, "-cp", classes, _MAIN], stdout=log, stderr=log, env={**os.environ, **settings}
            )
        eventually(self._answers, "the REST catalog", seconds=90)

    def kill(self) -> None:
        """Kill it without notice."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, "the REST catalog has ended; see rest.log"
        try:
            with urllib.request.urlopen(f"{self.properties['uri']}/v1/config", timeout=5) as response:
                return response.status == 200
        except OSError:
            return False


@pytest.fixture(scope="session")
def iceberg_rest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IcebergRest]:
    """One catalog for the whole session; keep apart by table, and start it again after killing it."""
    try:
        iceberg_rest_jars()
    except NoMavenError as lacking:
        pytest.skip(str(lacking))
    server = IcebergRest(tmp_path_factory.mktemp("iceberg"))
    try:
        server.start()
        yield server
    finally:
        server.kill()
