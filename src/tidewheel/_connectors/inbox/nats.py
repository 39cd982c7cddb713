"""An inbox in a JetStream stream of a NATS server or cluster (2.11 or newer).

One message is one block; its subject is `name.shard.producer`, its position its number in the stream. A message says which
number the last one of its subject must have: a block that is sent twice, however late, is refused by the server, and no
window of time is involved. A refused one is looked up, so that its producer learns what stands there.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import re
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import msgspec

from tidewheel._connectors.inbox.base import Block, Inbox, Stored, check_producer, is_duplicate
from tidewheel._connectors.inbox.errors import InboxError, InboxUnavailable
from tidewheel._connectors.nats.client import NatsConnection, nats_server
from tidewheel._core.keys import check_n_shards
from tidewheel._core.urls import Url
from tidewheel.errors import ConfigError, ConnectorError, ConnectorUnavailable, CorruptError

T = TypeVar("T")

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")
_WRONG_LAST_SEQUENCE = 10071
_STREAM_EXISTS = 10058
_STREAM_NOT_FOUND = 10059
_FETCH, _FETCH_BYTES = 500, 8 * 2**20
_HEADROOM = 1024


class _Message(msgspec.Struct, frozen=True, array_like=True):
    """A block as it is sent."""

    session: str
    first: int
    count: int
    data: bytes


class _Last(msgspec.Struct, frozen=True):
    """The last message of a subject: its number in the stream, and the session and number of its last event."""

    sequence: int = 0
    session: str = ""
    number: int = 0


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Message).decode


class NatsInbox(Inbox):
    """`nats://user:password@host:4222,host:4222/name?replicas=3`, otherwise as `nats_server`. `timeout` is for each request."""

    marks_s = 3600.0
    """How many seconds a message stays in any case: a producer that got no answer tells by it what it has sent."""

    def __init__(self, url: str | Url, n_shards: int | None = None, *, timeout: float = 5.0) -> None:
        server = nats_server(url, "replicas")
        self.url, self._name = server.shown, server.path
        replicas = server.settings.get("replicas", "1")
        if not _NAME.fullmatch(self._name) or not replicas.isdecimal():
            raise ConfigError(
                f"the URL {self.url} must name a server and an inbox of letters, digits, - and _, as in nats://localhost:4222/orders"
            )
        if n_shards is not None:
            check_n_shards(n_shards)
        self._last: dict[tuple[str, int], _Last] = {}
        with _as_inbox_errors():
            self._connection = NatsConnection(server, timeout=timeout)
        self._timeout, self._client, self._stream = timeout, self._connection.client, self._connection.jetstream
        try:
            self.n_shards = self._call(self._opened(n_shards, int(replicas)))
            self.max_block_bytes = int(self._client.max_payload) - _HEADROOM
        except BaseException:
            self.close()
            raise

    def append(self, producer: str, session: str, blocks: Sequence[Block]) -> None:
        check_producer(producer)
        self._call(self._append_all(producer, session, blocks))

    def marks(self, producer: str) -> dict[int, int]:
        check_producer(producer)
        found = self._call(self._gathered(self._look_up(producer, shard) for shard in range(self.n_shards)))
        return {shard: last.number for shard, last in enumerate(found) if last.number}

    def start(self) -> dict[int, int]:
        return dict.fromkeys(range(self.n_shards), self._call(self._state()).first_seq or 1)

    def end(self, shards: Sequence[int]) -> dict[int, int]:
        return dict.fromkeys(shards, self._call(self._state()).last_seq + 1)

    def read(self, start: Mapping[int, int], end: Mapping[int, int]) -> Iterator[Stored]:
        ranges = [(shard, first, end[shard]) for shard, first in start.items() if first < end[shard]]
        if not ranges:
            return
        state = self._call(self._state())
        lowest, highest = min(first for _, first, _ in ranges), max(last for _, _, last in ranges)
        if lowest < state.first_seq:
            raise InboxError(
                f"{self.url} begins at {state.first_seq} and was to be read from {lowest}: that part was trimmed"
            )
        if highest > state.last_seq + 1:
            raise InboxError(
                f"{self.url} ends at {state.last_seq + 1} and was to be read to {highest}: it is not the inbox that this job has "
                "read before, or a part of it was lost"
            )
        yield from heapq.merge(*(self._shard(*each) for each in ranges), key=lambda stored: stored.position)

    def trim(self, below: Mapping[int, int]) -> None:
        lowest = min((below.get(shard, 0) for shard in range(self.n_shards)), default=0)
        state = self._call(self._state())
        if lowest > state.first_seq:
            self._call(self._purge(state.first_seq, min(lowest, state.last_seq + 1)))

    def close(self) -> None:
        self._connection.close()

    # Within the loop's thread.

    async def _opened(self, n_shards: int | None, replicas: int) -> int:
        """Find the stream, or make it; return its number of shards."""
        from nats.js.api import StreamConfig
        from nats.js.errors import APIError

        try:
            info = await self._stream.stream_info(self._name)
        except APIError as error:
            if error.err_code != _STREAM_NOT_FOUND:
                raise
            if n_shards is None:
                raise ConfigError(
                    f"there is no inbox at {self.url}; check the URL, or say how many shards a new one has"
                ) from None
            config = StreamConfig(
                name=self._name,
                subjects=[f"{self._name}.*.*"],
                num_replicas=replicas,
                allow_direct=True,
                metadata={"tidewheel-shards": str(n_shards)},
            )
            try:
                await self._stream.add_stream(config)
            except APIError as refused:
                if refused.err_code != _STREAM_EXISTS:
                    raise ConfigError(f"{self.url} cannot be made: {refused.description}") from refused
            # Whoever else makes it now may have another number in mind: what is there counts.
            info = await self._stream.stream_info(self._name)
        found = int((info.config.metadata or {}).get("tidewheel-shards", 0))
        if not found or not info.config.allow_direct:
            raise ConfigError(f"the stream {self._name} at {self.url} was not made as an inbox; choose another name")
        if n_shards not in (None, found):
            raise ConfigError(
                f"the inbox at {self.url} has {found} shards, not {n_shards}; the number is fixed for its life"
            )
        self._replicas = info.config.num_replicas or 1
        return found

    async def _append_all(self, producer: str, session: str, blocks: Sequence[Block]) -> None:
        results = await asyncio.gather(
            *(self._append(producer, session, block) for block in blocks), return_exceptions=True
        )
        # All have ended, so none is on its way any more when the caller hears of a failure.
        failures = [result for result in results if isinstance(result, BaseException)]
        lasting = [failure for failure in failures if isinstance(failure, InboxError)]
        if failures:
            raise (lasting or failures)[0]

    async def _append(self, producer: str, session: str, block: Block) -> None:
        from nats.js.errors import APIError

        data = _encode(_Message(session, block.first, block.count, block.data))
        subject = f"{self._name}.{block.shard}.{producer}"
        last = self._last.get((producer, block.shard))
        if last is None:
            # Nobody but a producer that begins has no message before its first.
            last = _Last() if block.first == 1 else await self._look_up(producer, block.shard)
        while True:
            # A subject without messages begins, or its last ones were trimmed long ago: then its marks are gone too.
            mark = (last.session, last.number) if last.sequence else (session, block.first - 1)
            if is_duplicate(block, session, mark, producer, self.url):
                return
            headers = {"Nats-Expected-Last-Subject-Sequence": str(last.sequence)}
            try:
                stored = await self._stream.publish(subject, data, headers=headers)
            except APIError as error:
                if error.err_code != _WRONG_LAST_SEQUENCE:
                    raise
                before, last = last, await self._look_up(producer, block.shard)
                if last == before:
                    raise InboxUnavailable(f"{self.url} refused a block and shows no reason: {error}") from error
            else:
                self._last[producer, block.shard] = _Last(stored.seq, session, block.last)
                return

    async def _look_up(self, producer: str, shard: int) -> _Last:
        """Ask the leader for the last message of a producer in a shard, and remember it."""
        from nats.js.errors import NotFoundError

        try:
            found = await self._stream.get_msg(self._name, subject=f"{self._name}.{shard}.{producer}")
        except NotFoundError:
            last = _Last()
        else:
            message = _decode(found.data)
            last = _Last(found.seq, message.session, message.first + message.count - 1)
        self._last[producer, shard] = last
        return last

    async def _purge(self, first: int, below: int) -> None:
        """Remove messages below a number, but for the young ones, by which a producer's repeats are told."""
        since = datetime.now(UTC) - timedelta(seconds=self.marks_s)
        while first < below:  # Times grow along the stream: look for the first message that is young.
            middle = (first + below) // 2
            found = await self._stream.get_msg(self._name, seq=middle, subject=f"{self._name}.>", next=True)
            if found.time < since:
                first = middle + 1
            else:
                below = middle
        await self._stream.purge_stream(self._name, seq=first)

    async def _state(self) -> Any:
        return (await self._stream.stream_info(self._name)).state

    async def _gathered(self, coroutines: Iterator[Coroutine[Any, Any, T]]) -> list[T]:
        return list(await asyncio.gather(*coroutines))

    async def _fetched(self, shard: int, start: int) -> list[tuple[int, str, bytes]]:
        """Return the next messages of a shard from a position on; none if the server has no more."""
        subscription = await self._client.subscribe(self._client.new_inbox())
        try:
            request = {
                "seq": start,
                "batch": _FETCH,
                "max_bytes": _FETCH_BYTES,
                "next_by_subj": f"{self._name}.{shard}.*",
            }
            where = f"$JS.API.DIRECT.GET.{self._name}"
            await self._client.publish(where, msgspec.json.encode(request), reply=subscription.subject)
            found: list[tuple[int, str, bytes]] = []
            while True:
                message = await subscription.next_msg(timeout=self._timeout)
                headers = message.headers or {}
                if headers.get("Status") in ("204", "404"):
                    return found
                if "Nats-Sequence" not in headers:
                    raise InboxUnavailable(f"{self.url} answered {headers} to a request for messages")
                found.append((int(headers["Nats-Sequence"]), headers["Nats-Subject"], message.data))
        finally:
            await subscription.unsubscribe()

    async def _has_more(self, shard: int, start: int, end: int) -> bool:
        """Ask the leader whether a shard has a message in a range: another server may lag behind."""
        from nats.js.errors import NotFoundError

        try:
            found = await self._stream.get_msg(self._name, seq=start, subject=f"{self._name}.{shard}.*", next=True)
        except NotFoundError:
            return False
        return bool(found.seq < end)

    # From any thread.

    def _shard(self, shard: int, start: int, end: int) -> Iterator[Stored]:
        while start < end:
            found = self._call(self._fetched(shard, start))
            for position, subject, data in found:
                if position >= end:
                    return
                yield self._stored(position, shard, subject, data)
                start = position + 1
            if not found and not (self._replicas > 1 and self._call(self._has_more(shard, start, end))):
                return

    def _stored(self, position: int, shard: int, subject: str, data: bytes) -> Stored:
        try:
            message = _decode(data)
        except msgspec.DecodeError as error:
            raise CorruptError(
                f"message {position} of {self.url} does not decode ({error}); something else writes to {subject}"
            ) from None
        block = Block(shard, message.first, message.count, message.data)
        return Stored(position, subject.rpartition(".")[2], block)

    def _call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        with _as_inbox_errors():
            return self._connection.call(coroutine)


@contextlib.contextmanager
def _as_inbox_errors() -> Iterator[None]:
    try:
        yield
    except ConnectorUnavailable as error:
        raise InboxUnavailable(str(error)) from error
    except ConnectorError as error:
        raise InboxError(str(error)) from error
