"""Stamps of blocks in the headers of NATS messages: read without the blocks themselves."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from typing import Any

import msgspec

from tidewheel._connectors.inbox.base import Block
from tidewheel._connectors.inbox.errors import InboxUnavailable
from tidewheel._connectors.nats.client import NatsConnection
from tidewheel._connectors.nats.pull import Message, Pull
from tidewheel.errors import CorruptError

_HEADER = "Tidewheel-Block"
_FETCH = 1000
_CONSUMER_LIVES_S = 30


class Stamp(msgspec.Struct, frozen=True):
    """Who sent a block, in which session, and its numbers."""

    shard: int
    producer: str
    session: str
    first: int
    count: int
    through: int

    @property
    def last(self) -> int:
        """The number of the last event."""
        return self.through or self.first + self.count - 1

    def block(self, data: bytes) -> Block:
        """Return the block with these data."""
        return Block(self.shard, self.first, self.count, data, self.through)


def header(session: str, block: Block) -> dict[str, str]:
    """Return the header of a block's message."""
    return {_HEADER: f"{session} {block.first} {block.count} {block.through}"}


def stamp(subject: str, headers: Mapping[str, str] | None, position: int, where: str) -> Stamp:
    """Return the stamp of a message."""
    try:
        _, shard, producer = subject.rsplit(".", 2)
        session, first, count, through = (headers or {})[_HEADER].split(" ")
        return Stamp(int(shard), producer, session, int(first), int(count), int(through))
    except (KeyError, ValueError):
        raise CorruptError(
            f"message {position} of {where} is not a block of an inbox; something else writes to {subject}"
        ) from None


async def headers_of(connection: NatsConnection, stream: str, **which: Any) -> AsyncGenerator[Message, None]:
    """Give messages of a stream without their data: all those that a consumer with these settings gives now."""
    config = {
        "ack_policy": "none",
        "mem_storage": True,
        "num_replicas": 1,
        "inactive_threshold": _CONSUMER_LIVES_S * 10**9,
        "headers_only": True,
        **which,
    }
    body = msgspec.json.encode({"stream_name": stream, "config": config})
    subject = f"$JS.API.CONSUMER.CREATE.{stream}"
    answer = msgspec.json.decode((await connection.client.request(subject, body, timeout=connection.timeout)).data)
    if error := answer.get("error"):
        raise InboxUnavailable(f"{connection.url} cannot list the messages of {stream}: {error.get('description')}")
    pending = int(answer["num_pending"])
    pull = await Pull.begun(connection, stream, answer["name"], 0)
    try:
        while pending > 0:
            messages = await pull.fetched(min(_FETCH, pending))
            if not messages:
                raise InboxUnavailable(
                    f"{connection.url} has {pending} more messages of {stream} and does not give them"
                )
            for message in messages:
                yield message
            pending -= len(messages)
    finally:
        await pull.close()
