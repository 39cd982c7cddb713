"""kafka: the records of topics."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, get_args

from tidewheel._checkpoint.manifest import Position
from tidewheel._connectors.direct import DirectReader
from tidewheel._connectors.kafka import spark_connector
from tidewheel._connectors.kafka.client import connection
from tidewheel._connectors.kafka.log import KafkaLog, Lost, Start, Topics
from tidewheel._connectors.kafka.topic_ids import is_id
from tidewheel._connectors.log_source import PartitionedSource
from tidewheel._connectors.source import Source, Unread
from tidewheel._time.duration import Duration
from tidewheel.errors import ConfigError, StateError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

Connector = Literal["auto", "spark", "python"]
_RECORDED: Mapping[str, Connector] = {spark_connector.KIND: "spark", "kafka-log": "python"}
"""The connector of each kind of stream that a manifest may record."""


def kafka(
    brokers: str,
    topics: str | Sequence[str],
    *,
    start: Literal["earliest", "latest"] | datetime.datetime | Mapping[Any, Any] = "earliest",
    lost: Lost = "fail",
    headers: bool = False,
    max_records: int | None = None,
    timeout: Duration = "30 s",
    options: Mapping[str, Any] | None = None,
    connector: Connector = "auto",
) -> Source:
    """Read topics: columns key, value, topic, partition, offset, timestamp, bytes as they are (see `Stream.decode`).

    With `headers`, there is a column of that name too, which makes reading much slower.

    A job that has read nothing begins at `start`: "earliest", "latest", a time, or offsets as `{partition: offset}`, or
    `{topic: {partition: offset}}` for several topics. From then on it begins where it ended; offsets are in its commits,
    and no consumer group is joined. A batch has at most `max_records`. On replay the same offsets are read again, and
    give the same records, as long as the topic retains them. Offsets that it does not retain any more stop the job with
    both numbers, unless `lost` says to go on from the "earliest" that is there, or from the "latest".

    A partition is read by one task, in order. Records of transactions that are not committed are left out, unless the
    option `isolation.level` says otherwise. `options` are librdkafka's; `TIDEWHEEL_KAFKA_SASL_PASSWORD` in the environment is
    the option `sasl.password`, and so on. `timeout` is how long the brokers may be silent.

    `connector` "auto" takes Spark's own connector if its jar is on the class path when the job first runs, else Python's.
    The two record offsets in forms of their own, so a job stays with the one that it began with: "auto" does, and another
    one is refused.
    """
    names = (topics,) if isinstance(topics, str) else tuple(topics)
    if not names or not all(isinstance(name, str) and name for name in names):
        raise ConfigError(f"a Kafka source reads a topic, or several, not {topics!r}")
    if lost not in get_args(Lost):
        raise ConfigError(f"lost= is one of {', '.join(get_args(Lost))}, not {lost!r}")
    if connector not in get_args(Connector):
        raise ConfigError(f"connector= is one of {', '.join(get_args(Connector))}, not {connector!r}")
    reading = Topics(connection(brokers, options, timeout), names, _start(start, names), lost, headers)
    return KafkaSource(reading, max_records, connector)


class KafkaSource(PartitionedSource):
    """Topics of a Kafka; offsets are those of Kafka, by topic and partition."""

    def __init__(self, topics: Topics, max_records: int | None, connector: Connector) -> None:
        """Take the settings; the brokers are asked when the job starts."""
        super().__init__(partial(KafkaLog, topics), topics.schema, max_records)
        self.topics, self.connector = topics, connector
        self._by_spark = False
        self._recorded: Connector | None = None

    def describe(self) -> str:
        """Return a few words for messages."""
        return f"Kafka {', '.join(self.topics.names)} at {self.topics.connection.brokers}"

    def continues(self, kind: str) -> None:
        self._recorded = _RECORDED.get(kind)
        if self._recorded is not None and self.connector not in ("auto", self._recorded):
            raise StateError(
                f'the job has read {self.describe()} with connector="{self._recorded}", and its offsets mean nothing to '
                f'connector="{self.connector}": say connector="{self._recorded}" or "auto", or give the source a new name, and '
                "go on without the offsets of its old name with --allow-dropped-source NAME (allow_dropped_source=[NAME])"
            )

    def direct(self, columns: pa.Schema) -> DirectReader | str:
        by_spark = self._by_spark or self.connector == "spark"
        return "Spark's own connector reads it" if by_spark else super().direct(columns)

    def unread(self, offsets: Position) -> Mapping[str, Unread]:
        if self._by_spark:
            offsets = json.dumps(spark_connector.positions_of(str(offsets)))
        return {name: found for name, found in super().unread(offsets).items() if not is_id(name)}

    def load(self, spark: SparkSession) -> DataFrame:
        """Return the streaming DataFrame."""
        there = spark_connector.is_there(spark)
        connector = self._recorded if self.connector == "auto" else self.connector
        self._by_spark = there if connector is None else connector == "spark"
        if not self._by_spark:
            return super().load(spark)
        if not there:
            raise ConfigError(
                f"{self.describe()} needs the jar spark-sql-kafka-0-10 on the class path (spark.jars.packages): "
                + (
                    'connector="spark" says so'
                    if self.connector == "spark"
                    else "the job has read it with that connector"
                )
            )
        return spark_connector.load(spark, self.topics, self.max_records)


def _start(start: Any, topics: tuple[str, ...]) -> Start:
    if start in ("earliest", "latest"):
        return Start(start)
    if isinstance(start, datetime.datetime):
        if start.tzinfo is None:
            raise ConfigError(f"the time {start} at which a Kafka source starts needs a time zone")
        return Start("time", milliseconds=int(start.timestamp() * 1000))
    if isinstance(start, Mapping):
        nested = all(isinstance(value, Mapping) for value in start.values())
        by_topic = start if nested else {topics[0]: start}
        if (nested or len(topics) == 1) and by_topic.keys() <= set(topics):
            try:
                return Start(
                    "offsets",
                    offsets={
                        f"{topic}/{int(number)}": int(offset)
                        for topic, offsets in by_topic.items()
                        for number, offset in offsets.items()
                    },
                )
            except (TypeError, ValueError):
                pass
    raise ConfigError(
        "a Kafka source starts at 'earliest', 'latest', a datetime, {partition: offset}, or {topic: {partition: offset}} of its "
        f"own topics, not {start!r}"
    )
