"""A real NATS server with JetStream for tests, on a free loopback port, stopped by its own pid."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from servers.stores import _start, _wait, free_ports
from tidewheel._connectors.nats.client import NatsConnection
from tidewheel._connectors.nats.log import NatsLogOpener
from tidewheel._core.urls import Url


class Nats:
    """One server. It may be killed at any moment: what it acknowledged, the system has, and no kill takes that away."""

    def __init__(self, folder: Path, user: str = "", sync: str = "2m", more: str = "") -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.port, self._monitor = free_ports(2)
        self._process: subprocess.Popen[bytes] | None = None
        (folder / "nats.conf").write_text(
            f'listen: "127.0.0.1:{self.port}"\nhttp: "127.0.0.1:{self._monitor}"\n'
            f'jetstream {{ store_dir: "{folder / "data"}", sync_interval: "{sync}" }}\n'
            + ('authorization {{ user: "{}", password: "{}" }}\n'.format(*user.split(":")) if user else "")
            + more
        )
        self._user = f"{':'.join(quote(part, safe='') for part in user.split(':'))}@" if user else ""

    def url(self, name: str = "tests") -> str:
        return f"{self.server}/{name}"

    @property
    def server(self) -> str:
        """The URL of the server alone, as the connectors take it."""
        return f"nats://{self._user}127.0.0.1:{self.port}"

    def make_stream(self, name: str, *subjects: str, **config: Any) -> None:
        """Make a stream; without subjects it takes those below its name."""
        from nats.js.api import StreamConfig

        with NatsConnection(self.server) as nats:
            nats.call(
                nats.jetstream.add_stream(StreamConfig(name=name, subjects=list(subjects) or [f"{name}.>"], **config))
            )

    def send(self, subject: str, messages: Iterable[bytes], headers: dict[str, str] | None = None) -> None:
        """Store messages, in this order."""

        async def all_sent() -> None:
            for number in range(0, len(todo), 500):
                sent = (nats.jetstream.publish(subject, data, headers=headers) for data in todo[number : number + 500])
                await asyncio.gather(*sent)

        todo = list(messages)
        with NatsConnection(self.server, timeout=30) as nats:
            nats.call(all_sent())

    def purge(self, stream: str, before: int) -> None:
        """Remove the messages before a sequence, as a limit of the stream does."""
        with NatsConnection(self.server) as nats:
            nats.call(nats.jetstream.purge_stream(stream, seq=before))

    def messages(self, stream: str, *subjects: str) -> list[tuple[str, bytes]]:
        """Return subject and data of all messages that a stream has, in their order."""
        log = NatsLogOpener(Url(self.server), stream, subjects, "earliest", "fail", None, 5.0)()
        with contextlib.closing(log):
            (first,), (last,) = log.start().values(), log.end({}).values()
            rows = [row for batch in log.read(stream, first, last) for row in batch.to_pylist()]
        return [(row["subject"], row["data"]) for row in rows]

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
def running_nats(folder: Path, **settings: str) -> Iterator[Nats]:
    """Run a server for a while."""
    server = Nats(folder, **settings)
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
