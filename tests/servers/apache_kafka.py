"""Apache Kafka for tests: one node in its own JVM, on free loopback ports, stopped by its own pid.

Its data are in a folder, so it can be killed and restarted on the same ports.
"""

from __future__ import annotations

import base64
import functools
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from servers.kafka_jars import broker_jars, one_at_a_time
from servers.stores import _start, _wait, free_ports, make_certificates

_QUICK = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData", "-Xlog:disable")
_LOGGING = ("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-Dorg.slf4j.simpleLogger.showDateTime=true")
_CLUSTER = base64.urlsafe_b64encode(b"tidewheel-tests-").decode().rstrip("=")
_SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "INNER",
    "auto.create.topics.enable": "false",
    # One node, with little to do.
    "num.network.threads": "1",
    "num.io.threads": "2",
    "background.threads": "2",
    "log.cleaner.dedupe.buffer.size": "2097152",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    # What a broker does now and then it does at once, so that a test need not wait for it.
    "broker.heartbeat.interval.ms": "200",
    "group.initial.rebalance.delay.ms": "0",
    "log.initial.task.delay.ms": "100",
    "log.retention.check.interval.ms": "100",
    "log.cleaner.backoff.ms": "100",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
}


class ApacheKafka:
    """One broker: open to all, or with `users`, for those who know a password; with `tls`, it has a certificate.

    `settings` are properties of the broker, besides those above or in their place.
    """

    shows_aborted = False

    def __init__(
        self,
        folder: Path,
        users: Mapping[str, str] | None = None,
        tls: bool = False,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self.folder, self._users, self._settings = folder, users, settings or {}
        folder.mkdir(parents=True, exist_ok=True)
        self.tls = make_certificates(folder / "tls") if tls else None
        self.port, self._inner_port, self._controller_port = free_ports(3)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def brokers(self) -> str:
        return f"127.0.0.1:{self.port}"

    def options(self, user: str | None = None) -> dict[str, str]:
        """Return the options of a client that is let in, as librdkafka names them."""
        found = {"security.protocol": self._protocol}
        if self.tls is not None:
            found["ssl.ca.location"] = str(self.tls / "ca.pem")
        if user is not None and self._users is not None:
            found |= {"sasl.mechanisms": "PLAIN", "sasl.username": user, "sasl.password": self._users[user]}
        return found

    def start(self) -> None:
        """Start the broker with what it held, and wait until it serves."""
        made = ready_made()
        if not self._data.exists():
            shutil.copytree(made / "empty", self._data)
        self._run(f"-XX:SharedArchiveFile={made / 'classes.jsa'}")

    def kill(self) -> None:
        """Kill the broker without notice."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def create(self, topic: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        """Make a topic and wait until it is there."""
        from confluent_kafka.admin import NewTopic

        self._admin.create_topics([NewTopic(topic, partitions, 1, config=dict(config or {}))])[topic].result(30)
        self._until(lambda: self._has(topic, partitions))

    def grow(self, topic: str, partitions: int) -> None:
        """Give a topic more partitions, so many in all, and wait until they are there."""
        from confluent_kafka.admin import NewPartitions

        self._admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(30)
        self._until(lambda: self._has(topic, partitions))

    def delete(self, topic: str) -> None:
        """Delete a topic and wait until it is gone."""
        self._admin.delete_topics([topic])[topic].result(30)
        self._until(lambda: topic not in self._topics())

    def forget(self, topic: str, before: int) -> None:
        """Remove the first records of a topic's first partition, as retention does in its own time."""
        from confluent_kafka import TopicPartition

        first = TopicPartition(topic, 0, before)
        self._admin.delete_records([first])[first].result(30)

    def allow_to_read(self, user: str, topic: str) -> None:
        """Let a user read a topic, and wait until he may; for a broker with the setting `authorizer.class.name`."""
        from confluent_kafka import admin

        what = (admin.ResourceType.TOPIC, topic, admin.ResourcePatternType.LITERAL)
        who = (f"User:{user}", "*", admin.AclOperation.READ, admin.AclPermissionType.ALLOW)
        (made,) = self._admin.create_acls([admin.AclBinding(*what, *who)]).values()
        made.result(30)
        self._until(lambda: bool(self._admin.describe_acls(admin.AclBindingFilter(*what, *who)).result(30)))

    @property
    def _data(self) -> Path:
        return self.folder / "data"

    @property
    def _protocol(self) -> str:
        below = "PLAINTEXT" if self.tls is None else "SSL"
        return below if self._users is None else f"SASL_{below}"

    def _run(self, *flags: str) -> None:
        self._process = _start(_java(*flags, "kafka.Kafka", self._properties()), self.folder / "kafka.log")
        self._until(self._serves)

    def _properties(self) -> str:
        """Write the broker's settings, and return where they are."""
        settings = {**_SETTINGS, **self._listeners(), **self._security(), **self._settings}
        path = self.folder / "broker.properties"
        path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        return str(path)

    def _listeners(self) -> dict[str, str]:
        # Clients have a door of their own: what the broker, and the tests' own hands, do needs no password.
        doors = {"CLIENT": self.port, "INNER": self._inner_port, "CONTROLLER": self._controller_port}
        protocols = {"CLIENT": self._protocol, "INNER": "PLAINTEXT", "CONTROLLER": "PLAINTEXT"}
        return {
            "log.dirs": str(self._data),
            "controller.quorum.voters": f"1@127.0.0.1:{self._controller_port}",
            "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in doors.items()),
            "listener.security.protocol.map": ",".join(f"{name}:{each}" for name, each in protocols.items()),
        }

    def _security(self) -> dict[str, str]:
        found = {}
        if self.tls is not None:
            both = self.tls / "both.pem"
            both.write_bytes((self.tls / "server.key").read_bytes() + (self.tls / "server.pem").read_bytes())
            found |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(both)}
        if self._users is not None:
            module = "org.apache.kafka.common.security.{}LoginModule required{};"
            known = "".join(f' user_{user}="{password}"' for user, password in self._users.items())
            found |= {
                "listener.name.client.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
                "listener.name.client.plain.sasl.jaas.config": module.format("plain.Plain", known),
                "listener.name.client.scram-sha-512.sasl.jaas.config": module.format("scram.Scram", ""),
            }
        return found

    @functools.cached_property
    def _admin(self) -> Any:
        from confluent_kafka.admin import AdminClient

        settings = {"bootstrap.servers": f"127.0.0.1:{self._inner_port}", "reconnect.backoff.max.ms": 100}
        return AdminClient({**settings, "log_level": 0})

    def _serves(self) -> bool:
        from confluent_kafka import KafkaException

        try:
            # To be refused at the door is quicker than to wait for a client that tries again.
            for port in (self.port, self._inner_port):
                socket.create_connection(("127.0.0.1", port), 0.5).close()
            return all(self._leads(topic, partitions) for topic, partitions in self._topics().items())
        except (OSError, KafkaException):
            return False

    def _has(self, topic: str, partitions: int) -> bool:
        return self._topics().get(topic) == partitions and self._leads(topic, partitions)

    def _topics(self) -> dict[str, int]:
        """Return how many partitions each topic has."""
        return {name: len(topic.partitions) for name, topic in self._admin.list_topics(timeout=5).topics.items()}

    def _leads(self, topic: str, partitions: int) -> bool:
        """Tell whether a topic can be read: the broker tells of partitions a moment before it leads them."""
        from confluent_kafka import KafkaException, TopicPartition
        from confluent_kafka.admin import OffsetSpec

        asked = {TopicPartition(topic, number): OffsetSpec.latest() for number in range(partitions)}
        try:
            return all(found.result(5).offset >= 0 for found in self._admin.list_offsets(asked).values())
        except KafkaException:
            return False

    def _until(self, condition: Callable[[], bool]) -> None:
        assert self._process is not None
        _wait(condition, self._process, self.folder / "kafka.log")


@functools.cache
def ready_made() -> Path:
    """Return a folder with what every broker begins with: an empty store, and an archive of classes to start sooner."""
    made = broker_jars().with_suffix(".ready")
    with one_at_a_time():
        if not made.exists():
            with tempfile.TemporaryDirectory(dir=made.parent) as scratch:
                _make(Path(scratch))
                Path(scratch, "made").rename(made)
    return made


def _make(scratch: Path) -> None:
    """Let a first broker run for a while, and keep its store as it was before, and the classes that it loaded."""
    server, made = ApacheKafka(scratch / "first"), scratch / "made"
    command = _java("kafka.tools.StorageTool", "format", "-t", _CLUSTER, "-c", server._properties())
    subprocess.run(command, check=True, capture_output=True)
    shutil.copytree(server._data, made / "empty")
    try:
        server._run(f"-XX:ArchiveClassesAtExit={made / 'classes.jsa'}")
        _use(server)
        assert server._process is not None
        # The archive is written when the broker ends in order; a JVM that writes none costs nothing but the time.
        server._process.terminate()
        server._process.wait(60)
    finally:
        server.kill()


def _use(server: ApacheKafka) -> None:
    from confluent_kafka import Consumer, Producer, TopicPartition

    server.create("first")
    producer = Producer({"bootstrap.servers": server.brokers, "transactional.id": "first", "log_level": 0})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("first", b"value")
    producer.commit_transaction(30)
    consumer = Consumer({"bootstrap.servers": server.brokers, "group.id": "first", "log_level": 0})
    consumer.assign([TopicPartition("first", 0, 0)])
    assert consumer.poll(30) is not None
    consumer.close()


def _java(*arguments: str) -> list[str]:
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else "java"
    # An archive of classes fits one class path, in one order.
    jars = ":".join(sorted(map(str, broker_jars().iterdir())))
    return [java, *_QUICK, *_LOGGING, "-cp", jars, *arguments]
