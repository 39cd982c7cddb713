"""Commit the offsets of a job to a consumer group, for information: Kafka's own tools then show the lag of the job."""

from __future__ import annotations

import contextlib
from concurrent.futures import Future
from typing import Any

from tidewheel._checkpoint.manifest import Position
from tidewheel._connectors.kafka.client import Connection, client, once_coordinated
from tidewheel._connectors.kafka.topic_ids import is_id
from tidewheel._connectors.log_source import Opener, Positions
from tidewheel._connectors.log_stream import LogReader, positions_of
from tidewheel._core import logs

_LOG = logs.logger(__name__)
_LAST_S = 5.0
"""How long the end of a run waits for the group, in seconds."""


class GroupReader(LogReader):
    """A reader that reports committed positions to a consumer group. It never reads them back."""

    def __init__(self, opener: Opener, schema: Any, max_records: int | None, group: GroupOffsets) -> None:
        """Take the arguments of a `LogReader`, and the group."""
        super().__init__(opener, schema, max_records)
        self._group = group

    def end(self, start: Position) -> Position:
        self._group.tend()
        return super().end(start)

    def committed(self, position: Position) -> None:
        self._group.report(positions_of(position))

    def close(self) -> None:
        super().close()
        self._group.close()


class GroupOffsets:
    """The offsets of one consumer group. No method raises, and only `close` waits: a job must not fail because of a display.

    One request is in flight at a time, so that an older one cannot arrive after a newer one.
    """

    def __init__(self, connected: Connection, group: str) -> None:
        """Take how to reach the brokers, and the name of the group; nothing is contacted yet."""
        self._connection, self._group = connected, group
        self._admin: Any = None
        self._newest: Positions = {}
        self._sent: tuple[Positions, Future[Any]] | None = None
        self._stored: Positions = {}
        self._warned = ""

    def report(self, positions: Positions) -> None:
        """Report positions of the newest commit, in the background."""
        self._newest = {name: offset for name, offset in positions.items() if not is_id(name)}
        self.tend()

    def tend(self) -> None:
        """Send the newest offsets unless they are stored or a request is in flight; after an error, send them again."""
        if self._sent is not None:
            if not self._sent[1].done():
                return
            self._settle()
        if self._newest != self._stored:
            try:
                self._sent = self._newest, self._request()
            except Exception as error:
                self._warn(error)

    def close(self) -> None:
        """Wait a few seconds until the newest offsets are stored."""
        if self._sent is not None:
            with contextlib.suppress(Exception):
                self._sent[1].result(_LAST_S)
            self._settle()
        if self._newest != self._stored:
            try:
                once_coordinated(lambda: _checked(self._request().result(_LAST_S)), _LAST_S)
                self._stored = self._newest
            except Exception as error:
                self._warn(error)
        self._admin = None

    def _settle(self) -> None:
        assert self._sent is not None
        (offsets, answer), self._sent = self._sent, None
        try:
            _checked(answer.result(0))
            self._stored = offsets
        except Exception as error:
            self._warn(error)

    def _request(self) -> Future[Any]:
        from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
        from confluent_kafka.admin import AdminClient

        if self._admin is None:
            self._admin = client(AdminClient, self._connection)
        offsets = []
        for name, offset in self._newest.items():
            topic, _, number = name.rpartition("/")
            offsets.append(TopicPartition(topic, int(number), offset))
        asked = [ConsumerGroupTopicPartitions(self._group, offsets)]
        timeout = self._connection.timeout
        answer: Future[Any] = self._admin.alter_consumer_group_offsets(asked, request_timeout=timeout)[self._group]
        return answer

    def _warn(self, error: Exception) -> None:
        """Log an error, once until another one happens."""
        reason = getattr(error, "args", (error,))[0] if error.args else error
        text = str(self._connection.failed(f"commit offsets to the group {self._group!r}", reason))
        if text != self._warned:
            self._warned = text
            _LOG.warning("%s; the job continues, and tools of Kafka show older offsets", text)


def _checked(answer: Any) -> None:
    """Raise the error of a partition, if one was not stored."""
    from confluent_kafka import KafkaException

    for each in answer.topic_partitions:
        if each.error is not None:
            raise KafkaException(each.error)
