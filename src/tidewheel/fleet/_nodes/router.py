"""Router: a producer that collects events into blocks and appends them to an inbox in the background.

Three stages, in different threads: callers collect events; the cutter cuts them into rounds of blocks; the sender
delivers the rounds one after the other. So the next round is ready when one is stored.
"""

from __future__ import annotations

import contextlib
import itertools
import secrets
import threading
import time
from collections import deque
from collections.abc import Iterable
from typing import Any, Self

import msgspec
import numpy as np
import pyarrow as pa

from tidewheel._core.forks import guard, opened_before_fork
from tidewheel._core.hashing import shards_of_bytes
from tidewheel._core.keys import shard_of_stored, to_stored
from tidewheel._core.threads import BackgroundThread, OnError
from tidewheel._time.duration import Duration, seconds, seconds_or_none
from tidewheel.errors import ConfigError, TidewheelError
from tidewheel.fleet._inbox.base import Inbox, anonymous_producer, check_producer, is_anonymous, marks_s
from tidewheel.fleet._inbox.errors import InboxError, InboxUnavailable, NotTaken
from tidewheel.fleet._inbox.events import one_line
from tidewheel.fleet._nodes.delivery import Delivery, Round
from tidewheel.fleet._nodes.gathering import (
    EVENT_OVERHEAD,
    Chunk,
    Cutter,
    Gathered,
    Part,
    begins_any,
    blocks_of,
    lines_array,
    longest,
)

_encoder = msgspec.json.Encoder()
_PLACES = 100_000
_CHUNK = 10_000
_BATCH_BYTES = 8 * 2**20
_EARLY_EVENTS = 10_000


class Router:
    """Sends events to the inboxes of their keys' shards, many at a time. Thread-safe.

    **Accepted or rejected.** `route` returns when it has accepted the event, and raises when it has not. An accepted
    event is kept until it is stored, and is durable after a later `flush` has returned. A failed delivery is retried
    under the same stamp for `timeout`. Then `flush` raises; the events are kept, and the next `flush` retries. Until
    one succeeds, `route` rejects events with `NotTaken`: route those again afterwards, and only those.

    **Limits.** Events are sent when `batch_events` wait (by default what suits the inbox, 50,000 or 100,000), when 8
    MiB wait, or when the oldest has waited for `linger`. While `max_waiting` events or `max_waiting_bytes` bytes wait,
    `route` blocks, so that a producer cannot outrun its inbox.

    **Names.** Without a `producer` the router uses a unique name, which the inbox forgets afterwards. With one, it
    continues after the last event stored under that name. With `replay=True` the program passes the same events in the
    same order as before, from the first one on, and stored events are skipped. With `own_numbers=True` the program
    passes a growing number with each event. Events up to the last stored number of their shard are skipped, so the
    program can begin again with any earlier event.
    """

    def __init__(
        self,
        inbox: Inbox,
        producer: str | None = None,
        *,
        replay: bool = False,
        own_numbers: bool = False,
        batch_events: int | None = None,
        linger: Duration = "50 ms",
        max_waiting: int = 200_000,
        max_waiting_bytes: int = 64 * 2**20,
        timeout: Duration = "30 s",
    ) -> None:
        if (replay or own_numbers) and producer is None:
            raise ConfigError(
                "replay=True and own_numbers=True need the name of the producer whose events are given again"
            )
        batch_events = inbox.batch_events if batch_events is None else batch_events
        if batch_events < 1 or max_waiting < 1 or max_waiting_bytes < 1:
            raise ConfigError(
                f"batch_events, max_waiting and max_waiting_bytes are at least 1, not {batch_events}, {max_waiting} and "
                f"{max_waiting_bytes}"
            )
        if producer is not None and is_anonymous(check_producer(producer)):
            raise ConfigError(f"{producer!r} cannot name a producer: names begin with a letter or digit")
        self.inbox = inbox
        self.producer = producer or anonymous_producer()
        self.session = secrets.token_hex(8)
        self.delivered = 0
        """How many events this router has stored."""
        self._own_numbers = own_numbers
        self._batch_events, self._linger = min(batch_events, max_waiting), seconds(linger, "linger=")
        self._max_waiting, self._max_bytes, self._timeout = max_waiting, max_waiting_bytes, seconds(timeout, "timeout=")
        self._batch_bytes = min(_BATCH_BYTES, max_waiting_bytes)
        self._block_bytes = inbox.max_block_bytes // 4
        stored = inbox.marks(self.producer) if producer is not None else {}
        again = replay or own_numbers
        self._cutter = Cutter({} if again else stored, stored if again else {}, self._block_bytes)
        self._number = 0
        """The last number that the program passed."""
        self._gathered = Gathered()
        self._generation = 1
        """The number of the batch that is being collected."""
        self._done = 0
        """The number of the last stored batch."""
        self._wanted = 0
        """The number of the last batch that a caller waits for."""
        self._ahead_events = self._ahead_bytes = 0
        """Events that are being cut, or were cut, and are not yet in delivery."""
        self._ready: deque[Round] = deque()
        """Rounds to deliver, at most one besides the one in delivery."""
        self._sending: Round | None = None
        """The round in delivery; after an error it is delivered again."""
        self._oldest = time.monotonic()
        self._error: TidewheelError | None = None
        """The error of the last delivery; `flush` clears it and retries."""
        self._failed: TidewheelError | None = None
        """The error that made this router unusable."""
        self._closed = False
        self._closing = threading.Event()
        self._places: dict[str, tuple[bytes, int]] = {}
        """A cache of the bytes and shards of text keys."""
        # Use a plain lock under the condition: entering it is most of the cost of an event.
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._delivery = Delivery(inbox, self.session, self._timeout, self._closing)
        self._threads = [
            BackgroundThread(work, f"router {self.producer} {name}", self._thread_failed)
            for work, name in ((self._cut_batches, "cutter"), (self._send_rounds, "sender"))
        ]
        guard(self)
        for thread in self._threads:
            thread.start()

    @property
    def duplicates(self) -> int:
        """How many events were skipped because they were already stored."""
        return self._cutter.passed_over

    def route(self, key: Any, payload: Any, number: int | None = None) -> int:
        """Accept an event; return its shard. `payload` is a JSON value, or JSON as bytes.

        An exception means that the event was not accepted.
        """
        place = self._places.get(key) if type(key) is str else None
        stored, shard = self._place(key) if place is None else place
        data = one_line(payload) if isinstance(payload, bytes) else _encoded(payload)
        size = len(stored) + len(data) + EVENT_OVERHEAD
        if size > self._block_bytes:
            raise self._too_large(key, size)
        with self._lock:
            if self._error is not None or self._closed or not self._has_room():
                self._await_room(0)
            if number is not None or self._own_numbers:
                self._take_number(number)
            gathered = self._gathered
            gathered.shards.append(shard)
            gathered.keys.append(stored)
            gathered.payloads.append(data)
            self._gather(1, size)
        return shard

    def route_many(self, events: Iterable[tuple[Any, Any]]) -> None:
        """Accept pairs of key and payload, in order: like `route`, but several times as fast.

        After an exception, exactly the events before the failing one were accepted. `NotTaken.taken` is their number.
        """
        if self._own_numbers:
            raise ConfigError("a router with own_numbers=True takes events one by one, each with its number")
        source, taken = iter(events), 0
        while True:
            chunk: list[tuple[Any, Any]] = []
            try:
                chunk.extend(itertools.islice(source, min(_CHUNK, self._max_waiting)))
            finally:
                # Also if the iterable raises: the events before that are accepted.
                if chunk:
                    self._take_chunk(chunk, taken)
            if not chunk:
                return
            taken += len(chunk)

    def flush(self, timeout: Duration | None = None) -> None:
        """Wait until all events accepted before this call are durable; after a failed delivery, retry.

        An exception means that some events are not stored. They are kept: call `flush` again, and do not route them
        again.
        """
        limit = seconds_or_none(timeout, "the timeout")
        deadline = None if limit is None else time.monotonic() + limit
        with self._changed:
            self._error = None
            target = self._generation if self._gathered.count else self._generation - 1
            self._wanted = max(self._wanted, target)
            self._changed.notify_all()
            while self._done < target:
                if self._failed is not None:
                    raise self._failed
                if self._error is not None:
                    raise self._error
                if self._closed:
                    raise self._was_closed()
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    raise InboxUnavailable(
                        f"{self._undelivered()} events for {self.inbox.url} were not stored within {timeout}; they are kept: "
                        "call flush() to keep waiting for them, and do not route them again"
                    )
                self._changed.wait(left)

    def close(self) -> None:
        """Flush, and stop. If some events could not be stored, the error says how many are lost."""
        if self._closed:
            if self._failed is not None and self._undelivered():
                raise self._failed
            return
        try:
            self.flush()
        except TidewheelError as error:
            lost = self._undelivered()
            kind = InboxUnavailable if isinstance(error, InboxUnavailable) else InboxError
            raise kind(
                f"the router of producer {self.producer!r} was closed, and {lost} events that it had taken are not known to be "
                f"stored: {error}"
            ) from error
        finally:
            self._stop()
        if is_anonymous(self.producer) and self.delivered:
            with contextlib.suppress(
                TidewheelError
            ):  # All events are stored; the inbox forgets the name later by itself.
                self.inbox.forget(self.producer)

    def abandon(self) -> None:
        """Stop without delivering waiting events: they are lost, unless the program passes them again."""
        self._stop()

    def after_fork(self) -> None:
        """Reject further use: the sender and the collected events belong to the parent."""
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._failed = InboxError(opened_before_fork(f"the router of producer {self.producer!r}"))
        self._closed = True
        self._gathered, self._sending, self._ahead_events = Gathered(), None, 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self.abandon()

    # For callers.

    def _take_chunk(self, chunk: list[tuple[Any, Any]], before: int) -> None:
        """Accept all events at once, or those before the first that cannot be accepted."""
        columns = self._columns(chunk)
        if columns is None:
            for index, (key, payload) in enumerate(chunk):
                try:
                    self.route(key, payload)
                except NotTaken as refused:
                    raise self._not_taken(before + index) from refused
            return
        with self._lock:
            if self._error is not None or self._closed or not self._has_room(len(chunk)):
                self._await_room(before, len(chunk))
            self._gathered.add(columns)
            self._gather(len(chunk), columns.size)

    def _columns(self, chunk: list[tuple[Any, Any]]) -> Chunk | None:
        """Return many events as columns; None if they must be handled one by one."""
        # Use comprehensions, not zip(*…): an iterator per event would trigger the garbage collector again and again.
        try:
            names = [name for name, _ in chunk]
            values = [value for _, value in chunk]
            "".join(names)  # Arrow accepts bytes as text, which would be other keys; this accepts only text.
            keys = pa.array(names, pa.large_string())
            payloads = lines_array(_encoder.encode_lines(values))
            # Bytes are already JSON, but were encoded as a JSON string, like text.
            if begins_any(payloads, b'"') and any(issubclass(kind, bytes) for kind in set(map(type, values))):
                return None
            shards = shards_of_bytes(keys, self.inbox.n_shards).astype(np.uint16)
        except (TypeError, ValueError, OverflowError, RecursionError, pa.ArrowException, TidewheelError):
            return None
        if len(payloads) != len(chunk) or longest(keys) + longest(payloads) + EVENT_OVERHEAD > self._block_bytes:
            return None
        return Chunk(shards, keys, payloads, text=True)

    def _place(self, key: Any) -> tuple[bytes, int]:
        """Return a key as bytes, and its shard; cache both for text, which often repeats."""
        stored = to_stored(key)
        place = stored, shard_of_stored(stored, self.inbox.n_shards)
        if type(key) is str:
            if len(self._places) >= _PLACES:
                self._places.clear()
            self._places[key] = place
        return place

    def _take_number(self, number: int | None) -> None:
        if number is None or not self._own_numbers:
            raise ConfigError("give a number with each event if the router has own_numbers=True, and only then")
        if number <= self._number:
            raise ConfigError(f"the numbers of a producer's events must grow: {number} came after {self._number}")
        self._number = number
        self._gathered.numbers.append(number)

    def _gather(self, count: int, size: int) -> None:
        """Count collected events, and wake the sender if necessary. The caller holds the lock."""
        gathered = self._gathered
        before, before_bytes = gathered.count, gathered.size
        gathered.count, gathered.size = waiting, size_now = before + count, before_bytes + size
        if not before:
            self._oldest = time.monotonic()
            self._changed.notify_all()
        elif before < self._batch_events <= waiting or before_bytes < self._batch_bytes <= size_now:
            self._changed.notify_all()

    def _has_room(self, count: int = 1) -> bool:
        """Return whether this many events can be accepted. An empty router accepts any number."""
        waiting, size = self._gathered.count + self._ahead_events, self._gathered.size + self._ahead_bytes
        return not waiting or (waiting + count <= self._max_waiting and size < self._max_bytes)

    def _await_room(self, taken: int, count: int = 1) -> None:
        """Wait until this many events can be accepted, or raise. The caller holds the lock."""
        while not self._has_room(count) and self._error is None and not self._closed:
            self._wanted = max(self._wanted, self._generation)
            self._changed.notify_all()
            self._changed.wait()
        if self._failed is not None:
            raise self._failed
        if self._closed:
            raise self._was_closed()
        if self._error is not None:
            raise self._not_taken(taken) from self._error

    def _not_taken(self, taken: int) -> NotTaken:
        others = (
            f"the first {taken} events of this call were taken, the others were not" if taken else "it was not taken"
        )
        return NotTaken(
            f"the router of producer {self.producer!r} refuses the event, {others}: {self._undelivered()} events that were taken "
            f"before are kept and could not be delivered ({self._error}). Call flush() until it succeeds, then route again the "
            "events that were not taken",
            taken,
        )

    def _too_large(self, key: Any, size: int) -> ConfigError:
        return ConfigError(
            f"the event of key {repr(key)[:200]} takes {size} bytes and this inbox takes {self._block_bytes}; keep large things "
            "in a file and send its name"
        )

    def _was_closed(self) -> InboxError:
        return InboxError(f"the router of producer {self.producer!r} was closed")

    def _undelivered(self) -> int:
        return self._gathered.count + self._ahead_events + (0 if self._sending is None else self._sending.count)

    def _stop(self) -> None:
        with self._changed:
            self._closed = True
            self._closing.set()
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def _thread_failed(self, error: BaseException) -> OnError:
        """Close the router after an unexpected error."""
        with self._changed:
            self._failed = InboxError(
                f"the router of producer {self.producer!r} came to an end by an error that it did not expect "
                f"({type(error).__name__}: {error}); {self._undelivered()} events that it had taken are not known to be stored"
            )
            self._failed.__cause__ = error
            self._closed = True
            self._changed.notify_all()
        return "end"

    # In the cutter's thread. Keep no reference to a batch while waiting for the next, because it may be large.

    def _cut_batches(self) -> None:
        while (rounds := self._next_rounds()) is not None:
            batch = self._generation - 1
            while rounds:
                parts = rounds.popleft()
                count, size = sum(part.count for part in parts), sum(part.size for part in parts)
                self._hand_over(
                    Round(
                        self.producer,
                        blocks_of(parts, compress=self.inbox.compresses),
                        count,
                        size,
                        0 if rounds else batch,
                    )
                )
                del parts

    def _next_rounds(self) -> deque[list[Part]] | None:
        """Wait for a batch to cut, and cut it; return None when the router is closed."""
        with self._changed:
            while not self._closed and (self._error is not None or not self._is_due()):
                lingers = self._gathered.count and self._error is None and self._is_idle()
                self._changed.wait(self._oldest + self._linger - time.monotonic() if lingers else None)
            if self._closed:
                return None
            gathered, self._gathered = self._gathered, Gathered()
            self._ahead_events, self._ahead_bytes = gathered.count, gathered.size
            self._generation += 1
            forgotten = time.monotonic() - self._delivery.last_stored > marks_s(self.producer) / 2
            if forgotten and is_anonymous(self.producer) and self._is_idle():
                # The inbox may have forgotten this name; no event sent under it is pending.
                self.producer = anonymous_producer()
                self._cutter = Cutter({}, {}, self._block_bytes)
        rounds = deque(self._cutter.rounds(gathered) or [[]])
        parts = list(itertools.chain.from_iterable(rounds))
        with self._changed:
            self._ahead_events, self._ahead_bytes = sum(part.count for part in parts), sum(part.size for part in parts)
            self._changed.notify_all()
        return rounds

    def _is_due(self) -> bool:
        gathered = self._gathered
        if not gathered.count or self._ready:
            return False
        wanted = self._wanted >= self._generation
        full = gathered.count >= self._batch_events or gathered.size >= self._batch_bytes
        if self._is_idle():
            return full or wanted or time.monotonic() >= self._oldest + self._linger
        # The batch cannot be sent yet, and later events would need another round: cut it early only if cutting takes
        # time.
        return full or (wanted and gathered.count >= _EARLY_EVENTS)

    def _is_idle(self) -> bool:
        return self._sending is None and not self._ready

    def _hand_over(self, round: Round) -> None:
        with self._changed:
            while self._ready and not self._closed:
                self._changed.wait()
            self._ready.append(round)
            self._changed.notify_all()

    # In the sender's thread.

    def _send_rounds(self) -> None:
        while self._await_round():
            round = self._sending
            assert round is not None
            error = self._delivery.append(round) if round.blocks else None
            with self._changed:
                if error is None:
                    self.delivered += round.count
                    self._done = max(self._done, round.ends)
                    self._sending = None
                elif not self._closed:
                    self._error = self._kept(error) if isinstance(error, InboxUnavailable) else error
                self._changed.notify_all()
            del round

    def _await_round(self) -> bool:
        """Wait for a round to send; return False when the router is closed."""
        with self._changed:
            while not self._closed and (self._error is not None or self._is_idle()):
                self._changed.wait()
            if self._closed:
                return False
            if self._sending is None:
                self._sending = self._ready.popleft()
                self._ahead_events -= self._sending.count
                self._ahead_bytes -= self._sending.size
                self._changed.notify_all()
            return True

    def _kept(self, error: InboxUnavailable) -> InboxUnavailable:
        return InboxUnavailable(
            f"{self._undelivered()} events could not be stored within {self._timeout:g} s: {error}. "
            "They are kept under their stamps; call flush() to try again, and do not route them again"
        )


def _encoded(payload: Any) -> bytes:
    try:
        return _encoder.encode(payload)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise ConfigError(f"the payload {payload!r:.200} cannot be written as JSON: {error}") from None
