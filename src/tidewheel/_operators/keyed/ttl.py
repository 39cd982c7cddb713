"""ttl: delete the state of a key some time after its last message."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tidewheel._core.keys import from_stored, to_stored
from tidewheel._operators.base import Context, Conversion, Process
from tidewheel._state.codec import msgpack_codec
from tidewheel._state.keyed_state import KeyedState
from tidewheel._state.layout import StateLayout
from tidewheel._state.timers import THERE, Clock, Timer, encode
from tidewheel._time.duration import MAX_TIME
from tidewheel._values import Batch
from tidewheel.errors import GraphError, StepError


@dataclass(frozen=True)
class Ttl:
    """How many ns after its last message the state of a key expires, by timestamps or by the wall clock."""

    nanoseconds: int
    clock: Clock = "event"


_NO_TIMES = 'a ttl by event time needs timestamps; add event_time before this step, or use ttl_clock="wall"'
_EXPIRES, _TIMERS = "expires", "ttl-timers"
_FORMS: dict[Clock, str] = {"event": "states that expire by event time", "wall": "states that expire by the clock"}


def layout_of(ttl: Ttl | None) -> StateLayout:
    """Return the layout of states with this ttl. The length is not part of it, because the expiry is stored."""
    return StateLayout() if ttl is None else StateLayout(_FORMS[ttl.clock])


def waits_of(ttl: Ttl | None) -> str:
    """Return a text that says what never happens to states with this ttl without epochs."""
    by_event_time = ttl is not None and ttl.clock == "event"
    return 'no state expires (use ttl_clock="wall" to expire states by the wall clock)' if by_event_time else ""


def check_times(ttl: Ttl | None, inputs: tuple[bool | None, ...]) -> None:
    """Raise a `GraphError` for a ttl by event time if messages have no timestamps."""
    if ttl is not None and ttl.clock == "event" and False in inputs:
        raise GraphError(_NO_TIMES)


def conversion_to(ttl: Ttl | None, layout: StateLayout) -> Conversion | None:
    """Return how states of another layout get this ttl; None if they are of another kind.

    A stored expiry has no meaning for another clock, or after a time without a ttl. State from versions that did not
    record a ttl has the layout of states without one.
    """
    if layout.form not in ("", *_FORMS.values()):
        return None
    anew = "its ttl starts now for existing states; after that it counts from the last message of each key"
    said = "its ttl was removed, and its states are kept" if ttl is None else anew
    return Conversion(None, said, emptied=(_EXPIRES, _TIMERS))


def expiry_entries(ttl: Ttl, key: Any, at: int) -> list[tuple[str, bytes, bytes]]:
    """Return the tables, keys and values that a `TtlProcess` stores for a key whose state expires."""
    timer = encode(Timer(key, at, "", ttl.clock))
    return [(_EXPIRES, to_stored(key), msgpack_codec(int).encode(at)), (_TIMERS, timer, THERE)]


class TtlProcess(Process):
    """A wrapper that adds a time to live to the state of another process.

    The expiry of each key is stored in an additional table. A key has at most one timer, set when its state is created. If
    messages came since, the timer is set again when it fires, so that a message does not need to set a timer. For states
    that are older than the ttl of the program, the ttl starts when the step first reads their shard.
    """

    def __init__(self, inner: Process, state: KeyedState, ttl: Ttl, context: Context) -> None:
        """Take the process and its state."""
        self.inner, self.state, self.ttl, self.context = inner, state, ttl, context
        self.expires = context.state(msgpack_codec(int), int, _EXPIRES)
        self.timers = context.timers(_TIMERS)
        self.latest: dict[Any, int] = {}
        """The keys with messages, each with its latest time."""
        self.set_without_message: list[Any] = []
        """The keys whose state was set by a timer, an epoch or a schedule."""
        self._covered_at: tuple[int | None, int | None] | None = None
        """The epoch at which each shard was checked: shards that catch up have other epochs than the batch."""
        state.watch(self.set_without_message.append)

    def on_batch(self, batch: Batch, port: int) -> None:
        """Delete expired states before the first message reads them, and record the keys with messages."""
        times = self._times(batch)
        if self._covered_at != self._epochs:
            now = self._now()
            self._cover(max(times) if now is None else now)
            self._expire(now)
        for key, time in zip(batch.keys, times, strict=True):
            if time > self.latest.get(key, -MAX_TIME):
                self.latest[key] = time
        self.inner.on_batch(batch, port)

    @property
    def _epochs(self) -> tuple[int | None, int | None]:
        return self.context.last_epoch, self.context.epoch

    def _now(self) -> int | None:
        return self.context.now if self.ttl.clock == "wall" else self.context.clock()

    def _times(self, batch: Batch) -> list[int]:
        if self.ttl.clock == "wall":
            return [self.context.now] * len(batch)
        if batch.times is None:
            raise StepError(f"step {self.context.operator!r}: {_NO_TIMES}")
        return batch.times

    def on_end_of_data(self) -> None:
        """Set the expiry of the states of this batch's keys."""
        self.inner.on_end_of_data()
        latest, self.latest = self.latest, {}
        self.expires.fetch(latest)
        for key, time in latest.items():
            if self.state.get(key) is None:
                self.expires.put(key, None)
            else:
                self._prolong(key, time)

    def _prolong(self, key: Any, time: int) -> None:
        at = min(time + self.ttl.nanoseconds, MAX_TIME - 1)
        before = self.expires.get(key)
        self.expires.put(key, at if before is None else max(at, before))
        if before is None:
            self.timers.put(Timer(key, at, "", self.ttl.clock))

    def on_schedule(self) -> None:
        """Delete the states that have expired by the wall clock."""
        if self.ttl.clock == "wall":
            self._expire(self.context.now)
        self.inner.on_schedule()
        now = self._now()
        # Before the first epoch, use the wall clock.
        self._begin(self.context.now if now is None else now)

    def on_epoch(self, epoch: int) -> None:
        """Pass on the epoch, then delete expired states, so that at the end of a bounded run the logic sees all states."""
        self.inner.on_epoch(epoch)
        self._begin(self.context.now if self.ttl.clock == "wall" else epoch)
        if self.ttl.clock == "event":
            self._expire(epoch)

    def _begin(self, time: int) -> None:
        """Start the time to live of states that were set without a message."""
        self.expires.fetch(self.set_without_message)
        for key in self.set_without_message:
            if self.state.get(key) is not None and self.expires.get(key) is None:
                self._prolong(key, time)
        self.set_without_message.clear()

    def _cover(self, time: int) -> None:
        """Start the time to live of states that are older than this ttl and have no expiry."""
        if self._covered_at == self._epochs:
            return
        self._covered_at = self._epochs
        for shard in self.context.shards_awake(self.timers):
            if self.expires.is_new(shard) and not self.state.is_new(shard):
                keys = [from_stored(stored) for stored in self.state.stored_keys(shard)]
                self.expires.fetch(keys)
                for key in keys:
                    if self.expires.get(key) is None:
                        self._prolong(key, time)

    def _expire(self, until: int | None) -> None:
        if until is None:
            return
        self._cover(until)
        for shard in self.context.shards_awake(self.timers):
            due = self.timers.due(shard, self.ttl.clock, until)
            self.expires.fetch(timer.key for timer in due)
            for timer in due:
                self.timers.cancel(timer)
                at = self.expires.get(timer.key)
                if at is not None and at > until:
                    self.timers.put(Timer(timer.key, at, "", self.ttl.clock))
                    continue
                self.expires.put(timer.key, None)
                self.state.put(timer.key, None)
