"""The two systems: a server on loopback, a sender at a constant rate, and a consumer that records when results are visible."""

import json
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

from servers.kafka_jars import connector_jars
from servers.kafka_server import Kafka, running_kafka
from servers.nats_server import Nats, running_nats
from tidewheel._connectors.nats.client import NatsConnection

__all__ = ["OverKafka", "OverNats", "Transport", "connector_jars", "running", "transport"]

USERS = 100

Seen = Callable[[bytes], None]


def payload(number: int, sent: int) -> bytes:
    """Return a message that contains the time at which it was sent, in ns since 1970."""
    return json.dumps({"user": f"user-{number % USERS}", "sent": sent}).encode()


class Transport(ABC):
    """A client of one server."""

    def __init__(self) -> None:
        self.stored: dict[int, float] = {}
        """By the time at which a message was sent: how many ms later the server had stored it."""

    @abstractmethod
    def send(self, number: int) -> int:
        """Send a message; return when, in ns since 1970."""

    @abstractmethod
    def watch(self, seen: Seen) -> None:
        """Call a function with each visible result, from a thread, until `close`."""

    @abstractmethod
    def close(self) -> None:
        """Stop watching and release the connection."""


class OverNats(Transport):
    """JetStream. A consumer sees the messages of an atomic batch when the last one is stored."""

    def __init__(self, server: Nats) -> None:
        super().__init__()
        server.make_stream("in")
        server.make_stream("out", allow_atomic=True)
        self.url = server.server
        self._connection = NatsConnection(server.server)

    def send(self, number: int) -> int:
        now = time.time_ns()
        self._connection.call(self._connection.jetstream.publish("in.events", payload(number, now)))
        self.stored[now] = (time.time_ns() - now) / 1e6
        return now

    def watch(self, seen: Seen) -> None:
        async def take(message: Any) -> None:
            seen(message.data)

        self._connection.call(
            self._connection.jetstream.subscribe("out.totals", stream="out", ordered_consumer=True, cb=take)
        )

    def close(self) -> None:
        self._connection.close()


class OverKafka(Transport):
    """Kafka. A consumer of committed transactions sees a batch when its transaction is committed."""

    def __init__(self, server: Kafka) -> None:
        super().__init__()
        for topic in ("in", "out"):
            server.create(topic, 1)
        self.url = server.brokers
        # With a request for each message, a slow machine's broker falls behind, and messages wait for seconds in the client.
        self._producer = Producer({"bootstrap.servers": server.brokers, "linger.ms": 5})
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def send(self, number: int) -> int:
        now = time.time_ns()
        self._producer.produce("in", payload(number, now), on_delivery=lambda *_: self._note(now))
        self._producer.poll(0)
        return now

    def _note(self, sent: int) -> None:
        self.stored[sent] = (time.time_ns() - sent) / 1e6

    def watch(self, seen: Seen) -> None:
        settings = {"bootstrap.servers": self.url, "group.id": "latency", "auto.offset.reset": "earliest"}
        consumer = Consumer({**settings, "isolation.level": "read_committed", "fetch.wait.max.ms": 10})
        consumer.subscribe(["out"])

        def follow() -> None:
            while not self._ended.is_set():
                message = consumer.poll(0.1)
                if message is not None and message.error() is None:
                    seen(message.value())
            consumer.close()

        self._thread = threading.Thread(target=follow)
        self._thread.start()

    def close(self) -> None:
        self._ended.set()
        self._producer.flush()
        if self._thread is not None:
            self._thread.join()


def running(system: str, folder: Path) -> AbstractContextManager[Any]:
    """Run a server of a system during the block."""
    return running_nats(folder, sync="2m") if system == "nats" else running_kafka(folder)


def transport(system: str, server: Any) -> OverNats | OverKafka:
    """Return a client of a server."""
    return OverNats(server) if system == "nats" else OverKafka(server)
