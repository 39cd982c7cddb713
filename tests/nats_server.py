"""A real NATS server with JetStream for tests, on a free loopback port, stopped by its own pid."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from servers import _start, _wait, free_ports


class Nats:
    """One server. Every acknowledged message is on the disk, so that it may be killed at any moment."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.port, self._monitor = free_ports(2)
        self._process: subprocess.Popen[bytes] | None = None
        (folder / "nats.conf").write_text(
            f'listen: "127.0.0.1:{self.port}"\nhttp: "127.0.0.1:{self._monitor}"\n'
            f'jetstream {{ store_dir: "{folder / "data"}", sync_interval: always }}\n'
        )

    def url(self, name: str = "tests") -> str:
        return f"nats://127.0.0.1:{self.port}/{name}"

    def start(self) -> None:
        log = self.folder / "nats.log"
        self._process = _start(
            [str(Path(sys.executable).parent / "nats-server"), "-c", str(self.folder / "nats.conf")], log
        )
        _wait(self._ready, self._process, log)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._monitor}/healthz", timeout=2) as answer:
                return json.load(answer)["status"] == "ok"
        except OSError:
            return False


@contextlib.contextmanager
def running_nats(folder: Path) -> Iterator[Nats]:
    """Run a server for a while."""
    server = Nats(folder)
    try:
        server.start()
        yield server
    finally:
        server.kill()


@pytest.fixture(scope="session")
def nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nats]:
    """One server for the whole session; keep apart by name, and do not kill it."""
    with running_nats(tmp_path_factory.mktemp("nats")) as server:
        yield server
