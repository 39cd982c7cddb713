"""The marks of producers and the events to skip, which a NATS inbox keeps in separate streams.

The marks are in the stream `<name>-marks`, one message per producer, which the server deletes when the producer has
sent nothing for `NAMED_MARKS_S`. The marks of a producer are written when its blocks are about to be deleted. The
events to skip are one message in the stream `<name>-skipped`, which never expires.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from tidewheel._connectors.nats.client import NatsConnection
from tidewheel._core.undecodable import UNDECODABLE
from tidewheel.errors import CorruptError
from tidewheel.fleet._inbox.base import NAMED_MARKS_S, decode_skipped

Marks = dict[int, tuple[str, int]]
"""By shard the session and the number of the last event."""

_decode = msgspec.msgpack.Decoder(Marks).decode
_NOT_FOUND = (10037, 10059)
_STREAM_EXISTS = 10058
_WRONG_LAST_SEQUENCE = 10071


class NatsMarks:
    """The marks of producers. All methods run in the event loop of the connection."""

    def __init__(self, connection: NatsConnection, inbox: str, replicas: int) -> None:
        self._messages = _LastMessages(connection, f"{inbox}-marks", replicas, NAMED_MARKS_S)

    async def of(self, producer: str) -> Marks:
        """Return the marks of a producer; none if it has none."""
        return self._decoded((await self._messages.read(f"producer.{producer}"))[1])

    async def add(self, producer: str, marks: Marks) -> None:
        """Merge marks into those of a producer; the higher number counts."""

        def merged(data: bytes) -> bytes:
            known = self._decoded(data)
            for shard, mark in marks.items():
                if shard not in known or mark[1] > known[shard][1]:
                    known[shard] = mark
            return msgspec.msgpack.encode(known)

        await self._messages.change(f"producer.{producer}", merged)

    def _decoded(self, data: bytes) -> Marks:
        try:
            return _decode(data) if data else {}
        except UNDECODABLE as error:
            raise CorruptError(f"marks in the stream {self._messages.where} do not decode ({error})") from None


class NatsSkipped:
    """The events to skip. All methods run in the event loop of the connection."""

    def __init__(self, connection: NatsConnection, inbox: str, replicas: int) -> None:
        self._messages = _LastMessages(connection, f"{inbox}-skipped", replicas, None)

    async def events(self) -> set[tuple[int, int, int]]:
        """Return shard, position and number of the events."""
        return self._decoded((await self._messages.read("events"))[1])

    async def add(self, event: tuple[int, int, int], oldest: int) -> None:
        """Add an event; delete those before the oldest position of the inbox."""

        def added(data: bytes) -> bytes:
            readable = {each for each in self._decoded(data) if each[1] >= oldest}
            return msgspec.json.encode(sorted({event, *readable}))

        await self._messages.change("events", added)

    def _decoded(self, data: bytes) -> set[tuple[int, int, int]]:
        return decode_skipped(data, self._messages.where) if data else set()


class _LastMessages:
    """A stream that keeps the last message of each subject, for `max_age` seconds or forever."""

    def __init__(self, connection: NatsConnection, name: str, replicas: int, max_age: float | None) -> None:
        self._stream, self._name, self._replicas, self._max_age = connection.jetstream, name, replicas, max_age
        self.where = f"{name} of {connection.url}"

    async def read(self, what: str) -> tuple[int, bytes]:
        """Return the last message of a subject and its sequence; an empty one if there is none."""
        from nats.js.errors import APIError

        try:
            message = await self._stream.get_msg(self._name, subject=f"{self._name}.{what}")
        except APIError as error:
            if error.err_code in _NOT_FOUND:
                return 0, b""
            raise
        return int(message.seq), message.data or b""

    async def change(self, what: str, change: Callable[[bytes], bytes]) -> None:
        """Update the last message of a subject; retry if another process was faster."""
        from nats.js.errors import APIError, NoStreamResponseError

        while True:
            sequence, data = await self.read(what)
            headers = {"Nats-Expected-Last-Subject-Sequence": str(sequence)}
            try:
                await self._stream.publish(f"{self._name}.{what}", change(data), headers=headers)
                return
            except NoStreamResponseError:
                await self._make()
            except APIError as error:
                if error.err_code != _WRONG_LAST_SEQUENCE:
                    raise

    async def _make(self) -> None:
        from nats.js.api import StreamConfig
        from nats.js.errors import APIError

        config = StreamConfig(
            name=self._name,
            subjects=[f"{self._name}.>"],
            num_replicas=self._replicas,
            max_msgs_per_subject=1,
            max_age=self._max_age,
        )
        try:
            await self._stream.add_stream(config)
        except APIError as error:
            if error.err_code != _STREAM_EXISTS:
                raise
