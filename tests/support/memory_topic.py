"""A Kafka topic in memory for the bridge's consumer; it fails on request."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

from tidewheel._connectors.kafka.client import Connection


class Killed(BaseException):
    """What ends a bridge as a kill does: nothing of it goes on."""


class MemoryTopic:
    """Partitions of keys and values. `rate` is how often a commit of offsets fails, before or after it takes effect."""

    def __init__(self, name: str, partitions: int, rng: random.Random) -> None:
        self.name, self.rng, self.rate = name, rng, 0.0
        self.records: list[list[tuple[bytes, bytes]]] = [[] for _ in range(partitions)]
        self.committed = [0] * partitions
        self.oldest = [0] * partitions
        self.connection = _Memory("memory:1", {}, 1.0)
        object.__setattr__(self.connection, "topic", self)

    def append(self, partition: int, key: bytes, value: bytes) -> None:
        self.records[partition].append((key, value))

    def forget(self) -> None:
        """Let go of records that were carried over, as retention does."""
        self.oldest = list(self.committed)


class _Memory(Connection):
    topic: MemoryTopic


def to_memory(_: object, connection: Any, **settings: object) -> MemoryConsumer:
    """Stand for `client`: return a consumer of the connection's topic."""
    return MemoryConsumer(connection.topic)


class MemoryConsumer:
    def __init__(self, topic: MemoryTopic) -> None:
        self._topic, self._at = topic, dict[int, int]()

    def list_topics(self, name: str, timeout: float) -> Any:
        partitions = dict.fromkeys(range(len(self._topic.records)))
        return SimpleNamespace(topics={name: SimpleNamespace(error=None, partitions=partitions)})

    def committed(self, wanted: list[Any], timeout: float) -> list[Any]:
        for each in wanted:
            each.offset = self._topic.committed[each.partition] or -1001
        return wanted

    def assign(self, partitions: list[Any]) -> None:
        self._at = {each.partition: max(each.offset, 0) for each in partitions}

    def consume(self, count: int, timeout: float) -> list[Any]:
        found = []
        for partition, at in self._at.items():
            assert at >= self._topic.oldest[partition], "records went before they were carried over"
            records = self._topic.records[partition]
            end = min(len(records), at + self._topic.rng.randint(1, 20))
            found += [_Message(self._topic.name, partition, offset, *records[offset]) for offset in range(at, end)]
            self._at[partition] = end
            if end == len(records):
                found.append(_Message(self._topic.name, partition, end, failure="_PARTITION_EOF"))
        return found

    def commit(self, offsets: list[Any], asynchronous: bool) -> None:
        self._fail()
        for each in offsets:
            self._topic.committed[each.partition] = each.offset
        self._fail()

    def close(self) -> None:
        pass

    def _fail(self) -> None:
        from confluent_kafka import KafkaError, KafkaException

        if self._topic.rng.random() < self._topic.rate:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))


class _Message:
    def __init__(self, topic: str, partition: int, offset: int, key=None, value=None, failure: str = "") -> None:
        self._all = topic, partition, offset, key, value
        self._failure = SimpleNamespace(name=lambda: failure) if failure else None

    def error(self) -> Any:
        return self._failure

    def topic(self) -> str:
        return self._all[0]

    def partition(self) -> int:
        return self._all[1]

    def offset(self) -> int:
        return self._all[2]

    def key(self) -> bytes | None:
        return self._all[3]

    def value(self) -> bytes | None:
        return self._all[4]
