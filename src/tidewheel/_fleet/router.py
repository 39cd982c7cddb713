"""Router: a producer that gathers events into blocks and appends them to an inbox in the background."""

from __future__ import annotations

import itertools
import secrets
import threading
import time
from collections.abc import Iterable
from typing import Any, Self

import msgspec

from tidewheel._connectors.inbox.base import Block, Inbox, check_producer, encode_events
from tidewheel._connectors.inbox.errors import InboxError, InboxUnavailable
from tidewheel._core.keys import shard_of_stored, to_stored
from tidewheel.errors import ConfigError, TidewheelError

_encode = msgspec.json.Encoder().encode
_EVENT_OVERHEAD = 16
_BLOCK_EVENTS = 5_000
"""A reader that is to read no more than so many events stops between two blocks."""
_PLACES = 100_000
_CHUNK = 1000
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.02, 2.0


class _Gathered:
    """Events of one shard that wait to be sent."""

    __slots__ = ("bytes", "keys", "payloads")

    def __init__(self) -> None:
        self.keys: list[bytes] = []
        self.payloads: list[bytes] = []
        self.bytes = 0


class Router:
    """Sends events to the inboxes of their keys' shards, many at a time. Safe to use from several threads.

    An event is durable when `flush` has returned after it was routed. When too many wait, `route` waits, so a
    producer is never faster than its inbox for long. What has gathered is sent when `batch_events` wait or the oldest has
    waited for `linger` seconds. A delivery that fails is tried again under the same stamp until
    `timeout` seconds have passed; then `route` and `flush` raise. What was routed is kept all the same, and the next
    `flush` tries again: do not route it a second time.

    Without a `producer` the router takes a name nobody else has. With one, it goes on after the last event stored under
    that name. With `replay=True` the program gives the same events in the same order as before, from the first one on,
    and those that are stored already are passed over: so a program that was killed is simply started again.
    """

    def __init__(
        self,
        inbox: Inbox,
        producer: str | None = None,
        *,
        replay: bool = False,
        batch_events: int = 10_000,
        linger: float = 0.05,
        max_waiting: int = 100_000,
        timeout: float = 30.0,
    ) -> None:
        if replay and producer is None:
            raise ConfigError("replay=True needs the name of the producer whose events are given again")
        if batch_events < 1 or max_waiting < 1:
            raise ConfigError(f"batch_events and max_waiting are at least 1, not {batch_events} and {max_waiting}")
        self.inbox = inbox
        self.producer = check_producer(producer or f"anonymous-{secrets.token_hex(8)}")
        self.session = secrets.token_hex(8)
        self.duplicates = 0
        """How many events were passed over because they are stored already."""
        self.delivered = 0
        """How many events this router has stored."""
        self._batch_events, self._linger, self._max_waiting = min(batch_events, max_waiting), linger, max_waiting
        self._timeout = timeout
        self._block_bytes = inbox.max_block_bytes // 4
        self._half_block = self._block_bytes // 2
        stored = inbox.marks(self.producer) if producer is not None else {}
        self._stored = stored if replay else {}
        self._numbers = dict.fromkeys(range(inbox.n_shards), 0) | ({} if replay else stored)
        """By shard, the number of the last event that was routed."""
        self._gathered: dict[int, _Gathered] = {}
        self._waiting = 0
        self._largest = 0
        self._sending: list[Block] = []
        self._oldest = 0.0
        self._flushes = 0
        self._error: TidewheelError | None = None
        self._closed = False
        self._places: dict[str, tuple[bytes, int]] = {}
        # A plain lock under the condition: entering it is the largest part of what an event costs otherwise.
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._sender = threading.Thread(target=self._run, name=f"router {self.producer}", daemon=True)
        self._sender.start()

    def route(self, key: Any, payload: Any) -> int:
        """Take an event; return its shard. `payload` is what JSON can say, or JSON as bytes."""
        place = self._places.get(key) if type(key) is str else None
        stored, shard = self._place(key) if place is None else place
        data = payload if isinstance(payload, bytes) else _encoded(payload)
        size = len(stored) + len(data) + _EVENT_OVERHEAD
        if size > self._block_bytes:
            raise self._too_large(key, size)
        with self._lock:
            self._gather(shard, [stored], [data], size)
        return shard

    def route_many(self, events: Iterable[tuple[Any, Any]]) -> None:
        """Take pairs of key and payload, in order: as `route`, and about twice as fast.

        They are taken a thousand at a time: after an error about one of them, those of its thousand are not taken.
        """
        source = iter(events)
        while chunk := list(itertools.islice(source, min(_CHUNK, self._max_waiting))):
            places, block_bytes = self._places, self._block_bytes
            taken: dict[int, tuple[list[bytes], list[bytes]]] = {}
            for key, payload in chunk:
                place = places.get(key) if type(key) is str else None
                stored, shard = self._place(key) if place is None else place
                data = payload if isinstance(payload, bytes) else _encoded(payload)
                if len(data) > block_bytes - len(stored) - _EVENT_OVERHEAD:
                    raise self._too_large(key, len(stored) + len(data) + _EVENT_OVERHEAD)
                of_shard = taken.get(shard)
                if of_shard is None:
                    of_shard = taken[shard] = ([], [])
                of_shard[0].append(stored)
                of_shard[1].append(data)
            with self._lock:
                for shard, (keys, payloads) in taken.items():
                    size = sum(map(len, keys)) + sum(map(len, payloads)) + _EVENT_OVERHEAD * len(keys)
                    self._gather(shard, keys, payloads, size)

    def flush(self, timeout: float | None = None) -> None:
        """Wait until all that was routed is durable; after an error, try again."""
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._changed:
            self._error = None
            self._flushes += 1
            self._changed.notify_all()
            try:
                while (self._waiting or self._sending) and self._error is None:
                    left = None if deadline is None else deadline - time.monotonic()
                    if left is not None and left <= 0:
                        raise InboxUnavailable(
                            f"{self._undelivered()} events for {self.inbox.url} were not stored within {timeout} s; they are "
                            "kept, and flush() goes on waiting for them"
                        )
                    self._changed.wait(left)
            finally:
                self._flushes -= 1
            self._raise_error()

    def close(self) -> None:
        """Flush, and stop. Events that could not be stored are lost with the router: the error says so."""
        if self._closed:
            return
        try:
            self.flush()
        finally:
            with self._changed:
                self._closed = True
                self._changed.notify_all()
            self._sender.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
            return
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._sender.join()

    def _place(self, key: Any) -> tuple[bytes, int]:
        """Return a key as bytes, and its shard; remember both for text, which often comes again."""
        stored = to_stored(key)
        place = stored, shard_of_stored(stored, self.inbox.n_shards)
        if type(key) is str:
            if len(self._places) >= _PLACES:
                self._places.clear()
            self._places[key] = place
        return place

    def _gather(self, shard: int, keys: list[bytes], payloads: list[bytes], size: int) -> None:
        """Put events of one shard to those that wait, when there is room. Under the lock."""
        if self._error is not None or self._closed or self._waiting >= self._max_waiting:
            self._wait_for_room()
        number = self._numbers[shard]
        self._numbers[shard] = number + len(keys)
        if known := self._stored.get(shard, 0) - number:
            if known >= len(keys):
                self.duplicates += len(keys)
                return
            if known > 0:
                self.duplicates += known
                keys, payloads = keys[known:], payloads[known:]
        gathered = self._gathered.get(shard)
        if gathered is None:
            gathered = self._gathered[shard] = _Gathered()
        gathered.keys += keys
        gathered.payloads += payloads
        gathered.bytes += size
        before = self._waiting
        self._waiting = waiting = before + len(keys)
        if not before:
            self._oldest = time.monotonic()
            self._changed.notify_all()
        if before < self._batch_events <= waiting or gathered.bytes > self._half_block > self._largest:
            self._largest = max(self._largest, gathered.bytes)
            self._changed.notify_all()

    def _too_large(self, key: Any, size: int) -> ConfigError:
        return ConfigError(
            f"the event of key {key!r} takes {size} bytes and this inbox takes {self._block_bytes}; keep large things in a file "
            "and send its name"
        )

    def _wait_for_room(self) -> None:
        while self._waiting >= self._max_waiting and self._error is None and not self._closed:
            self._changed.wait()
        if self._closed:
            raise InboxError(f"the router of producer {self.producer!r} was closed")
        self._raise_error()

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._error

    def _undelivered(self) -> int:
        return self._waiting + sum(block.count for block in self._sending)

    def _run(self) -> None:
        while self._await_work():
            error = self._deliver(self._sending)
            with self._changed:
                if error is None:
                    self.delivered += sum(block.count for block in self._sending)
                    self._sending = []
                elif not self._closed:
                    self._error = error
                self._changed.notify_all()

    def _await_work(self) -> bool:
        """Wait until there is something to send, and take it; False when the router is closed."""
        with self._changed:
            while not self._closed:
                if self._error is None:
                    if self._sending:
                        return True
                    if self._is_due():
                        self._sending = self._taken()
                        self._changed.notify_all()
                        return True
                wait = self._oldest + self._linger - time.monotonic() if self._waiting and not self._error else None
                self._changed.wait(wait)
            return False

    def _is_due(self) -> bool:
        if not self._waiting:
            return False
        full = self._waiting >= self._batch_events or self._largest > self._half_block
        return bool(full or self._flushes or time.monotonic() >= self._oldest + self._linger)

    def _taken(self) -> list[Block]:
        """Make blocks of what has gathered, cutting what is too large for one; the rest waits on."""
        blocks, left, self._waiting, self._largest = [], {}, 0, 0
        for shard, gathered in self._gathered.items():
            count, size = len(gathered.keys), gathered.bytes
            while size > self._block_bytes or count > _BLOCK_EVENTS:
                count -= 1
                size -= len(gathered.keys[count]) + len(gathered.payloads[count]) + _EVENT_OVERHEAD
            first = self._numbers[shard] - len(gathered.keys) + 1
            data = encode_events(gathered.keys[:count], gathered.payloads[:count])
            blocks.append(Block(shard, first, count, data))
            if count < len(gathered.keys):
                rest = left[shard] = _Gathered()
                rest.keys, rest.payloads = gathered.keys[count:], gathered.payloads[count:]
                rest.bytes = gathered.bytes - size
                self._waiting += len(rest.keys)
        self._gathered = left
        return blocks

    def _deliver(self, blocks: list[Block]) -> TidewheelError | None:
        """Append until it works, an error says that it never will, or the time is up."""
        deadline, pause = time.monotonic() + self._timeout, _FIRST_PAUSE_S
        while True:
            try:
                self.inbox.append(self.producer, self.session, blocks)
            except InboxUnavailable as error:
                if time.monotonic() + pause > deadline or self._closed:
                    return InboxUnavailable(
                        f"{sum(block.count for block in blocks)} events could not be stored within {self._timeout} s: {error}. "
                        "They are kept under their stamps; call flush() to try again, and do not route them a second time"
                    )
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE_S)
            except TidewheelError as error:
                return error
            except Exception as error:
                return InboxError(f"appending to {self.inbox.url} failed: {type(error).__name__}: {error}")
            else:
                return None


def _encoded(payload: Any) -> bytes:
    try:
        return _encode(payload)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise ConfigError(f"the payload {payload!r:.200} cannot be written as JSON: {error}") from None
