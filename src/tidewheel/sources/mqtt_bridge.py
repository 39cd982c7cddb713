"""The bridge from an MQTT broker to a log: what is acknowledged is on the disk."""

from __future__ import annotations

import queue
import threading
import time
import uuid
from dataclasses import dataclass, field
from typing import Any, Self

import msgspec

from tidewheel import faults
from tidewheel.clients.mqtt import MqttConnection
from tidewheel.cluster import inbox as inboxes
from tidewheel.cluster.inbox import Block, Inbox, Stored
from tidewheel.errors import ConnectorError, CorruptError, TidewheelError

STORED = faults.declare("mqtt.stored", "messages are in the buffer; the broker does not know")

_BLOCK, _BLOCK_BYTES = 1000, 2**20
_STOP = object()


@dataclass(frozen=True)
class Bridging:
    """From where to where. It is not shown: the URL may hold a password."""

    url: str = field(repr=False)
    topics: tuple[str, ...]
    buffer: str
    client_id: str
    timeout: float


class Arrived(msgspec.Struct, frozen=True, array_like=True):
    """Messages that were stored together; times are in microseconds since 1970."""

    topics: list[str]
    data: list[bytes]
    times: list[int]
    retained: list[bool]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Arrived).decode


class Bridge:
    """Runs from its beginning until `close`, in threads of its own.

    One that fails, because the disk is full or another uses its client id, acknowledges nothing more, and `check` raises
    what it was.
    """

    def __init__(self, bridging: Bridging) -> None:
        """Open the buffer, make it if it is not there, and connect."""
        self._producer = bridging.client_id
        self._session = uuid.uuid4().hex
        self._arrived: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._failed: BaseException | None = None
        self.last = time.monotonic()
        """When something came for the last time."""
        self._inbox = opened_buffer(bridging.buffer)
        try:
            self._number = self._inbox.marks(self._producer).get(0, 0)
            self._connection = MqttConnection(
                bridging.url,
                bridging.client_id,
                keep=True,
                topics=bridging.topics,
                on_message=self._take,
                timeout=bridging.timeout,
            )
        except BaseException:
            self._inbox.close()
            raise
        self._writer = threading.Thread(target=self._write, name=f"mqtt {bridging.client_id}", daemon=True)
        self._writer.start()

    def check(self) -> None:
        """Raise why the bridge came to an end, if it did."""
        if self._failed is not None:
            raise ConnectorError(
                f"the bridge from {self._connection.url} ended, and acknowledges nothing more: {self._failed}"
            ) from self._failed

    def wait_quiet(self, seconds: float) -> None:
        """Wait until nothing has come for so long, and all that came is in the buffer."""
        while self._failed is None and (time.monotonic() - self.last < seconds or not self._arrived.empty()):
            time.sleep(min(seconds, 0.05))
        self.check()

    def close(self) -> None:
        """Store what has come, and disconnect; the broker keeps the rest."""
        self._arrived.put(_STOP)
        self._writer.join()
        self._connection.close()
        self._inbox.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _take(self, message: Any) -> None:
        self.last = time.monotonic()
        self._arrived.put((message, time.time_ns() // 1000))

    def _write(self) -> None:
        try:
            while (first := self._arrived.get()) is not _STOP:
                block, ending = self._together(first)
                self._store(block)
                faults.point(STORED)
                for message, _ in block:
                    self._connection.client.ack(message.mid, message.qos)
                self.last = time.monotonic()
                if ending:
                    return
        except (TidewheelError, OSError) as error:
            self._failed = error

    def _together(self, first: Any) -> tuple[list[Any], bool]:
        """Return what has come by now, up to a size, and whether it was the last."""
        block, size = [first], len(first[0].payload)
        while len(block) < _BLOCK and size < _BLOCK_BYTES:
            try:
                more = self._arrived.get_nowait()
            except queue.Empty:
                break
            if more is _STOP:
                return block, True
            block.append(more)
            size += len(more[0].payload)
        return block, False

    def _store(self, block: list[Any]) -> None:
        messages = [message for message, _ in block]
        arrived = Arrived(
            [message.topic for message in messages],
            [bytes(message.payload) for message in messages],
            [time for _, time in block],
            [bool(message.retain) for message in messages],
        )
        stored = Block(0, self._number + 1, len(block), _encode(arrived))
        self._inbox.append(self._producer, self._session, [stored])
        self._number = stored.last


def opened_buffer(url: str) -> Inbox:
    """Open a buffer: an inbox with one shard."""
    return inboxes.open(url, n_shards=1)


def arrived(stored: Stored) -> Arrived:
    """Return the messages of a stored block."""
    try:
        return _decode(stored.block.data)
    except msgspec.DecodeError as error:
        raise CorruptError(
            f"the block at position {stored.position} of the buffer, written by {stored.producer!r}, does not decode ({error}); "
            "it was not written by a bridge"
        ) from None
