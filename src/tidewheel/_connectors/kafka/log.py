"""Topics as a log: where partitions begin and end, and what is between two offsets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
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
"""The column that is there when it is asked for: Spark takes ten times as long to carry it, though it be null, as all others."""

_Answer = TypeVar("_Answer")

Lost = Literal["fail", "earliest", "latest"]

_READING = {
    "group.id": "tidewheel",
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "error",
    "fetch.wait.max.ms": 20,
    # With enough in store the client stops fetching, and looks again after this time: a second, if nobody says otherwise, in
    # which a task has long read all that was there.
    "fetch.queue.backoff.ms": 5,
}
_PLANNING = {
    **_READING,
    # The planner wants to know where partitions end: the records that come with the answer are not read.
    "queued.min.messages": 1,
    "queued.max.messages.kbytes": 64,
    "fetch.message.max.bytes": 1024,
    # It asks at the end, where brokers wait for more before they answer.
    "fetch.wait.max.ms": 1,
}
_PASSING = ("NOT_LEADER_FOR_PARTITION", "LEADER_NOT_AVAILABLE", "OFFSET_NOT_AVAILABLE", "FENCED_LEADER_EPOCH")
"""Errors while the leader of a partition changes, or before there is one for a new partition."""

_AT_ONCE = 10_000
_POLL = 0.01
"""How long to wait for as many records as there are offsets: some offsets have none, and those would be waited for in vain."""
_SOON = 0.01
_FIRST = 1.0


@dataclass(frozen=True)
class Start:
    """Where a job begins that has read nothing."""

    kind: Literal["earliest", "latest", "time", "offsets"]
    milliseconds: int = 0
    offsets: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Topics:
    """What is read, from where on, and what happens to offsets that are not retained any more."""

    connection: Connection
    names: tuple[str, ...]
    start: Start
    lost: Lost
    headers: bool = False

    @property
    def schema(self) -> pa.Schema:
        """The columns of a record."""
        return SCHEMA.append(HEADERS) if self.headers else SCHEMA


class KafkaLog(Log):
    """Partitions are named `topic/number`, positions are offsets; beside them are the ids of the topics (`TopicIds`).

    The end of a partition is where a reader stands that has read everything: before the first transaction that is not
    decided (the last stable offset), unless the option `isolation.level` says otherwise. The brokers list it, and a fetch from
    there confirms it: a broker that answers fetches can be read from, and some brokers' lists lag behind.
    """

    def __init__(self, topics: Topics) -> None:
        """Take what to read; nothing is contacted yet."""
        self._topics, self._connection = topics, topics.connection
        self._errors, self._ids = LastError(), TopicIds(topics.connection)
        self._ends: Positions = {}
        self._planner: Any = None
        self._reader: Any = None
        self._standing: tuple[str, int] | None = None
        """The partition that the reader is assigned to, and the offset that it gives next."""

    def start(self) -> Positions:
        """Return the offsets at which the job begins, and the ids of the topics."""
        offsets = self.start_offsets()
        return {**offsets, **self._ids.of(self._topics.names)}

    def start_offsets(self) -> Positions:
        """Return the offsets at which the job begins."""
        names, start = self._partitions(), self._topics.start
        oldest = {name: self.oldest(name) for name in names}
        if start.kind == "earliest":
            return oldest
        if start.kind == "latest":
            return self._high(oldest)
        if start.kind == "time":
            return self._at_time(oldest, start.milliseconds)
        if unknown := sorted(start.offsets.keys() - oldest.keys()):
            raise ConfigError(f"a Kafka source is to start at partition {unknown[0]}, which is not there")
        return {**oldest, **start.offsets}

    def end(self, start: Positions) -> Positions:
        """Return the ends of all partitions, and the ids of the topics; refuse topics with other ids than those in `start`.

        Whether what is before them is retained, the reading task finds out.
        """
        names = self._partitions()
        ids = self._ids.of(self._topics.names)
        self._ids.check(start, ids)
        begin = {name: start[name] if name in start else self.oldest(name) for name in names}
        # Asking behind what is known brings no records that nobody reads here.
        self._ends = self._high({name: max(first, self._ends.get(name, 0)) for name, first in begin.items()})
        return {**self._ends, **ids}

    def check(self, recorded: Positions) -> None:
        self._ids.check(recorded, self._ids.of(self._topics.names))

    def listed_ends(self) -> Positions:
        """Return the ends of all partitions as the brokers list them: quicker than `end`, and some brokers' lists lag behind."""
        from confluent_kafka import OFFSET_END

        return self._listed("find the ends of partitions", dict.fromkeys(self._partitions(), OFFSET_END))

    def oldest(self, partition: str) -> int:
        """Return the first offset that the partition retains; for the id of a topic, the id."""
        if is_id(partition):
            return self._ids.of((topic_of(partition),))[partition]
        return self._watermarks(partition)[0]

    def close(self) -> None:
        """Let go of the connection."""
        for consumer in (self._planner, self._reader):
            if consumer is not None:
                consumer.close()
        self._planner = self._reader = self._standing = None

    def read(self, partition: str, first: int, last: int) -> Iterator[pa.RecordBatch]:
        """Give the records between two offsets; offsets of transactions' own records, and of compacted ones, have none."""
        topic, number = split(partition)
        patience = Patience(self._connection, self._errors, f"read {partition} at offset {first}")
        if self._reader is None:
            self._reader = self._consumer(_READING)
        # A reader that stands there has fetched meanwhile what has come; assigned anew, it would wait for a fetch that is under
        # way, and for one more.
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
        # It has given nothing behind these offsets, unless it is past the last.
        self._standing = (partition, first)

    def _stand(self, partition: str, offset: int) -> None:
        from confluent_kafka import TopicPartition

        self._reader.assign([TopicPartition(*split(partition), offset)])

    def _after(self, event: Any, partition: str, first: int, last: int) -> int:
        """Return where to go on after what is no record: the end of the partition, or an offset that is not there."""
        from confluent_kafka import KafkaError

        code = event.error().code()
        if code == KafkaError.GROUP_AUTHORIZATION_FAILED:
            # The client looks for the coordinator of its group, which is never joined.
            return first
        if code == KafkaError._PARTITION_EOF:
            # It stands at the offset that comes next; what is between had no records.
            return max(first, int(event.offset()))
        if code != KafkaError._AUTO_OFFSET_RESET:
            raise self._connection.failed(f"read {partition}", event.error())
        retained = self._retained(partition, first, last)
        self._stand(partition, retained)
        return retained

    def _retained(self, partition: str, first: int, last: int) -> int:
        """Return where to go on when `first` cannot be read, or raise."""
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
                f"the job stands at offset {first} of {where}, and the oldest that is retained is {oldest}: {oldest - first} "
                'records are lost. Say lost="earliest" to go on with that one, or lost="latest" to go on with the newest'
            )
        return ConnectorError(
            f"the job stands at offset {first} of {where}, which ends at {newest}: the topic was deleted and made again, or is "
            "another one. Give the job another name, or the topic that it read"
        )

    def _high(self, positions: Positions) -> Positions:
        """Return the end of each partition, from a fetch that began after the call; none is before its position."""
        from confluent_kafka import OFFSET_END, KafkaError

        patience = Patience(self._connection, self._errors, "fetch from " + ", ".join(self._topics.names))
        high: Positions = {}
        # The watermark that comes with a fetch would not do: it counts records of transactions that are not decided.
        listed = self._listed("find the ends of partitions", dict.fromkeys(positions, OFFSET_END))
        positions = {name: max(first, listed[name]) for name, first in positions.items()}
        self._assign(positions)
        while len(high) < len(positions):
            # The first that comes, at once, and all that has come with it: what one partition has in store stands before the
            # answer of the next.
            messages = self._client().consume(1, _SOON)
            messages += self._client().consume(_AT_ONCE, 0) if messages else []
            patience.check()
            for message in messages:
                name, error = f"{message.topic()}/{message.partition()}", message.error()
                if error is None:
                    high[name] = message.offset() + 1
                elif error.code() == KafkaError._PARTITION_EOF:
                    # With transactions it stands before the first that is not decided: there is nothing to wait for.
                    high[name] = message.offset()
                elif error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
                    # The client looks for the coordinator of its group, which is never joined.
                    continue
                elif error.code() == KafkaError._AUTO_OFFSET_RESET:
                    return self._high_after(name, positions)
                else:
                    raise self._connection.failed(f"fetch from {name}", error)
            if not messages:
                self._check_behind(positions, high, listed)
        self._client().unassign()
        return high

    def _high_after(self, partition: str, positions: Positions) -> Positions:
        oldest, newest = self._watermarks(partition)
        if positions[partition] >= oldest or self._topics.lost == "fail":
            raise self._gone(partition, positions[partition], oldest, newest)
        return self._high({**positions, partition: oldest})

    def _check_behind(self, positions: Positions, high: Positions, listed: Positions) -> None:
        """Raise for a position behind the end, which a broker may answer with silence."""
        for name in positions.keys() - high.keys():
            fetched = self._cached_high(name)
            newest = max(fetched, listed[name])
            if fetched >= 0 and newest < positions[name]:
                raise self._gone(name, positions[name], 0, newest)

    def _at_time(self, oldest: Positions, milliseconds: int) -> Positions:
        offsets = self._listed("find the offsets of a time", dict.fromkeys(oldest, milliseconds))
        # Where all records are older, the answer is no offset but "the end".
        later = self._high(oldest) if min(offsets.values()) < 0 else {}
        return {name: later[name] if offset < 0 else offset for name, offset in offsets.items()}

    def _partitions(self) -> list[str]:
        names = []
        for topic in self._topics.names:
            found = self._look_for(topic)
            if found.error is not None or not found.partitions:
                raise self._no_topic(topic, found.error)
            names += [f"{topic}/{number}" for number in sorted(found.partitions)]
        return names

    def _look_for(self, topic: str) -> Any:
        """Return what the brokers know of a topic. The first request of all: a log-in that is refused is told at once."""
        from confluent_kafka import KafkaException

        patience = Patience(self._connection, self._errors, f"look for the topic {topic!r}")
        while True:
            try:
                return self._client().list_topics(topic, timeout=min(_FIRST, self._connection.timeout)).topics[topic]
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
        """Return the answer to a request. It is sent again while a partition has no leader, for as long as the timeout."""
        from confluent_kafka import KafkaException

        patience = Patience(self._connection, self._errors, doing)
        while True:
            try:
                return ask()
            except KafkaException as error:
                # Why a request was not answered, the client says when it is polled.
                self._client().poll(_SOON)
                if error.args[0].name() not in _PASSING:
                    raise self._connection.failed(doing, self._errors.text(error.args[0])) from None
                patience.check()

    def _no_topic(self, topic: str, error: Any) -> ConfigError | ConnectorError:
        from confluent_kafka import KafkaError

        if error is not None and error.code() not in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC):
            return self._connection.failed(f"read the topic {topic!r}", error)
        there = sorted(self._client().list_topics(timeout=self._connection.timeout).topics)
        known = f"there are {', '.join(there[:20])}" if there else "there is none"
        return ConfigError(
            f"there is no topic {topic!r} at the Kafka brokers {self._connection.brokers} ({known}); make it, or correct the name"
        )

    def _watermarks(self, partition: str) -> tuple[int, int]:
        found: tuple[int, int] | None = self._answered(
            f"find the offsets of {partition}",
            lambda: self._client().get_watermark_offsets(_topic_partition(partition), timeout=self._connection.timeout),
        )
        if found is None:
            raise self._connection.failed(f"find the offsets of {partition}", self._errors.text("no answer"))
        return int(found[0]), int(found[1])

    def _cached_high(self, partition: str) -> int:
        return int(self._client().get_watermark_offsets(_topic_partition(partition), cached=True)[1])

    def _assign(self, positions: Mapping[str, int]) -> None:
        from confluent_kafka import TopicPartition

        self._client().assign([TopicPartition(*split(name), offset) for name, offset in positions.items()])

    def _client(self) -> Any:
        if self._planner is None:
            self._planner = self._consumer(_PLANNING)
        return self._planner

    def _consumer(self, settings: Mapping[str, Any]) -> Any:
        from confluent_kafka import Consumer

        return client(Consumer, self._connection, **settings, error_cb=self._errors)


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
