"""Messages pulled from a JetStream consumer, many at a time, and as columns."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from tidewheel._connectors.nats.client import NatsConnection
from tidewheel.errors import ConnectorUnavailable

SCHEMA = pa.schema(
    [
        ("subject", pa.string()),
        ("sequence", pa.int64()),
        ("time", pa.timestamp("us", "UTC")),
        ("headers", pa.map_(pa.string(), pa.string())),
        ("data", pa.binary()),
    ]
)

_FETCH_BYTES = 16 * 2**20


class Message(NamedTuple):
    """A message of a stream; `time` is in nanoseconds since 1970."""

    subject: str
    sequence: int
    time: int
    headers: dict[str, str] | None
    data: bytes


class Pull:
    """A pull consumer; all its methods run in the event loop of the connection."""

    def __init__(self, connection: NatsConnection, stream: str, consumer: str, first: int) -> None:
        self.next = first
        """The sequence from which the consumer delivers messages, as far as is known; -1 if there is none."""
        self._connection, self._stream, self._consumer = connection, stream, consumer
        self._subscription: Any = None
        self._delivered = 0
        self._messages: list[Message] = []
        self._wanted = 0
        self._ended = asyncio.Event()

    @classmethod
    async def begun(cls, connection: NatsConnection, stream: str, consumer: str, first: int) -> Pull:
        """Return a subscription to the messages of the consumer."""
        pull = cls(connection, stream, consumer, first)
        pull._subscription = await connection.client.subscribe(connection.client.new_inbox(), cb=pull._take)
        return pull

    async def fetched(self, most: int) -> list[Message]:
        """Return the next available messages; after a failure, those that arrived before it."""
        client = self._connection.client
        self._messages, self._wanted = [], most
        self._ended.clear()
        request = {"batch": most, "no_wait": True, "max_bytes": max(_FETCH_BYTES, 2 * client.max_payload)}
        where = f"$JS.API.CONSUMER.MSG.NEXT.{self._stream}.{self._consumer}"
        await client.publish(where, msgspec.json.encode(request), reply=self._subscription.subject)
        while not self._ended.is_set():
            before = len(self._messages)
            try:
                await asyncio.wait_for(self._ended.wait(), self._connection.timeout)
            except TimeoutError:
                if len(self._messages) == before:
                    self.next = -1
                    break
        self._wanted = 0
        messages = self._messages
        if self.next < 0 and not messages:
            raise ConnectorUnavailable(f"{self._connection.url} does not send the messages of {self._stream}")
        if self.next >= 0 and messages:
            self.next = messages[-1].sequence + 1
        return messages

    async def close(self) -> None:
        """Delete the consumer; otherwise the server deletes it after a while."""
        with contextlib.suppress(Exception):
            await self._subscription.unsubscribe()
            await self._connection.jetstream.delete_consumer(self._stream, self._consumer)

    async def _take(self, message: Any) -> None:
        reply = message.reply
        if not reply.startswith("$JS.ACK."):
            self._ended.set()
            return
        # $JS.ACK.<stream>.<consumer>.<tries>.<sequence>.<delivered>.<time>.<pending>; servers with domains put two
        # before.
        tokens = reply.split(".")
        at = 5 if len(tokens) == 9 else 7
        self._delivered += 1
        if self._wanted == 0 or self.next < 0 or int(tokens[at + 1]) != self._delivered:
            # A message was lost: those before it count, and another consumer delivers the rest.
            self.next = -1
            self._ended.set()
            return
        self._messages.append(
            Message(message.subject, int(tokens[at]), int(tokens[at + 2]), message.headers, message.data)
        )
        if len(self._messages) == self._wanted:
            self._ended.set()


def columns(messages: list[Message]) -> pa.RecordBatch:
    """Return messages as columns."""
    subjects, sequences, times, headers, data = zip(*messages, strict=True)
    arrays = [
        pa.array(subjects, pa.string()),
        pa.array(sequences, pa.int64()),
        pa.array([time // 1000 for time in times], pa.int64()).cast(SCHEMA.field("time").type),
        pa.array([list(each.items()) if each else [] for each in headers], SCHEMA.field("headers").type),
        pa.array(data, pa.binary()),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
