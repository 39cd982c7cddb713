"""A real MQTT broker for tests: amqtt in its own process on a free loopback port, stopped by its own pid.

It keeps the sessions of absent clients in memory, so a killed broker forgets them.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from servers.stores import _start, _wait, free_ports
from support.waiting import SOON
from tidewheel._connectors.mqtt.client import MqttConnection
from tidewheel.errors import ConnectorUnavailable

USER, PASSWORD = "ada", "vErY-sEcReT"

_CONFIG = """\
listeners:
  default:
    type: tcp
    bind: 127.0.0.1:{port}
{tls}plugins:
  amqtt.plugins.authentication.FileAuthPlugin:
    password_file: {passwords}
"""


class Broker:
    """One broker with one user."""

    def __init__(self, folder: Path, tls: Path | None = None) -> None:
        from pwdlib.hashers.argon2 import Argon2Hasher

        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        hashed = Argon2Hasher(time_cost=1, memory_cost=8, parallelism=1).hash(PASSWORD)
        (folder / "passwords").write_text(f"{USER}:{hashed}\n")
        self._tls = tls
        self._process: subprocess.Popen[bytes] | None = None
        (self.port,) = free_ports(1)
        written = _CONFIG.format(port=self.port, passwords=folder / "passwords", tls=_tls(tls))
        (folder / "broker.yaml").write_text(written)

    @property
    def url(self) -> str:
        login = f"{USER}:{PASSWORD}@127.0.0.1:{self.port}"
        return f"mqtts://{login}?ca={self._tls}/ca.pem" if self._tls else f"mqtt://{login}"

    def start(self) -> None:
        log = self.folder / "broker.log"
        command = [str(Path(sys.executable).parent / "amqtt"), "-c", str(self.folder / "broker.yaml")]
        self._process = _start(command, log)
        _wait(self._ready, self._process, log)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def send(self, topic: str, messages: Iterable[bytes]) -> None:
        """Publish with quality 1, and wait until the broker has all."""
        with MqttConnection(self.url, "sender") as connection:
            sent = [connection.client.publish(topic, data, qos=1) for data in messages]
            for each in sent:
                each.wait_for_publish(SOON)
                assert each.is_published()

    @contextlib.contextmanager
    def listening(self, topics: str, client_id: str = "listener") -> Iterator[list[tuple[str, bytes]]]:
        """Collect what comes; the list has everything that was acknowledged to a publisher once `settled` says so."""
        found: list[tuple[str, bytes]] = []

        def take(client, message) -> None:
            found.append((message.topic, message.payload))
            client.ack(message.mid, message.qos)

        connection = MqttConnection(self.url, client_id, topics=(topics, "settled"), on_message=take)
        try:
            yield found
        finally:
            connection.close()

    def settled(self, found: list[tuple[str, bytes]]) -> list[tuple[str, bytes]]:
        """Send a last message and wait until it has come; return what came before it."""
        self.send("settled", [b"now"])
        while not found or found[-1][0] != "settled":
            threading.Event().wait(0.01)
        del found[-1]
        return found

    def _ready(self) -> bool:
        try:
            MqttConnection(self.url, "probe", topics=("probe/#",), on_message=lambda *_: None).close()
        except ConnectorUnavailable:
            return False
        return True


def _tls(folder: Path | None) -> str:
    if folder is None:
        return ""
    files = {"cafile": "ca.pem", "certfile": "server.pem", "keyfile": "server.key"}
    return "    ssl: on\n" + "".join(f"    {name}: {folder / file}\n" for name, file in files.items())


@contextlib.contextmanager
def running_broker(folder: Path, tls: Path | None = None) -> Iterator[Broker]:
    """Run a broker for a while; with `tls`, a folder of certificates, by TLS alone."""
    server = Broker(folder, tls)
    try:
        server.start()
        yield server
    finally:
        server.kill()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One broker for the tests of a file."""
    with running_broker(tmp_path_factory.mktemp("mqtt")) as server:
        yield server
