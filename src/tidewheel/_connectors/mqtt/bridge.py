"""The bridge from an MQTT broker to a log: what is acknowledged is on the disk."""

from __future__ import annotations

import queue
import threading
import time
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import msgspec

from tidewheel._connectors.inbox import Block, Inbox, Stored, open_inbox
from tidewheel._connectors.mqtt.client import MqttConnection
from tidewheel._core import faults
from tidewheel._core.urls import Url
from tidewheel.errors import ConnectorError, CorruptError, TidewheelError

if TYPE_CHECKING:
    from paho.mqtt.client import Client

STORED = faults.declare("mqtt.stored", "messages are in the buffer; the broker does not know")

_BLOCK, _BLOCK_BYTES = 1000, 2**20
_STOP = object()


@dataclass(frozen=True)
class Bridging:
    """From where to where."""

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


class _Came(NamedTuple):
    client: Client
    message: Any
    time: int


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Arrived).decode


class MqttBridge:
    """Runs from its beginning until `close`, in threads of its own.

    One that fails, because the disk is full or another uses its client id, acknowledges nothing more, and `check` raises
    what it was.
    """

    def __init__(self, bridging: Bridging) -> None:
        """Open the buffer, make it if it is not there, and connect."""
        self._producer, self._url = bridging.client_id, str(bridging.url)
        self._session = uuid.uuid4().hex
        self._arrived: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._failed: BaseException | None = None
        self._last = time.monotonic()
        self._n_came = self._n_stored = 0
        self._inbox = opened_buffer(bridging.buffer)
        self._writer = threading.Thread(target=self._write, name=f"mqtt {bridging.client_id}", daemon=True)
        try:
            self._number = self._inbox.marks(self._producer).get(0, 0)
            # Before there is a connection: what a broker has kept may come first, and it may wait for the acknowledgements.
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
        # Quiet is what follows: making a connection may take long.
        self._last = time.monotonic()

    def check(self) -> None:
        """Raise why the bridge came to an end, if it did."""
        if self._failed is not None:
            raise ConnectorError(
                f"the bridge from {self._url} ended, and acknowledges nothing more: {self._failed}"
            ) from self._failed

    def wait_quiet(self, seconds: float) -> None:
        """Wait until nothing has come for so long, and all that came is in the buffer."""
        while self._failed is None and (time.monotonic() - self._last < seconds or self._n_stored < self._n_came):
            time.sleep(min(seconds, 0.05))
        self.check()

    def close(self) -> None:
        """Store what has come, and disconnect; the broker keeps the rest."""
        self._end_writer()
        self._connection.close()
        self._inbox.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _end_writer(self) -> None:
        self._arrived.put(_STOP)
        if self._writer.ident is not None:
            self._writer.join()

    def _take(self, client: Client, message: Any) -> None:
        self._last = time.monotonic()
        self._n_came += 1
        self._arrived.put(_Came(client, message, time.time_ns() // 1000))

    def _write(self) -> None:
        try:
            while (first := self._arrived.get()) is not _STOP:
                block, ending = self._together(first)
                self._store(block)
                faults.point(STORED)
                for came in block:
                    came.client.ack(came.message.mid, came.message.qos)
                self._last = time.monotonic()
                self._n_stored += len(block)
                if ending:
                    return
        except (TidewheelError, OSError) as error:
            self._failed = error

    def _together(self, first: _Came) -> tuple[list[_Came], bool]:
        """Return what has come by now, up to a size, and whether it was the last."""
        block, size = [first], len(first.message.payload)
        while len(block) < _BLOCK and size < _BLOCK_BYTES:
            try:
                more = self._arrived.get_nowait()
            except queue.Empty:
                break
            if more is _STOP:
                return block, True
            block.append(more)
            size += len(more.message.payload)
        return block, False

    def _store(self, block: list[_Came]) -> None:
        messages = [came.message for came in block]
        arrived = Arrived(
            [message.topic for message in messages],
            [bytes(message.payload) for message in messages],
            [came.time for came in block],
            [bool(message.retain) for message in messages],
        )
        stored = Block(0, self._number + 1, len(block), _encode(arrived))
        self._inbox.append(self._producer, self._session, [stored])
        self._number = stored.last


def opened_buffer(url: str | Url) -> Inbox:
    """Open a buffer: an inbox with one shard."""
    return open_inbox(url, n_shards=1)


def arrived(stored: Stored) -> Arrived:
    """Return the messages of a stored block."""
    try:
        return _decode(stored.block.data)
    except msgspec.DecodeError as error:
        raise CorruptError(
            f"the block at position {stored.position} of the buffer, written by {stored.producer!r}, does not decode ({error}); "
            "it was not written by a bridge"
        ) from None
