"""kafka: the records of topics."""

from __future__ import annotations

import datetime
import json
import re
import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal, get_args

from tidewheel._checkpoint.manifest import Position, SeenFile
from tidewheel._checkpoint.spark_log import OldPosition
from tidewheel._connectors.kafka.client import connection
from tidewheel._connectors.kafka.log import KafkaLog, Lost, Start, Topics
from tidewheel._connectors.kafka.topic_ids import is_id
from tidewheel._connectors.log_source import PartitionedSource, Positions
from tidewheel._connectors.log_stream import LogReader
from tidewheel._connectors.source import Source, Unread
from tidewheel._time.duration import Duration
from tidewheel.errors import ConfigError

_SPARK_CONNECTOR = "kafka"
"""The kind under which earlier versions recorded the offsets of Spark's own connector."""


def kafka(
    brokers: str,
    topics: str | Sequence[str] | re.Pattern[str],
    *,
    start: Literal["earliest", "latest"] | datetime.datetime | Mapping[Any, Any] = "earliest",
    lost: Lost = "fail",
    headers: bool = False,
    max_records: int | None = None,
    timeout: Duration = "30 s",
    group: str | None = None,
    options: Mapping[str, Any] | None = None,
    connector: str | None = None,
) -> Source:
    """Read topics, with the columns key, value, topic, partition, offset and timestamp; `Stream.decode` decodes values.

    `headers=True` adds the column headers, which makes reading much slower.

    A new job begins at `start`: "earliest", "latest", a time, or offsets as `{partition: offset}`, or `{topic:
    {partition: offset}}` for several topics. Later runs continue from the offsets of the last commit; the job joins no
    consumer group. A batch has at most `max_records`. A batch that runs again reads the same records, as long as the
    topic retains them. If the topic has deleted records that the job has not read, the job stops and names both
    offsets; with `lost="earliest"` or `lost="latest"` it continues there.

    One task reads a partition, in order. Records of uncommitted transactions are skipped, unless the option
    `isolation.level` says otherwise. `options` are options of librdkafka; the environment variable
    `TIDEWHEEL_KAFKA_SASL_PASSWORD` sets `sasl.password`, and so on. `timeout` limits how long the job waits for an
    answer of the brokers.

    `topics` can be a compiled pattern, `re.compile("orders-.*")`, which the whole name of a topic must match. Matching
    topics that are created later are read from their first record. With `group`, each commit also stores its offsets
    under
    that consumer group, so that tools of Kafka show the lag. The job never reads them back.

    To read with Spark's own connector, use `sources.dataframe(lambda spark: spark.readStream.format("kafka")…)`.
    """
    pattern = topics if isinstance(topics, re.Pattern) else None
    names = () if isinstance(topics, re.Pattern) else (topics,) if isinstance(topics, str) else tuple(topics)
    if pattern is not None and not isinstance(pattern.pattern, str):
        raise ConfigError(f"the pattern of a Kafka source is one of text, re.compile('orders-.*'), not {topics!r}")
    if (not names and pattern is None) or not all(isinstance(name, str) and name for name in names):
        raise ConfigError(f"a Kafka source reads a topic, or several, not {topics!r}")
    if lost not in get_args(Lost):
        raise ConfigError(f"lost= is one of {', '.join(get_args(Lost))}, not {lost!r}")
    if connector == "spark":
        raise ConfigError(
            "Kafka sources read with tidewheel's own connector; for Spark's connector use "
            'sources.dataframe(lambda spark: spark.readStream.format("kafka").options(…).load())'
        )
    if connector is not None:
        warnings.warn("connector= has no effect any more: leave it out", DeprecationWarning, stacklevel=2)
    if group is not None and (not isinstance(group, str) or not group):
        raise ConfigError(f"group= is the name of a consumer group, not {group!r}")
    connected = connection(brokers, options, timeout)
    reading = Topics(connected, names, _start(start, names, pattern), lost, headers, pattern)
    return KafkaSource(reading, max_records, group)


class KafkaSource(PartitionedSource):
    """Topics of a Kafka; its position has the offsets by topic and partition."""

    kind = "kafka-log"

    def __init__(self, topics: Topics, max_records: int | None, group: str | None = None) -> None:
        """Take the settings. Nothing is contacted before the job starts."""
        super().__init__(partial(KafkaLog, topics), topics.schema, max_records)
        self.topics, self.group = topics, group

    def reader(self) -> LogReader:
        if self.group is None:
            return super().reader()
        from tidewheel._connectors.kafka.group import GroupOffsets, GroupReader

        offsets = GroupOffsets(self.topics.connection, self.group)
        return GroupReader(self.opener, self.schema, self.max_records, offsets)

    def describe(self) -> str:
        """Return a few words for messages."""
        return f"Kafka {self.topics.spelled()} at {self.topics.connection.brokers}"

    def adopt(self, old: OldPosition, seen: Sequence[SeenFile]) -> Position | None:
        if old.kinds == (_SPARK_CONNECTOR,):
            return None if old.text is None else {**offsets_of_spark(old.text)}
        return super().adopt(old, seen)

    def unread(self, position: Position) -> Mapping[str, Unread]:
        return {name: found for name, found in super().unread(position).items() if not is_id(name)}


def offsets_of_spark(text: str) -> Positions:
    """Return the offsets that Spark's Kafka connector recorded, by topic and partition, as positions of a `KafkaLog`.

    >>> offsets_of_spark('{"orders": {"0": 7, "1": 9}}')
    {'orders/0': 7, 'orders/1': 9}
    """
    recorded: dict[str, dict[str, int]] = json.loads(text)
    return {f"{topic}/{number}": offset for topic, part in recorded.items() for number, offset in part.items()}


def _start(start: Any, names: tuple[str, ...], pattern: re.Pattern[str] | None) -> Start:
    if start in ("earliest", "latest"):
        return Start(start)
    if isinstance(start, datetime.datetime):
        if start.tzinfo is None:
            raise ConfigError(f"the time {start} at which a Kafka source starts needs a time zone")
        return Start("time", milliseconds=int(start.timestamp() * 1000))
    if isinstance(start, Mapping):
        offsets = given_offsets(start, names, pattern)
        if offsets is not None:
            return Start("offsets", offsets=offsets)
    raise ConfigError(
        "a Kafka source starts at 'earliest', 'latest', a datetime, {partition: offset}, or {topic: {partition: offset}} of its "
        f"own topics, not {start!r}"
    )


def given_offsets(
    given: Mapping[Any, Any], names: tuple[str, ...], pattern: re.Pattern[str] | None
) -> Positions | None:
    """Return the offsets that a program gives, as `{partition: offset}` or by topic; None if they are not of these topics."""
    nested = all(isinstance(value, Mapping) for value in given.values())
    if not nested and len(names) != 1:
        return None
    by_topic = given if nested else {names[0]: given}
    own = names.__contains__ if pattern is None else pattern.fullmatch
    try:
        if all(map(own, by_topic)):
            return {f"{topic}/{int(n)}": int(offset) for topic, part in by_topic.items() for n, offset in part.items()}
    except (TypeError, ValueError):
        pass
    return None
