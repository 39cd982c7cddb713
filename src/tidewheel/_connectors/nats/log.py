"""A JetStream stream as a log: its sequences are positions.

A temporary consumer reads a range: it begins at a sequence, acknowledges nothing and is kept in memory. If it fails,
the next consumer continues where it stopped.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, TypeVar

import msgspec
import pyarrow as pa

from tidewheel._connectors.log_source import Log, Positions
from tidewheel._connectors.nats.client import NatsConnection
from tidewheel._connectors.nats.pull import Message, Pull, columns
from tidewheel._core.urls import Url
from tidewheel.errors import ConfigError, ConnectorError, ConnectorUnavailable

T = TypeVar("T")

Start = Literal["earliest", "latest"]
OnLost = Literal["fail", "earliest"]

_FETCH = 5000
_CONSUMER_LIVES_S = 60


@dataclass(frozen=True)
class NatsLogOpener:
    """The stream, and how to read it. It is sent to the tasks."""

    url: Url
    stream: str
    subjects: tuple[str, ...]
    start: Start | int | datetime
    lost: OnLost
    credentials: str | None
    timeout: float

    def __call__(self) -> NatsLog:
        """Connect."""
        return NatsLog(self)


class NatsLog(Log):
    """One partition, under the name of the stream."""

    def __init__(self, settings: NatsLogOpener) -> None:
        self._settings, self._name = settings, settings.stream
        self._connection = NatsConnection(settings.url, credentials=settings.credentials, timeout=settings.timeout)
        self._pull: Pull | None = None
        self._where = f"the stream {self._name} at {self._connection.url}"

    def start(self) -> Positions:
        info = self._asked(self._info)
        if info.config.retention != "limits":
            raise ConfigError(
                f"{self._where} has the retention policy {info.config.retention}, which deletes messages that others have "
                "read, and a job must be able to read messages again: read a stream with the policy limits that has this "
                "stream as its source"
            )
        start = self._settings.start
        if isinstance(start, datetime):
            return {self._name: self._asked(lambda: self._first_since(start))}
        if isinstance(start, int):
            return {self._name: start}
        return {self._name: max(info.state.first_seq, 1) if start == "earliest" else info.state.last_seq + 1}

    def end(self, start: Positions) -> Positions:
        state = self._asked(self._info).state
        if self._name in start:
            self._check(state, start[self._name], start[self._name])
        return {self._name: int(state.last_seq) + 1}

    def read(self, partition: str, first: int, last: int) -> Iterator[pa.RecordBatch]:
        state = self._asked(self._info).state
        self._check(state, first, last)
        position = max(first, state.first_seq)
        while position < last:
            messages, position = self._asked(lambda at=position: self._fetched(at, last))  # type: ignore[misc]
            if messages:
                yield columns(messages)
        # Messages that the stream has deleted meanwhile may be missing from what was read.
        self._check(self._asked(self._info).state, first, last)

    def oldest(self, partition: str) -> int:
        return max(int(self._asked(self._info).state.first_seq), 1)

    def close(self) -> None:
        if self._pull is not None:
            with contextlib.suppress(ConnectorError):
                self._connection.call(self._pull.close())
        self._connection.close()

    def _asked(self, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        return self._connection.call_until(time.monotonic() + 3 * self._settings.timeout, make)

    def _check(self, state: Any, first: int, last: int) -> None:
        if first < state.first_seq and self._settings.lost == "fail":
            raise ConnectorError(
                f"{self._where} begins at sequence {state.first_seq}, and the job continues at {first}: the "
                "messages between were deleted before the job read them. Give the stream larger limits; to continue at "
                "the oldest message, read the stream with lost='earliest'"
            )
        if last > state.last_seq + 1:
            raise ConnectorError(
                f"{self._where} ends at sequence {state.last_seq}, and the job has read up to {last - 1}: it is not "
                "the stream "
                "that the job has read before, or the server has lost a part of it. Restore the stream, or begin a "
                "new job"
            )

    async def _info(self) -> Any:
        from nats.js.errors import NotFoundError

        try:
            return await self._connection.jetstream.stream_info(self._name)
        except NotFoundError:
            names = sorted(info.config.name for info in await self._connection.jetstream.streams_info())
            there = f"it has {', '.join(names[:10])}" if names else "it has none"
            raise ConfigError(
                f"there is no stream {self._name!r} at {self._connection.url}: {there}; check the name, or make it"
            ) from None

    async def _consumer(self, **begin: Any) -> dict[str, Any]:
        """Create a temporary consumer; return the answer of the server."""
        subjects = self._settings.subjects
        config = {
            "ack_policy": "none",
            "mem_storage": True,
            "num_replicas": 1,
            "inactive_threshold": _CONSUMER_LIVES_S * 10**9,
            **({"filter_subjects": subjects} if subjects else {}),
            **begin,
        }
        body = msgspec.json.encode({"stream_name": self._name, "config": config})
        answer = await self._connection.client.request(
            f"$JS.API.CONSUMER.CREATE.{self._name}", body, timeout=self._settings.timeout
        )
        consumer: dict[str, Any] = msgspec.json.decode(answer.data)
        if error := consumer.get("error"):
            kind = ConnectorUnavailable if error["code"] == 503 else ConnectorError
            raise kind(f"{self._where} cannot be read: {error.get('description')}")
        return consumer

    async def _first_since(self, since: datetime) -> int:
        consumer = await self._consumer(deliver_policy="by_start_time", opt_start_time=since.isoformat())
        return int(consumer["delivered"]["stream_seq"]) + 1

    async def _fetched(self, first: int, last: int) -> tuple[list[Message], int]:
        """Return the next messages of a range, and the sequence at which to continue: `last` if there are no more."""
        if self._pull is None or self._pull.next != first:
            if self._pull is not None:
                await self._pull.close()
            self._pull = None
            consumer = await self._consumer(deliver_policy="by_start_sequence", opt_start_seq=first)
            self._pull = await Pull.begun(self._connection, self._name, consumer["name"], first)
        messages = await self._pull.fetched(min(_FETCH, last - first))
        if messages:
            following = min(messages[-1].sequence + 1, last)
            return [message for message in messages if message.sequence < last], following
        if await self._has_more(first, last):
            # The consumer is gone, or is on a server that lags behind the leader.
            self._pull.next = -1
            raise ConnectorUnavailable(f"{self._where} has messages from sequence {first} on and does not give them")
        return [], last

    async def _has_more(self, first: int, last: int) -> bool:
        """Ask the leader whether there is a message in a range."""
        from nats.js.errors import NotFoundError

        for subject in self._settings.subjects or (">",):
            try:
                message = await self._connection.jetstream.get_msg(self._name, seq=first, subject=subject, next=True)
            except NotFoundError:
                continue
            if message.seq < last:
                return True
        return False
