"""The bridge from a Kafka topic to a fleet's inbox: each record is stored once, however often the bridge is restarted.

A partition is a producer, and the offsets of its records are the producer's numbers. So a record that any bridge has
stored before is skipped, and the offsets committed to Kafka only save reading.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from tidewheel._connectors.kafka.client import Connection, client, once_coordinated
from tidewheel._core import faults
from tidewheel._core.logs import logger
from tidewheel._core.undecodable import UNDECODABLE
from tidewheel.errors import ConfigError, ConnectorError
from tidewheel.fleet._inbox import Inbox
from tidewheel.fleet._inbox.dead_letters import letter, letter_limit
from tidewheel.fleet._nodes.router import Router

_LOG = logger(__name__)

STORED = faults.declare("kafka-bridge.stored", "records are in the inbox; Kafka does not know")

_BATCH, _POLL_S, _FLUSH_S = 1000, 0.5, 1.0
_ERROR_CHARACTERS = 2_000


@dataclass(frozen=True)
class BridgeSettings:
    """The topic, the key, and the handling of invalid records."""

    connection: Connection
    topic: str
    key: str | None
    """The JSON field that is the event's key; None uses the record's own key, as text."""
    group: str
    dead_letters: Inbox | None = None


class KafkaBridge:
    """Reads all partitions of a topic and routes their records to an inbox."""

    def __init__(self, settings: BridgeSettings, inbox: Inbox) -> None:
        from confluent_kafka import Consumer

        self._settings, self._inbox = settings, inbox
        self._key_of = _keyed(settings.key)
        self._routers: dict[int, Router] = {}
        self._letters: dict[int, Router] = {}
        self._next: dict[int, int] = {}
        """By partition, the offset after the last routed record."""
        self._committed: dict[int, int] = {}
        self._consumer = client(
            Consumer,
            settings.connection,
            **{
                "group.id": settings.group,
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
            },
        )

    def run(self, stop: Callable[[], bool], to_the_end: bool = False) -> int:
        """Transfer records until stopped, or to the end of the topic; return the number of stored records."""
        with self._closing():
            waiting = self._assign()
            flushed = time.monotonic()
            while not stop() and not (to_the_end and not waiting):
                with self._settings.connection.explained(f"read the topic {self._settings.topic}"):
                    messages = self._consumer.consume(_BATCH, _POLL_S)
                for message in messages:
                    if message.error() is None:
                        self._route(message)
                        waiting.add(message.partition())
                    elif message.error().name() == "_PARTITION_EOF":
                        waiting.discard(message.partition())
                    else:
                        raise self._failed(message)
                if time.monotonic() - flushed > _FLUSH_S:
                    self._flush()
                    flushed = time.monotonic()
            self._flush()
        return sum(router.delivered for router in self._routers.values())

    def _assign(self) -> set[int]:
        """Start where an earlier bridge ended, or with the oldest record; return the partitions."""
        from confluent_kafka import OFFSET_BEGINNING, TopicPartition

        settings = self._settings
        timeout = settings.connection.timeout
        with settings.connection.explained(f"find the topic {settings.topic}"):
            found = self._consumer.list_topics(settings.topic, timeout).topics[settings.topic]
            if found.error is not None or not found.partitions:
                raise ConfigError(
                    f"there is no topic {settings.topic!r} at the Kafka brokers {settings.connection.brokers}: {found.error}"
                )
            wanted = [TopicPartition(settings.topic, partition) for partition in sorted(found.partitions)]
        with settings.connection.explained(f"find where the group {settings.group} has come to"):
            begun = once_coordinated(lambda: self._consumer.committed(wanted, timeout), timeout)
        for each in begun:
            name = f"kafka-{settings.topic.replace('.', '_')}-{each.partition}"
            self._routers[each.partition] = Router(self._inbox, name, own_numbers=True)
            if settings.dead_letters is not None:
                self._letters[each.partition] = Router(settings.dead_letters, name, own_numbers=True)
            if each.offset < 0:
                each.offset = OFFSET_BEGINNING
        self._consumer.assign(begun)
        return {each.partition for each in begun}

    def _route(self, message: Any) -> None:
        partition, offset = message.partition(), message.offset()
        # Numbers start with 1, offsets with 0.
        try:
            self._routers[partition].route(*self._key_of(message), number=offset + 1)
        except (ConfigError, *UNDECODABLE) as error:
            letters = self._letters.get(partition)
            if letters is None:
                self._flush()
                raise ConfigError(
                    f"the record at offset {offset} of partition {partition} of topic {self._settings.topic!r} is not an event: "
                    f"{str(error)[:_ERROR_CHARACTERS]}. The records before it are stored. To continue, give "
                    "--dead-letters, which receives it"
                ) from None
            where = {"topic": message.topic(), "partition": partition, "offset": offset}
            dead = letter(message.value() or b"", str(error), where, letter_limit(letters.inbox))
            _LOG.info(
                "the record at offset %d of partition %d goes to the dead letters: %.500s", offset, partition, error
            )
            letters.route(partition, dead, number=offset + 1)
        self._next[partition] = offset + 1

    def _flush(self) -> None:
        """Wait until all records read so far are stored; then commit the offsets to Kafka, for the next bridge."""
        from confluent_kafka import TopicPartition

        for router in (*self._routers.values(), *self._letters.values()):
            router.flush()
        faults.point(STORED)
        news = {
            partition: offset for partition, offset in self._next.items() if self._committed.get(partition) != offset
        }
        if news:
            offsets = [TopicPartition(self._settings.topic, partition, offset) for partition, offset in news.items()]
            connection = self._settings.connection
            with connection.explained("commit offsets"):
                once_coordinated(lambda: self._consumer.commit(offsets=offsets, asynchronous=False), connection.timeout)
            self._committed.update(news)

    def _failed(self, message: Any) -> ConnectorError | ConfigError:
        if message.error().name() == "_AUTO_OFFSET_RESET":
            return ConnectorError(
                f"partition {message.partition()} of topic {self._settings.topic!r} no longer has the record at which the last "
                "bridge ended: Kafka's retention removed records before the bridge read them. Give another --group to continue "
                "at the oldest record"
            )
        return self._settings.connection.failed(f"read the topic {self._settings.topic}", message.error())

    @contextlib.contextmanager
    def _closing(self) -> Iterator[None]:
        try:
            yield
        finally:
            for router in (*self._routers.values(), *self._letters.values()):
                # All confirmed records are flushed; the next bridge reads the rest again.
                router.abandon()
            self._consumer.close()


def _keyed(field: str | None) -> Callable[[Any], tuple[Any, bytes]]:
    """Return a function that extracts the key and the payload of a record."""
    if field is not None:
        shape = msgspec.defstruct("Record", [("key", str | int | bool | float)], rename={"key": field})
        decode = msgspec.json.Decoder(shape).decode

        def by_field(message: Any) -> tuple[Any, bytes]:
            value = message.value() or b""
            value.decode()
            return decode(value).key, value  # type: ignore[attr-defined]

        return by_field
    check = msgspec.json.Decoder(msgspec.Raw).decode

    def by_key(message: Any) -> tuple[Any, bytes]:
        value, key = message.value() or b"", message.key()
        value.decode()
        check(value)
        if key is None:
            raise ConfigError("it has no key; give --key, the field that is an event's key")
        return key.decode(), value

    return by_key
