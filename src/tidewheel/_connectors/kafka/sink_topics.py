"""Check the topics of a sink: the target, and the topic of the markers, which is created if it is missing."""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from contextlib import closing
from typing import Any

from tidewheel._connectors.kafka.client import Connection, client
from tidewheel._connectors.kafka.log import KafkaLog, Start, Topics
from tidewheel._connectors.kafka.markers import Target
from tidewheel._core.logs import logger
from tidewheel.errors import ConfigError, ConnectorError

_LOG = logger(__name__)

_MESSAGE_BYTES, _OVERHEAD = 1_000_000, 1_000
"""The default limit of librdkafka for a message (`message.max.bytes`), and room for headers."""


def check_topics(target: Target) -> None:
    """Check that the target exists, and create the marker topic if it is missing."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    with closing(KafkaLog(Topics(target.connection, (target.topic,), Start("earliest"), "fail"))) as log:
        log.start_offsets()
    if target.markers is None:
        return
    admin = client(AdminClient, target.connection)
    with target.connection.explained(f"look for the marker topic {target.markers!r}"):
        there = admin.list_topics(timeout=target.connection.timeout).topics
    if target.markers in there:
        _check_single(target.markers, there[target.markers].partitions)
        _check_retention(admin, target, target.markers)
        return
    made = admin.create_topics([NewTopic(target.markers, 1, -1, config={"cleanup.policy": "compact"})])
    try:
        made[target.markers].result(target.connection.timeout)
    except KafkaException as error:
        if error.args[0].name() != "TOPIC_ALREADY_EXISTS":
            raise ConnectorError(
                f"cannot make the marker topic {target.markers!r} at the Kafka brokers {target.connection.brokers}: "
                f"{target.connection.hidden(error.args[0].str())}; make it, with one partition and cleanup.policy=compact"
            ) from None


def _check_single(topic: str, partitions: Collection[int]) -> None:
    if list(partitions) != [0]:
        raise ConfigError(
            f"the marker topic {topic!r} must have one partition, and has {len(partitions)}; give another by marker_topic="
        )


def largest_message(target: Target) -> int:
    """Return the maximum size of a message: the limit of the producer, and that of the topic if it is readable."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    limits = [int(target.connection.options.get("message.max.bytes", _MESSAGE_BYTES))]
    # Without a reference, the client would be closed before the brokers answer.
    admin = client(AdminClient, target.connection)
    with contextlib.suppress(KafkaException):
        limits += map(int, filter(None, _settings(admin, target.connection, target.topic, "max.message.bytes")))
    return min(limits) - _OVERHEAD


def _check_retention(admin: Any, target: Target, topic: str) -> None:
    """Refuse a marker topic that deletes markers: a repeated publication would not be recognised."""
    from confluent_kafka import KafkaException

    names = ("cleanup.policy", "retention.ms", "retention.bytes")
    try:
        policy, age, size = _settings(admin, target.connection, topic, *names)
    except KafkaException as error:
        text = target.connection.hidden(error.args[0].str())
        _LOG.warning("whether the marker topic %r is compacted cannot be seen: %s", topic, text)
        return
    if policy is not None and "delete" in policy and not age == size == "-1":
        raise ConfigError(
            f"the marker topic {topic!r} at the Kafka brokers {target.connection.brokers} has cleanup.policy={policy}, "
            "and a sink's marker must never be deleted: set cleanup.policy=compact, or give another topic by marker_topic="
        )


def _settings(admin: Any, connection: Connection, topic: str, *names: str) -> list[str | None]:
    """Return settings of a topic; raise a `KafkaException` for a user who may write to the topic but not see them."""
    from confluent_kafka.admin import ConfigResource, ResourceType  # type: ignore[attr-defined]

    resource = ConfigResource(ResourceType.TOPIC, topic)
    found = admin.describe_configs([resource], request_timeout=connection.timeout)[resource].result()
    return [found[name].value if name in found else None for name in names]
