"""An inbox in a JetStream stream of a NATS server or cluster (2.11 or newer).

A message is a block; its subject is `name.shard.producer`, its position is its sequence in the stream, and its stamp is
in a header. A message names the expected last sequence of its subject, so the server rejects a block that is sent
twice, however late, unless it was the first of its subject and all messages of the subject were deleted meanwhile.
After a rejection, the inbox reads the last block of the subject to find out what is stored. The marks of deleted blocks
are kept in a second stream.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import re
import time
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import msgspec

from tidewheel._connectors.nats.client import NatsConnection, nats_server
from tidewheel._core.forks import guard, opened_before_fork
from tidewheel._core.keys import check_n_shards
from tidewheel._core.urls import Url
from tidewheel._time.duration import Duration, seconds
from tidewheel.errors import ConfigError, ConnectorError, ConnectorUnavailable
from tidewheel.fleet._inbox.base import (
    Block,
    Inbox,
    Stored,
    check_producer,
    is_anonymous,
    is_duplicate,
    marks_s,
    new_identity,
)
from tidewheel.fleet._inbox.errors import InboxError, InboxUnavailable
from tidewheel.fleet._inbox.with_nats.marks import Marks, NatsMarks, NatsSkipped
from tidewheel.fleet._inbox.with_nats.stamps import NatsStamps, header, headers_of, shard_in, stamp

T = TypeVar("T")

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")
_WRONG_LAST_SEQUENCE = 10071
_STREAM_EXISTS = 10058
_STREAM_NOT_FOUND = 10059
_FETCH, _FETCH_BYTES = 500, 32 * 2**20
_FORMAT = 3
"""The format of new inboxes: blocks are compressed. Older versions refuse to open them."""
_UNCOMPRESSED_FORMAT = 2
"""The older format, which is still supported; its blocks are written so that older versions can read them."""
_HEADROOM = 1024


class _Last(msgspec.Struct, frozen=True):
    """The last message of a subject: its number in the stream, and the session and number of its last event.

    Without a sequence, the message was deleted; without a number too, there was none, or its marks expired.
    """

    sequence: int = 0
    session: str = ""
    number: int = 0


class NatsInbox(Inbox):
    """`nats://user:password@host:4222,host:4222/name?replicas=3`, otherwise as `nats_server`. `timeout` is for each request."""

    batch_events = 100_000

    def __init__(self, url: str | Url, n_shards: int | None = None, *, timeout: float = 5.0) -> None:
        server = nats_server(url, "replicas")
        self.url, self._name = server.shown, server.path
        replicas = server.settings.get("replicas", "1")
        if not _NAME.fullmatch(self._name) or not replicas.isdecimal():
            raise ConfigError(
                f"the URL {self.url} must name a server and an inbox of letters, digits, - and _, as in "
                "nats://localhost:4222/orders"
            )
        if n_shards is not None:
            check_n_shards(n_shards)
        self._last: dict[tuple[str, int], _Last] = {}
        """By producer and shard, the last known stored message."""
        self._unanswered: set[tuple[str, int]] = set()
        """Producers and shards with blocks that were sent and not answered."""
        self._forked = False
        with _as_inbox_errors():
            self._connection = NatsConnection(server, timeout=timeout)
        self._timeout, self._client, self._stream = timeout, self._connection.client, self._connection.jetstream
        try:
            self.n_shards = self._call(self._opened(n_shards, int(replicas)))
            self._stamps = NatsStamps(self._connection, self._name, self.n_shards)
            self.max_block_bytes = int(self._client.max_payload) - _HEADROOM
            self._marks = NatsMarks(self._connection, self._name, self._replicas)
            self._skipped = NatsSkipped(self._connection, self._name, self._replicas)
            guard(self)
        except BaseException:
            self.close()
            raise

    def append(self, producer: str, session: str, blocks: Sequence[Block]) -> None:
        check_producer(producer)
        for block in blocks:
            if len(block.data) > self.max_block_bytes:
                raise InboxError(
                    f"a block of {len(block.data)} bytes is for {self.url}, whose server takes "
                    f"{self.max_block_bytes}; make "
                    "blocks smaller, or raise max_payload at the server"
                )
        self._call(self._append_all(producer, session, blocks))

    def marks(self, producer: str) -> dict[int, int]:
        check_producer(producer)
        return self._call(self._marks_of(producer))

    def forget(self, producer: str) -> None:
        for subject in [each for each in self._last if each[0] == producer]:
            del self._last[subject]

    def after_fork(self) -> None:
        """Refuse further use: the connection's thread is the parent's."""
        self._forked = True

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
                f"{self.url} ends at {state.last_seq + 1} and was to be read to {highest}: it is not the inbox that "
                "this job has "
                "read before, or a part of it was lost"
            )
        most = max(_FETCH_BYTES // len(ranges), self.max_block_bytes)
        yield from heapq.merge(*(self._shard(*each, most) for each in ranges), key=lambda stored: stored.position)

    def sizes(self, start: Mapping[int, int], end: Mapping[int, int]) -> Iterator[tuple[int, int, int]]:
        ranges = {shard: (first, end[shard]) for shard, first in start.items() if first < end[shard]}
        at, stop = (
            min((first for first, _ in ranges.values()), default=0),
            max((last for _, last in ranges.values()), default=0),
        )
        while at < stop:
            stamps = self._call(self._stamps.some(at))
            for position, _, found in stamps:
                first, last = ranges.get(found.shard, (0, 0))
                if first <= position < last:
                    yield position, found.shard, found.count
            if not stamps:
                return
            at = stamps[-1].position + 1

    def trim(self, below: Mapping[int, int], older_than: Duration = "0 s") -> None:
        lowest = min((below.get(shard, 0) for shard in range(self.n_shards)), default=0)
        state = self._call(self._state())
        if lowest > state.first_seq:
            self._call(
                self._purge(state.first_seq, min(lowest, state.last_seq + 1), seconds(older_than, "older_than="))
            )

    def skip(self, shard: int, position: int, number: int) -> None:
        oldest = self._call(self._state()).first_seq
        self._call(self._skipped.add((shard, position, number), oldest))

    def skipped(self) -> set[tuple[int, int, int]]:
        return self._call(self._skipped.events())

    def close(self) -> None:
        if not self._forked:
            self._connection.close()

    # The methods below run in the event loop.

    async def _opened(self, n_shards: int | None, replicas: int) -> int:
        """Find or create the stream; return its number of shards."""
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
                metadata={
                    "tidewheel-shards": str(n_shards),
                    "tidewheel-format": str(_FORMAT),
                    "tidewheel-identity": str(new_identity()),
                },
            )
            try:
                await self._stream.add_stream(config)
            except APIError as refused:
                if refused.err_code != _STREAM_EXISTS:
                    raise ConfigError(f"{self.url} cannot be made: {refused.description}") from refused
            # Another process may create it at the same time with another number: the stored one counts.
            info = await self._stream.stream_info(self._name)
        metadata = info.config.metadata or {}
        found = int(metadata.get("tidewheel-shards", 0))
        if not found or not info.config.allow_direct:
            raise ConfigError(f"the stream {self._name} at {self.url} was not made as an inbox; choose another name")
        format = metadata.get("tidewheel-format", "1")
        if format not in (str(_UNCOMPRESSED_FORMAT), str(_FORMAT)):
            raise ConfigError(
                f"the inbox at {self.url} has format {format}, this version knows {_UNCOMPRESSED_FORMAT} and "
                f"{_FORMAT}: use the "
                "version of Tidewheel that wrote it, or begin another inbox"
            )
        self.compresses = format != str(_UNCOMPRESSED_FORMAT)
        if n_shards not in (None, found):
            raise ConfigError(
                f"the inbox at {self.url} has {found} shards, not {n_shards}; the number is fixed for its life"
            )
        self._replicas = info.config.num_replicas or 1
        self.identity = int(metadata.get("tidewheel-identity", 0))
        return found

    async def _append_all(self, producer: str, session: str, blocks: Sequence[Block]) -> None:
        results = await asyncio.gather(
            *(self._append(producer, session, block) for block in blocks), return_exceptions=True
        )
        # All requests have ended, so none is in flight when the caller gets the error.
        failures = [result for result in results if isinstance(result, BaseException)]
        lasting = [failure for failure in failures if isinstance(failure, InboxError)]
        if failures:
            raise (lasting or failures)[0]

    async def _append(self, producer: str, session: str, block: Block) -> None:
        from nats.js.errors import APIError

        subject = f"{self._name}.{block.shard}.{producer}"
        last = self._last.get((producer, block.shard))
        if last is None:
            begins = is_anonymous(producer) and block.first == 1 and (producer, block.shard) not in self._unanswered
            last = _Last() if begins else await self._look_up(producer, block.shard)
        while True:
            # The producer is new, or sent nothing for so long that its marks have expired.
            mark = (last.session, last.number) if last.number else (session, block.first - 1)
            if is_duplicate(block, session, mark, producer, self.url):
                return
            headers = {"Nats-Expected-Last-Subject-Sequence": str(last.sequence), **header(session, block)}
            try:
                self._last.pop((producer, block.shard), None)
                self._unanswered.add((producer, block.shard))
                stored = await self._stream.publish(subject, block.data, headers=headers)
            except APIError as error:
                if error.err_code != _WRONG_LAST_SEQUENCE:
                    raise
                before, last = last, await self._look_up(producer, block.shard)
                if last == before:
                    raise InboxUnavailable(f"{self.url} refused a block and shows no reason: {error}") from error
            else:
                self._last[producer, block.shard] = _Last(stored.seq, session, block.last)
                self._unanswered.discard((producer, block.shard))
                return

    async def _look_up(self, producer: str, shard: int) -> _Last:
        """Ask the leader for the last message of a producer in a shard, and remember it."""
        from nats.js.errors import NotFoundError

        subject = f"{self._name}.{shard}.{producer}"
        try:
            message = await self._stream.get_msg(self._name, subject=subject)
        except NotFoundError:
            session, number = (await self._marks.of(producer)).get(shard, ("", 0))
            last = _Last(0, session, number)
        else:
            last = await self._last_of(subject, message.seq, message.headers)
        self._last[producer, shard] = last
        return last

    async def _last_of(self, subject: str, sequence: int, headers: Mapping[str, str] | None) -> _Last:
        """Return the stamp of the last message of a subject; if it is a foreign message, that of the last block."""
        found = stamp(subject, headers, self.n_shards)
        if found is None and (block := await self._stamps.last_of(subject)) is not None:
            found = block.stamp
        if found is not None:
            session, number = found.session, found.last
        else:
            _, shard, producer = subject.rsplit(".", 2)
            session, number = (await self._marks.of(producer)).get(int(shard), ("", 0))
        # The server compares with the sequence of the last message, whoever has sent it.
        return _Last(sequence, session, number)

    async def _marks_of(self, producer: str) -> dict[int, int]:
        last = {shard: _Last(0, *mark) for shard, mark in (await self._marks.of(producer)).items()}
        which = {"deliver_policy": "last_per_subject", "filter_subject": f"{self._name}.*.{producer}"}
        async for message in headers_of(self._connection, self._name, **which):
            if (shard := shard_in(message.subject, self.n_shards)) is not None:
                last[shard] = await self._last_of(message.subject, message.sequence, message.headers)
        for shard in range(self.n_shards):
            self._last[producer, shard] = last.get(shard, _Last())
        return {shard: each.number for shard, each in last.items() if each.number}

    async def _purge(self, first: int, below: int, older_than: float) -> None:
        """Delete messages below a sequence that are old enough; the marks of their producers remain."""
        if older_than:
            since = datetime.now(UTC) - timedelta(seconds=older_than)
            while first < below:  # Times increase along the stream: find the first message that is too young.
                middle = (first + below) // 2
                found = await self._stream.get_msg(self._name, seq=middle, subject=f"{self._name}.>", next=True)
                if found.time < since:
                    first = middle + 1
                else:
                    below = middle
        await self._keep_marks(below)
        await self._stream.purge_stream(self._name, seq=below)

    async def _keep_marks(self, below: int) -> None:
        """Store the marks of producers whose last messages are about to be deleted."""
        marks: dict[str, Marks] = {}
        now = time.time()
        for position, at, found in await self._stamps.last_blocks():
            if position < below and at + marks_s(found.producer) > now:
                marks.setdefault(found.producer, {})[found.shard] = (found.session, found.last)
        for producer, of_shards in marks.items():
            await self._marks.add(producer, of_shards)

    async def _state(self) -> Any:
        return (await self._stream.stream_info(self._name)).state

    async def _fetched(self, shard: int, start: int, most: int) -> tuple[list[Stored], int]:
        """Return the next blocks of a shard from a position, and the position after them; the same position if there
        are none.
        """
        subscription = await self._client.subscribe(self._client.new_inbox())
        try:
            request = {
                "seq": start,
                "batch": _FETCH,
                "max_bytes": most,
                "next_by_subj": f"{self._name}.{shard}.*",
            }
            where = f"$JS.API.DIRECT.GET.{self._name}"
            await self._client.publish(where, msgspec.json.encode(request), reply=subscription.subject)
            found: list[Stored] = []
            while True:
                message = await subscription.next_msg(timeout=self._timeout)
                headers = message.headers or {}
                if headers.get("Status") in ("204", "404") and "Nats-Sequence" not in headers:
                    return found, start
                if "Nats-Sequence" not in headers:
                    raise InboxUnavailable(f"{self.url} answered {headers} to a request for messages")
                position, subject = int(headers["Nats-Sequence"]), headers["Nats-Subject"]
                start = position + 1
                stamped = stamp(subject, headers, self.n_shards)
                if stamped is None:
                    self._stamps.foreign(position, subject)
                else:
                    found.append(Stored(position, stamped.producer, stamped.block(message.data)))
        finally:
            await subscription.unsubscribe()

    async def _has_more(self, shard: int, start: int, end: int) -> bool:
        """Ask the leader whether a shard has a message in a range, because another server may lag behind."""
        from nats.js.errors import NotFoundError

        try:
            found = await self._stream.get_msg(self._name, seq=start, subject=f"{self._name}.{shard}.*", next=True)
        except NotFoundError:
            return False
        return bool(found.seq < end)

    # From any thread.

    def _shard(self, shard: int, start: int, end: int, most: int) -> Iterator[Stored]:
        while start < end:
            found, behind = self._call(self._fetched(shard, start, most))
            for stored in found:
                if stored.position >= end:
                    return
                yield stored
            is_over = behind == start
            start = behind
            if is_over and not (self._replicas > 1 and self._call(self._has_more(shard, start, end))):
                return

    def _call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        if self._forked:
            coroutine.close()
            raise InboxError(opened_before_fork(f"the inbox {self.url}"))
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
