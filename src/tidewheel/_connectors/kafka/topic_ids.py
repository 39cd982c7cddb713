"""Detect topics that were deleted and created again: they have the old name and another id.

In addition to the offsets of its partitions, a position has an entry with the id of each topic, as a number. The id
never changes, so there is nothing to read between two ids.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

from tidewheel._connectors.kafka.client import Connection, client
from tidewheel._connectors.log_source import Positions
from tidewheel.errors import ConnectorError

_ENTRY = "#id"
_UNKNOWN = ("_UNSUPPORTED_FEATURE", "UNSUPPORTED_VERSION", "UNKNOWN_TOPIC_OR_PART")
_HALF = 2**64


class TopicIds:
    """Asks the brokers for the ids of topics."""

    def __init__(self, connected: Connection) -> None:
        """Take the connection settings of the brokers; nothing is contacted yet."""
        self._connection = connected
        self._admin: Any = None

    def of(self, topics: Sequence[str]) -> Positions:
        """Return the entries of topics. Brokers before Kafka 2.8 do not report ids: such topics have no entry."""
        from confluent_kafka import KafkaException, TopicCollection
        from confluent_kafka.admin import AdminClient

        if self._admin is None:
            self._admin = client(AdminClient, self._connection)
        timeout = self._connection.timeout
        answers = self._admin.describe_topics(TopicCollection(list(topics)), request_timeout=timeout)
        entries = {}
        for topic, answer in answers.items():
            try:
                number = _number(answer.result(timeout).topic_id)
            except KafkaException as error:
                if error.args[0].name() not in _UNKNOWN:
                    raise self._connection.failed(f"find the id of the topic {topic!r}", error.args[0]) from None
                continue
            if number:
                entries[f"{topic}{_ENTRY}"] = number
        return entries

    def check(self, recorded: Positions, present: Positions) -> None:
        """Raise if a topic is not the one that the job has read."""
        for entry in sorted(recorded.keys() & present.keys()):
            if is_id(entry) and recorded[entry] != present[entry]:
                raise ConnectorError(
                    f"the job has read the topic {topic_of(entry)!r} with the id {_shown(recorded[entry])}, and the one at the "
                    f"Kafka brokers {self._connection.brokers} has the id {_shown(present[entry])}: the topic was deleted and "
                    "made again, or is another one. Give the job the topic that it read, or give the source a new name, and go "
                    "on without the offsets of its old name with --allow-dropped-source NAME (allow_dropped_source=[NAME])"
                )


def is_id(entry: str) -> bool:
    """Return whether an entry of positions is the id of a topic, and not the offset of a partition.

    >>> is_id("orders#id"), is_id("orders/0")
    (True, False)
    """
    return entry.endswith(_ENTRY)


def topic_of(entry: str) -> str:
    """Return the topic of an id."""
    return entry.removesuffix(_ENTRY)


def _number(topic_id: Any) -> int:
    """Return an id as a number of 128 bits; 0 if there is none."""
    if topic_id is None:
        return 0
    high, low = topic_id.get_most_significant_bits(), topic_id.get_least_significant_bits()
    return int(high % _HALF * _HALF + low % _HALF)


def _shown(number: int) -> str:
    """Return an id as Kafka's own tools write it.

    >>> _shown(1)
    'AAAAAAAAAAAAAAAAAAAAAQ'
    """
    return base64.urlsafe_b64encode(number.to_bytes(16, "big")).decode().rstrip("=")
