"""Topics as a log: the beginnings and ends of partitions, and the records between two offsets."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

import pyarrow as pa

from tidewheel._connectors.kafka.client import Connection, LastError, Patience, client
from tidewheel._connectors.kafka.topic_ids import TopicIds, is_id, topic_of
from tidewheel._connectors.log_source import Log, Positions
from tidewheel.errors import ConfigError, ConnectorError

SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
    ]
)
"""The columns of a record, as Spark's own connector names them."""

HEADERS = pa.field("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])))
"""An optional column: reading it takes ten times as long as all other columns together, even if it is null."""

_Answer = TypeVar("_Answer")

Lost = Literal["fail", "earliest", "latest"]

_READING = {
    "group.id": "tidewheel",
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "error",
    "fetch.wait.max.ms": 20,
    # When its queue is full, the client stops fetching for this time. Its default is a second, in which a task has read
    # the whole queue.
    "fetch.queue.backoff.ms": 5,
}
_PASSING = ("NOT_LEADER_FOR_PARTITION", "LEADER_NOT_AVAILABLE", "OFFSET_NOT_AVAILABLE", "FENCED_LEADER_EPOCH")
"""Errors while the leader of a partition changes, or before there is one for a new partition."""

_INTERNAL = "__"
"""The beginning of the names of topics that belong to Kafka itself. A pattern does not include them."""
_AT_ONCE = 10_000
_POLL = 0.01
"""How long to wait for more records of a read, in seconds: some offsets have no record."""
_SOON = 0.01
_FIRST = 1.0


@dataclass(frozen=True)
class Start:
    """The position at which a new job begins."""

    kind: Literal["earliest", "latest", "time", "offsets"]
    milliseconds: int = 0
    offsets: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Topics:
    """The topics to read, the start, and the policy for offsets that are no longer retained."""

    connection: Connection
    names: tuple[str, ...]
    start: Start
    lost: Lost
    headers: bool = False
    pattern: re.Pattern[str] | None = None
    """A pattern that the whole name of a topic must match; `names` is then empty."""

    def spelled(self) -> str:
        """Return the topics for messages."""
        return f"topics that match {self.pattern.pattern!r}" if self.pattern else ", ".join(self.names)

    @property
    def schema(self) -> pa.Schema:
        """The columns of a record."""
        return SCHEMA.append(HEADERS) if self.headers else SCHEMA


class KafkaLog(Log):
    """Partitions are named `topic/number`; their positions are offsets. Positions also hold the ids of the topics (`TopicIds`).

    The end of a partition is before the first transaction that is not decided (the last stable offset), unless the option
    `isolation.level` says otherwise.
    """

    def __init__(self, topics: Topics) -> None:
        """Take the settings. Nothing is contacted yet."""
        self._topics, self._connection = topics, topics.connection
        self._errors, self._ids = LastError(), TopicIds(topics.connection)
        self._planner: Any = None
        self._reader: Any = None
        self._standing: tuple[str, int] | None = None
        """The partition that the reader is assigned to, and the offset that it gives next."""

    def start(self) -> Positions:
        """Return the offsets at which the job begins, and the ids of the topics."""
        offsets = self.start_offsets()
        return {**offsets, **self._ids.of(_topics_of(offsets))}

    def start_offsets(self) -> Positions:
        """Return the offsets at which the job begins."""
        names, start = self._partitions(), self._topics.start
        if not names:
            raise ConfigError(
                f"there are no {self._topics.spelled()} at the Kafka brokers {self._connection.brokers} "
                f"({self._known()}); create one, or correct the pattern"
            )
        oldest = {name: self.oldest(name) for name in names}
        if start.kind == "earliest":
            return oldest
        if start.kind == "latest":
            return self._ends(names)
        if start.kind == "time":
            return self._at_time(oldest, start.milliseconds)
        if unknown := sorted(start.offsets.keys() - oldest.keys()):
            raise ConfigError(f"a Kafka source is to start at partition {unknown[0]}, which is not there")
        return {**oldest, **start.offsets}

    def end(self, start: Positions) -> Positions:
        """Return the ends of all partitions, and the ids of the topics; refuse topics with other ids than those in `start`.

        The reading task checks whether the records before the ends are retained.
        """
        names = self._partitions()
        ids = self._ids.of(_topics_of(names))
        self._ids.check(start, ids)
        ends = self._ends(names)
        for name in names:
            if ends[name] < start.get(name, 0):
                raise self._gone(name, start[name], 0, ends[name])
        return {**ends, **ids}

    def check(self, recorded: Positions) -> None:
        self._ids.check(recorded, self._ids.of(_topics_of(self._partitions())))

    def listed_ends(self) -> Positions:
        """Return the ends of all partitions, without the ids of the topics."""
        return self._ends(self._partitions())

    def oldest(self, partition: str) -> int:
        """Return the first offset that the partition retains; for the id of a topic, the id."""
        if is_id(partition):
            return self._ids.of((topic_of(partition),))[partition]
        return self._watermarks(partition)[0]

    def close(self) -> None:
        """Close the connections."""
        for consumer in (self._planner, self._reader):
            if consumer is not None:
                consumer.close()
        self._planner = self._reader = self._standing = None

    def read(self, partition: str, first: int, last: int) -> Iterator[pa.RecordBatch]:
        """Yield the records between two offsets. Offsets of transaction markers and of compacted records have no record."""
        topic, number = split(partition)
        patience = Patience(self._connection, self._errors, f"read {partition} at offset {first}")
        if self._reader is None:
            self._reader = self._consumer(_READING)
        # A reader at this offset has fetched new records already. A new assignment would wait for the running fetch and for
        # another one.
        if self._standing != (partition, first):
            self._stand(partition, first)
        self._standing = None
        while first < last:
            messages = self._reader.consume(min(_AT_ONCE, last - first), _POLL)
            patience.check()
            if not messages:
                continue
            patience.progress()
            records = [message for message in messages if message.error() is None]
            if records:
                first = records[-1].offset() + 1
                kept = records if first <= last else [message for message in records if message.offset() < last]
                yield as_columns(kept, topic, number, self._topics.schema)
            if len(records) < len(messages):
                for message in messages:
                    if message.error() is not None:
                        first = self._after(message, partition, first, last)
        # The consumer has delivered nothing after these offsets, unless it is past the last one.
        self._standing = (partition, first)

    def _stand(self, partition: str, offset: int) -> None:
        from confluent_kafka import TopicPartition

        self._reader.assign([TopicPartition(*split(partition), offset)])

    def _after(self, event: Any, partition: str, first: int, last: int) -> int:
        """Return the offset to continue at after an event that is not a record: the end of the partition, or a missing offset."""
        from confluent_kafka import KafkaError

        code = event.error().code()
        if code == KafkaError.GROUP_AUTHORIZATION_FAILED:
            # The client looks for the coordinator of its group, although it never joins the group.
            return first
        if code == KafkaError._PARTITION_EOF:
            # The consumer is at the next offset; the offsets in between have no records.
            return max(first, int(event.offset()))
        if code != KafkaError._AUTO_OFFSET_RESET:
            raise self._connection.failed(f"read {partition}", event.error())
        retained = self._retained(partition, first, last)
        self._stand(partition, retained)
        return retained

    def _retained(self, partition: str, first: int, last: int) -> int:
        """Return the offset to continue at if `first` cannot be read, or raise."""
        oldest, newest = self._watermarks(partition)
        if first < oldest and self._topics.lost == "earliest":
            return min(oldest, last)
        if first < oldest and self._topics.lost == "latest":
            return last
        raise self._gone(partition, first, oldest, newest)

    def _gone(self, partition: str, first: int, oldest: int, newest: int) -> ConnectorError:
        where = f"partition {partition} at {self._connection.brokers}"
        if first < oldest:
            return ConnectorError(
                f"the job stands at offset {first} of {where}, and the oldest retained offset is {oldest}: {oldest - first} "
                'records are lost. Give lost="earliest" to continue at the oldest offset, or lost="latest" at the newest'
            )
        return ConnectorError(
            f"the job stands at offset {first} of {where}, which ends at {newest}: the topic was deleted and made again, or is "
            "another one. Give the job another name, or the topic that it read"
        )

    def _ends(self, partitions: Iterable[str]) -> Positions:
        from confluent_kafka import OFFSET_END

        return self._listed("find the ends of partitions", dict.fromkeys(partitions, OFFSET_END))

    def _at_time(self, oldest: Positions, milliseconds: int) -> Positions:
        offsets = self._listed("find the offsets of a time", dict.fromkeys(oldest, milliseconds))
        # If all records are older, the answer is "the end" instead of an offset.
        later = self._ends(oldest) if min(offsets.values()) < 0 else {}
        return {name: later[name] if offset < 0 else offset for name, offset in offsets.items()}

    def _partitions(self) -> list[str]:
        """Return the partitions of all topics. A topic of a pattern that is being created has none yet."""
        if self._topics.pattern:
            found = self._metadata(self._topics.spelled()).topics
            matching = sorted(filter(self._topics.pattern.fullmatch, found))
            return [
                f"{topic}/{number}"
                for topic in matching
                if not topic.startswith(_INTERNAL)
                for number in sorted(found[topic].partitions)
            ]
        names = []
        for topic in self._topics.names:
            found = self._look_for(topic)
            if found.error is not None or not found.partitions:
                raise self._no_topic(topic, found.error)
            names += [f"{topic}/{number}" for number in sorted(found.partitions)]
        return names

    def _look_for(self, topic: str) -> Any:
        return self._metadata(f"the topic {topic!r}", topic).topics[topic]

    def _metadata(self, sought: str, *topic: str) -> Any:
        """Return the metadata of a topic, or of all. This is the first request: a refused log-in is reported immediately."""
        from confluent_kafka import KafkaException

        patience = Patience(self._connection, self._errors, f"look for {sought}")
        while True:
            try:
                return self._client().list_topics(*topic, timeout=min(_FIRST, self._connection.timeout))
            except KafkaException:
                self._client().poll(0)
                patience.check()

    def _listed(self, doing: str, times: Mapping[str, int]) -> Positions:
        """Return the first offset of each partition at or after a time, or its end, as the brokers list them."""
        from confluent_kafka import KafkaException, TopicPartition

        partitions = [TopicPartition(*split(name), time) for name, time in times.items()]

        def ask() -> Positions:
            offsets = self._client().offsets_for_times(partitions, timeout=self._connection.timeout)
            for each in offsets:
                if each.error is not None:
                    raise KafkaException(each.error)
            return {f"{each.topic}/{each.partition}": each.offset for each in offsets}

        return self._answered(doing, ask)

    def _answered(self, doing: str, ask: Callable[[], _Answer]) -> _Answer:
        """Send a request and return the answer. Retry until the timeout while a partition has no leader."""
        from confluent_kafka import KafkaException

        patience = Patience(self._connection, self._errors, doing)
        while True:
            try:
                return ask()
            except KafkaException as error:
                # The client reports why a request was not answered when it is polled.
                self._client().poll(_SOON)
                if error.args[0].name() not in _PASSING:
                    raise self._connection.failed(doing, self._errors.text(error.args[0])) from None
                patience.check()

    def _no_topic(self, topic: str, error: Any) -> ConfigError | ConnectorError:
        from confluent_kafka import KafkaError

        if error is not None and error.code() not in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC):
            return self._connection.failed(f"read the topic {topic!r}", error)
        return ConfigError(
            f"there is no topic {topic!r} at the Kafka brokers {self._connection.brokers} ({self._known()}); make it, or "
            "correct the name"
        )

    def _known(self) -> str:
        there = sorted(self._client().list_topics(timeout=self._connection.timeout).topics)
        return f"there are {', '.join(there[:20])}" if there else "there is none"

    def _watermarks(self, partition: str) -> tuple[int, int]:
        found: tuple[int, int] | None = self._answered(
            f"find the offsets of {partition}",
            lambda: self._client().get_watermark_offsets(_topic_partition(partition), timeout=self._connection.timeout),
        )
        if found is None:
            raise self._connection.failed(f"find the offsets of {partition}", self._errors.text("no answer"))
        return int(found[0]), int(found[1])

    def _client(self) -> Any:
        if self._planner is None:
            self._planner = self._consumer(_READING)
        return self._planner

    def _consumer(self, settings: Mapping[str, Any]) -> Any:
        from confluent_kafka import Consumer

        return client(Consumer, self._connection, **settings, error_cb=self._errors)


def _topics_of(partitions: Iterable[str]) -> list[str]:
    """Return the topics of partitions, each once."""
    return list(dict.fromkeys(split(name)[0] for name in partitions))


def _topic_partition(name: str) -> Any:
    from confluent_kafka import TopicPartition

    return TopicPartition(*split(name))


def split(partition: str) -> tuple[str, int]:
    """Return topic and number of a partition's name.

    >>> split("orders/3")
    ('orders', 3)
    """
    topic, _, number = partition.rpartition("/")
    return topic, int(number)


def as_columns(messages: Sequence[Any], topic: str, partition: int, schema: pa.Schema) -> pa.RecordBatch:
    """Return the records of one partition as columns."""
    count = len(messages)
    times = pa.array([message.timestamp()[1] for message in messages], pa.int64())
    arrays = [
        pa.array([message.key() for message in messages], pa.binary()),
        pa.array([message.value() for message in messages], pa.binary()),
        pa.repeat(pa.scalar(topic), count),
        pa.repeat(pa.scalar(partition, pa.int32()), count),
        pa.array([message.offset() for message in messages], pa.int64()),
        times.cast(pa.timestamp("ms", tz="UTC")).cast(SCHEMA.field("timestamp").type),
    ]
    if HEADERS.name in schema.names:
        arrays.append(_header_column([message.headers() for message in messages]))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _header_column(headers: Sequence[list[tuple[str, bytes]] | None]) -> pa.Array:
    rows = [None if each is None else [{"key": key, "value": value} for key, value in each] for each in headers]
    return pa.array(rows, HEADERS.type)
