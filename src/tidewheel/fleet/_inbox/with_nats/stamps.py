"""Stamps of blocks in the headers of NATS messages: read without the blocks themselves."""

from __future__ import annotations

import contextlib
import re
from collections.abc import AsyncGenerator, Mapping
from typing import Any, NamedTuple

import msgspec

from tidewheel._connectors.nats.client import NatsConnection
from tidewheel._connectors.nats.pull import Message, Pull
from tidewheel._core.logs import logger
from tidewheel.fleet._inbox.base import Block, is_producer
from tidewheel.fleet._inbox.errors import InboxUnavailable

_LOG = logger(__name__)

_HEADER = "Tidewheel-Block"
_NUMBER = r"(?:0|[1-9][0-9]{0,18})"
_SUBJECT = re.compile(rf"[^.]+\.(?P<shard>{_NUMBER})\.(?P<producer>[^.]+)")
_STAMP = re.compile(rf"(?P<session>[^ ]*) (?P<first>{_NUMBER}) (?P<count>{_NUMBER}) (?P<through>{_NUMBER})")
_MOST_EVENTS = 64 * 2**20
"""More than a block can have: an event takes at least a byte, and a block has fewer bytes."""
_FETCH = 1000
_SOME = 5_000
_CONSUMER_LIVES_S = 30


class Stamp(msgspec.Struct, frozen=True):
    """The producer, session and numbers of a block."""

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
        """Return the block with this data."""
        return Block(self.shard, self.first, self.count, data, self.through)


def header(session: str, block: Block) -> dict[str, str]:
    """Return the header of a block's message."""
    return {_HEADER: f"{session} {block.first} {block.count} {block.through}"}


def stamp(subject: str, headers: Mapping[str, str] | None, n_shards: int) -> Stamp | None:
    """Return the stamp of a message; None for a foreign message, which is not a block of an inbox.

    Any client of the server can send a message to the stream of the inbox. Readers skip such messages.
    """
    shard, numbers = shard_in(subject, n_shards), _STAMP.fullmatch((headers or {}).get(_HEADER, ""))
    if shard is None or numbers is None:
        return None
    first, count, through = (int(numbers[name]) for name in ("first", "count", "through"))
    last = through or first + count - 1
    is_possible = first > 0 and 0 < count <= _MOST_EVENTS and first + count - 1 <= last < 2**63
    producer = subject.rpartition(".")[2]
    return Stamp(shard, producer, numbers["session"], first, count, through) if is_possible else None


def shard_in(subject: str, n_shards: int) -> int | None:
    """Return the shard of a subject that a producer sends to; None for any other subject."""
    found = _SUBJECT.fullmatch(subject)
    if found is None or int(found["shard"]) >= n_shards or not is_producer(found["producer"]):
        return None
    return int(found["shard"])


async def headers_of(connection: NatsConnection, stream: str, **which: Any) -> AsyncGenerator[Message, None]:
    """Yield the available messages of a consumer with these settings, without their data."""
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


class FoundBlock(NamedTuple):
    """A block in the stream: its position, when it was stored (in seconds since 1970), and its stamp."""

    position: int
    time: float
    stamp: Stamp


class NatsStamps:
    """Reads the stamps of an inbox's blocks and skips foreign messages. All methods run in the event loop of the
    connection.
    """

    def __init__(self, connection: NatsConnection, inbox: str, n_shards: int) -> None:
        self._connection, self._inbox, self._n_shards = connection, inbox, n_shards
        self._warned = False

    async def some(self, start: int) -> list[FoundBlock]:
        """Return some blocks from a position; none if there are no more."""
        which = {"deliver_policy": "by_start_sequence", "opt_start_seq": start, "filter_subject": f"{self._inbox}.*.*"}
        found: list[FoundBlock] = []
        async with contextlib.aclosing(self._blocks(**which)) as blocks:
            async for block in blocks:
                found.append(block)
                if len(found) == _SOME:
                    break
        return found

    async def last_of(self, subject: str) -> FoundBlock | None:
        """Return the last block of a subject, by reading all of its messages; None if there is no block."""
        last = None
        async for block in self._blocks(filter_subject=subject):
            last = block
        return last

    async def last_blocks(self) -> list[FoundBlock]:
        """Return the last block of every producer and shard, also if a foreign message follows it."""
        which = {"deliver_policy": "last_per_subject", "filter_subject": f"{self._inbox}.*.*"}
        last: dict[str, FoundBlock | None] = {}
        async for message in headers_of(self._connection, self._inbox, **which):
            if shard_in(message.subject, self._n_shards) is not None:
                last[message.subject] = self._block(message)
        for subject in [subject for subject, block in last.items() if block is None]:
            last[subject] = await self.last_of(subject)
        return [block for block in last.values() if block is not None]

    def foreign(self, position: int, subject: str) -> None:
        """Warn of a foreign message, once per process."""
        if not self._warned:
            self._warned = True
            _LOG.warning(
                "message %d of the stream of inbox %s is not a block of an inbox and is skipped, like any other such "
                "message. "
                "Something else publishes to %s; allow only routers to publish there",
                position,
                self._inbox,
                subject[:200],
            )

    def _block(self, message: Message) -> FoundBlock | None:
        found = stamp(message.subject, message.headers, self._n_shards)
        return None if found is None else FoundBlock(message.sequence, message.time / 1e9, found)

    async def _blocks(self, **which: Any) -> AsyncGenerator[FoundBlock, None]:
        async with contextlib.aclosing(headers_of(self._connection, self._inbox, **which)) as messages:
            async for message in messages:
                if (block := self._block(message)) is not None:
                    yield block
                else:
                    self.foreign(message.sequence, message.subject)
