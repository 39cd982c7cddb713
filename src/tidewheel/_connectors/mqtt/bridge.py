"""The bridge from an MQTT broker to a log: it acknowledges a message when the message is on disk."""

from __future__ import annotations

import queue
import time
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from tidewheel._connectors.mqtt.client import MqttConnection
from tidewheel._core import faults
from tidewheel._core.closing import Closing
from tidewheel._core.threads import BackgroundThread, OnError
from tidewheel._core.undecodable import UNDECODABLE
from tidewheel._core.urls import Url
from tidewheel._time.duration import Duration, seconds
from tidewheel.errors import ConnectorError, CorruptError
from tidewheel.fleet._inbox import Block, Inbox, Stored, open_inbox

if TYPE_CHECKING:
    from paho.mqtt.client import Client

STORED = faults.declare("mqtt.stored", "messages are in the buffer; the broker does not know")

_BLOCK, _BLOCK_BYTES = 1000, 2**20
_HEADROOM, _MESSAGE_OVERHEAD = 1024, 32
_STOP = object()


@dataclass(frozen=True)
class Bridging:
    """The broker, topics and buffer of a bridge."""

    url: Url
    topics: tuple[str, ...]
    buffer: Url
    client_id: str
    timeout: float


class Arrived(msgspec.Struct, frozen=True, array_like=True):
    """Messages that were stored together; times are in microseconds since 1970."""

    topics: list[str]
    data: list[bytes]
    times: list[int]
    retained: list[bool]


class _Delivery(NamedTuple):
    client: Client
    message: Any
    time: int


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Arrived).decode


class MqttBridge(Closing):
    """Runs in background threads until `close`.

    If a bridge fails, for example because the disk is full or another client uses its client id, it acknowledges no
    further messages, and `check` raises the error.
    """

    def __init__(self, bridging: Bridging) -> None:
        """Open the buffer, or create it, and connect."""
        self._producer, self._url = bridging.client_id, str(bridging.url)
        self._session = uuid.uuid4().hex
        self._arrived: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._failed: BaseException | None = None
        self._last = time.monotonic()
        self._n_arrived = self._n_stored = 0
        self._inbox = opened_buffer(bridging.buffer)
        self._largest = self._inbox.max_block_bytes - _HEADROOM
        self._block_bytes = min(_BLOCK_BYTES, self._largest)
        self._writer = BackgroundThread(self._write, f"mqtt {bridging.client_id}", self._writer_failed)
        try:
            self._number = self._inbox.marks(self._producer).get(0, 0)
            # Before connecting: a broker may first send the messages it has kept, and wait for their acknowledgements.
            self._writer.start()
            self._connection = MqttConnection(
                bridging.url,
                bridging.client_id,
                keep=True,
                topics=bridging.topics,
                on_message=self._take,
                timeout=bridging.timeout,
            )
        except BaseException:
            self._end_writer()
            self._inbox.close()
            self.check()
            raise
        # Silence counts from here: connecting may take long.
        self._last = time.monotonic()

    def check(self) -> None:
        """Raise the error that ended the bridge, if there was one."""
        if self._failed is not None:
            raise ConnectorError(
                f"the bridge from {self._url} ended, and acknowledges nothing more: {type(self._failed).__name__}: "
                f"{self._failed}"
            ) from self._failed

    def wait_quiet(self, quiet: Duration) -> None:
        """Wait until no message has arrived for this long and all messages are in the buffer."""
        silence = seconds(quiet, "the quiet time")
        while self._failed is None and (time.monotonic() - self._last < silence or self._n_stored < self._n_arrived):
            time.sleep(min(silence, 0.05))
        self.check()

    def close(self) -> None:
        """Store the messages that have arrived, and disconnect; the broker keeps the rest."""
        self._end_writer()
        self._connection.close()
        self._inbox.close()

    def _end_writer(self) -> None:
        self._arrived.put(_STOP)
        self._writer.join()

    def _take(self, client: Client, message: Any) -> None:
        self._last = time.monotonic()
        self._n_arrived += 1
        self._arrived.put(_Delivery(client, message, time.time_ns() // 1000))

    def _writer_failed(self, error: BaseException) -> OnError:
        """End the bridge. The broker sends messages that were not stored to the next bridge, because they are not
        acknowledged.
        """
        self._failed = error
        return "end"

    def _write(self) -> None:
        first = self._arrived.get()
        while first is not _STOP:
            block, first = self._together(first)
            self._store(block)
            faults.point(STORED)
            for delivery in block:
                delivery.client.ack(delivery.message.mid, delivery.message.qos)
            self._last = time.monotonic()
            self._n_stored += len(block)
            if first is None:
                first = self._arrived.get()

    def _together(self, first: _Delivery) -> tuple[list[_Delivery], Any]:
        """Return the messages that have arrived, up to a size, and the one after them, if it has been taken already."""
        block, size = [first], _size(first)
        if size > self._largest:
            raise ConnectorError(
                f"a message of topic {first.message.topic!r} takes {size} bytes, and {self._inbox.url} takes "
                f"{self._largest} at once; use a folder as the buffer, or raise the server's limit"
            )
        while len(block) < _BLOCK:
            try:
                more = self._arrived.get_nowait()
            except queue.Empty:
                return block, None
            if more is _STOP or size + _size(more) > self._block_bytes:
                return block, more
            block.append(more)
            size += _size(more)
        return block, None

    def _store(self, block: list[_Delivery]) -> None:
        messages = [delivery.message for delivery in block]
        arrived = Arrived(
            [message.topic for message in messages],
            [bytes(message.payload) for message in messages],
            [delivery.time for delivery in block],
            [bool(message.retain) for message in messages],
        )
        stored = Block(0, self._number + 1, len(block), _encode(arrived))
        self._inbox.append(self._producer, self._session, [stored])
        self._number = stored.last


def _size(delivery: _Delivery) -> int:
    return len(delivery.message.payload) + len(delivery.message.topic.encode()) + _MESSAGE_OVERHEAD


def opened_buffer(url: str | Url) -> Inbox:
    """Open a buffer: an inbox with one shard."""
    return open_inbox(url, n_shards=1)


def arrived(stored: Stored) -> Arrived:
    """Return the messages of a stored block."""
    try:
        return _decode(stored.block.data)
    except UNDECODABLE as error:
        raise CorruptError(
            f"the block at position {stored.position} of the buffer, written by {stored.producer!r}, does not decode "
            f"({error}); "
            "it was not written by a bridge"
        ) from None
