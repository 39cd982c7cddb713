"""What a NATS inbox remembers besides its blocks: the marks of producers, and events to skip.

They are in a stream of their own, `<name>-marks`, one message for each producer, which the server removes when the
producer has been silent for `NAMED_MARKS_S`. A producer's marks are written when blocks of it are about to be trimmed.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from tidewheel._connectors.inbox.base import NAMED_MARKS_S, decode_skipped
from tidewheel._connectors.nats.client import NatsConnection
from tidewheel.errors import CorruptError

Marks = dict[int, tuple[str, int]]
"""By shard the session and the number of the last event."""

_decode = msgspec.msgpack.Decoder(Marks).decode
_NOT_FOUND = (10037, 10059)
_STREAM_EXISTS = 10058
_WRONG_LAST_SEQUENCE = 10071


class NatsMarks:
    """All within the loop of the connection."""

    def __init__(self, connection: NatsConnection, inbox: str, replicas: int) -> None:
        self._stream, self._name, self._replicas = connection.jetstream, f"{inbox}-marks", replicas
        self._url = connection.url

    async def of(self, producer: str) -> Marks:
        """Return the marks of a producer; none if it has none."""
        return self._decoded((await self._read(f"producer.{producer}"))[1])

    async def add(self, producer: str, marks: Marks) -> None:
        """Put marks to those of a producer; the higher number counts."""

        def merged(data: bytes) -> bytes:
            known = self._decoded(data)
            for shard, mark in marks.items():
                if shard not in known or mark[1] > known[shard][1]:
                    known[shard] = mark
            return msgspec.msgpack.encode(known)

        await self._change(f"producer.{producer}", merged)

    async def skipped(self) -> set[tuple[int, int, int]]:
        """Return the events to skip."""
        _, data = await self._read("skipped")
        return decode_skipped(data, self._url) if data else set()

    async def skip(self, event: tuple[int, int, int]) -> None:
        """Put one event to those."""

        def added(data: bytes) -> bytes:
            return msgspec.json.encode(sorted({event, *(decode_skipped(data, self._url) if data else ())}))

        await self._change("skipped", added)

    def _decoded(self, data: bytes) -> Marks:
        try:
            return _decode(data) if data else {}
        except msgspec.DecodeError as error:
            raise CorruptError(f"marks in the stream {self._name} of {self._url} do not decode ({error})") from None

    async def _read(self, what: str) -> tuple[int, bytes]:
        """Return the last message of a subject and its sequence, or nothing."""
        from nats.js.errors import APIError

        try:
            message = await self._stream.get_msg(self._name, subject=f"{self._name}.{what}")
        except APIError as error:
            if error.err_code in _NOT_FOUND:
                return 0, b""
            raise
        return int(message.seq), message.data or b""

    async def _change(self, what: str, change: Callable[[bytes], bytes]) -> None:
        """Replace the last message of a subject; if somebody else did so first, change what is there then."""
        from nats.js.errors import APIError, NoStreamResponseError

        while True:
            sequence, data = await self._read(what)
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
            max_age=NAMED_MARKS_S,
        )
        try:
            await self._stream.add_stream(config)
        except APIError as error:
            if error.err_code != _STREAM_EXISTS:
                raise
