"""The schema registry of the tests: Apicurio Registry, by its interface that is compatible with Confluent's.

It keeps schemas in memory and runs in a JVM of its own, on a free loopback port, stopped by its own pid.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tarfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from servers.kafka_jars import NoMavenError, one_at_a_time, registry_archive
from servers.stores import free_ports
from support.waiting import eventually

_QUICK = ("-Xmx300m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData")
_TYPE = "application/vnd.schemaregistry.v1+json"


class ApicurioRegistry:
    """One registry. What it holds is gone when it is killed."""

    def __init__(self, folder: Path) -> None:
        self._folder, (self.port,) = folder, free_ports(1)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/apis/ccompat/v7"

    def start(self) -> None:
        """Start it and wait until it answers."""
        java = shutil.which("java")
        assert java is not None
        program = unpacked() / "apicurio-registry-app-2.5.11.Final-runner.jar"
        settings = (f"-Dquarkus.http.port={self.port}", "-Dquarkus.http.host=127.0.0.1")
        with (self._folder / "registry.log").open("ab") as log:
            self._process = subprocess.Popen([java, *_QUICK, *settings, "-jar", str(program)], stdout=log, stderr=log)
        eventually(self._answers, "the schema registry", seconds=90)

    def kill(self) -> None:
        """Kill it without notice."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Send one request as another program would, and return the answer."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}{path}", data, {"Content-Type": _TYPE}, method=method)
        with urllib.request.urlopen(request, timeout=20) as response:
            return json.load(response)

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, "the schema registry has ended; see registry.log"
        try:
            return self.ask("GET", "/subjects") is not None
        except OSError:
            return False


def unpacked() -> Path:
    """Return the folder with the unpacked program."""
    folder = registry_archive()
    program = folder / "program"
    if not program.exists():
        with one_at_a_time():
            if not program.exists():
                (archive,) = folder.glob("*.tar.gz")
                fresh = folder / "fresh"
                shutil.rmtree(fresh, ignore_errors=True)
                with tarfile.open(archive) as packed:
                    packed.extractall(fresh, filter="data")
                fresh.rename(program)
    return program


@pytest.fixture(scope="session")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApicurioRegistry]:
    """One registry for the whole session; keep apart by subject, and do not kill it."""
    try:
        unpacked()
    except NoMavenError as lacking:
        pytest.skip(str(lacking))
    server = ApicurioRegistry(tmp_path_factory.mktemp("registry"))
    try:
        server.start()
        yield server
    finally:
        server.kill()
