"""kafka: records to a topic, a transaction per commit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec
import pyarrow as pa

from tidewheel._codecs.base import PayloadCodec, payload_codec
from tidewheel._codecs.json import json
from tidewheel._connectors.kafka.client import connection
from tidewheel._connectors.kafka.markers import Target
from tidewheel._connectors.kafka.producer import Plain
from tidewheel._connectors.kafka.sink_topics import check_topics, largest_message
from tidewheel._connectors.kafka.transactions import Transactions, forget_runs
from tidewheel._connectors.messages import check_size
from tidewheel._connectors.sink import Guarantee, Publication, Sink, SinkPartition, Staging
from tidewheel._connectors.staging import StagedBatches
from tidewheel._time.duration import Duration
from tidewheel.errors import ConfigError, StepError

_PRODUCERS = 8
"""The maximum number of open producers. Each run of a fleet has one, and a node publishes for many runs."""


def kafka(
    brokers: str,
    topic: str,
    *,
    key: str | Literal[False] | None = None,
    codec: PayloadCodec | None = None,
    exactly_once: bool = True,
    marker_topic: str = "tidewheel-markers",
    timeout: Duration = "60 s",
    options: Mapping[str, Any] | None = None,
) -> Kafka:
    """Send records to a topic. Exactly once to readers of committed transactions; `exactly_once=False`, at least once, is faster.

    The codec encodes the record as the value of a message; the default is JSON. The key of a message is the key of the
    stream, as bytes or text, and determines the partition. `key` names another column; `key=False` sends messages
    without keys. A tuple key is sent as a JSON list. Messages of one key are sent in the order of the records.

    A commit is one transaction, which also writes a marker of job and sink, so that a commit is not sent twice after a
    crash. Readers must set `isolation.level=read_committed` (the default of librdkafka and of our source, not of the
    Java client). Markers are in a separate compacted topic, which is created if it is missing; do not delete it while
    the job exists. Two jobs with one name must not send to one Kafka.

    `options` are options of librdkafka. The environment variable `TIDEWHEEL_KAFKA_SASL_PASSWORD` sets `sasl.password`,
    and so on.
    """
    if not isinstance(topic, str) or not topic or topic == marker_topic:
        raise ConfigError(f"a Kafka sink sends to a topic that is not its marker topic, not to {topic!r}")
    target = Target(connection(brokers, options, timeout), topic, marker_topic if exactly_once else None)
    return Kafka(target, key, (json() if codec is None else payload_codec(codec)).for_topic(topic))


class Kafka(Sink):
    """Exactly once to readers of committed transactions: records and batch marker are one transaction."""

    guarantee: Guarantee = "exactly once"

    def __init__(
        self, target: Target, key: str | Literal[False] | None, codec: PayloadCodec, *, tuples: bool = False
    ) -> None:
        """Take the settings. Nothing is contacted before the job starts."""
        self.target, self.key, self.codec = target, key, codec
        self._tuples = tuples
        """Whether keys can be tuples, which are columns of structs."""
        if target.markers is None:
            self.guarantee = "at least once"
        self._largest: int | None = None
        """The maximum size of a message in bytes; set at the start of the job."""
        self._sending: dict[tuple[str, str], Plain | Transactions] = {}

    def keyed_by(self, column: str | None) -> Kafka:
        """Use the key of the stream as the key of messages, unless `key` was given."""
        return self if column is None or self.key is not None else Kafka(self.target, column, self.codec, tuples=True)

    def describe(self) -> str:
        """Return a few words for messages."""
        return f"Kafka {self.target.topic} at {self.target.connection.brokers}"

    def place(self) -> str:
        return f"Kafka topic {self.target.topic}"

    def start(self, job: str) -> None:
        """Check that the topic exists, create the marker topic, and let the codec check its schema."""
        check_topics(self.target)
        self.codec.prepare()
        self._largest = largest_message(self.target)

    def open(self, staging: Staging) -> SinkPartition:
        """Begin a task's output: payloads, staged in the job's store."""
        return _Payloads(staging, self.key or None, self.codec, self._largest, tuples=self._tuples)

    def publish(self, publication: Publication) -> None:
        """Send the staged output, unless the marker shows that it was sent."""
        if not publication.tokens:
            return
        name = (publication.job, publication.sink)
        sending = self._sending.pop(name, None)
        if sending is None:
            sending = Plain(self.target) if self.target.markers is None else Transactions(self.target, *name)
        # The producers are in the order of their last use.
        self._sending[name] = sending
        if len(self._sending) > _PRODUCERS:
            self._sending.pop(next(iter(self._sending))).close()
        sending.publish(publication)

    def stop(self, job: str) -> None:
        """Close the job's producers."""
        for name in list(self._sending):
            if name[0] == job:
                self._sending.pop(name).close()

    def forget(self, job: str, sink: str, runs: Sequence[int]) -> None:
        """Delete the publish markers of finished runs."""
        if self.target.markers is not None:
            forget_runs(self.target, job, sink, runs)

    def __getstate__(self) -> dict[str, Any]:
        """Leave the producer in the driver."""
        return {**self.__dict__, "_sending": {}}


class _Payloads(StagedBatches):
    """Encodes records in the tasks, so that the driver only sends."""

    def __init__(
        self, staging: Staging, key: str | None, codec: PayloadCodec, largest: int | None, *, tuples: bool = False
    ) -> None:
        super().__init__(staging)
        self._tuples = tuples
        self._name, self._key, self._codec, self._largest = staging.sink, key, codec, largest

    def write(self, columns: pa.RecordBatch) -> None:
        if not columns.num_rows:
            return
        try:
            values = self._codec.encode(columns)
        except ConfigError as error:
            raise StepError(f"sink {self._name!r}: {error}") from error
        keys = self._keys(columns)
        sizes = [value + key for value, key in zip(values, keys.to_pylist(), strict=True) if value and key]
        check_size([*filter(None, values), *sizes], self._largest, self._name)
        super().write(pa.RecordBatch.from_arrays([keys, pa.array(values, pa.binary())], names=["key", "value"]))

    def _keys(self, columns: pa.RecordBatch) -> pa.Array:
        if self._key is None:
            return pa.nulls(columns.num_rows, pa.binary())
        at = columns.schema.get_field_index(self._key)
        if at < 0:
            raise StepError(
                f"sink {self._name!r}: there is no column {self._key!r} to be the key; "
                f"there are {', '.join(columns.schema.names)}"
            )
        keys = columns.column(at)
        if self._tuples and pa.types.is_struct(keys.type):
            return pa.array([msgspec.json.encode(list(key.values())) for key in keys.to_pylist()], pa.binary())
        if pa.types.is_nested(keys.type):
            raise StepError(
                f"sink {self._name!r}: the column {self._key!r} is {keys.type}, and a key is bytes, text or a number"
            )
        return keys if pa.types.is_binary(keys.type) else keys.cast(pa.string()).cast(pa.binary())
