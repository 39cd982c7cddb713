"""ttl: the state of a key expires some time after its last message."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tidewheel._core.keys import from_stored
from tidewheel._operators.base import Context, Conversion, Process
from tidewheel._state.codec import msgpack_codec
from tidewheel._state.task_state import KeyedState
from tidewheel._state.timers import Clock, Timer
from tidewheel._time.duration import MAX_TIME
from tidewheel._values import Batch
from tidewheel.errors import GraphError, OperatorError


@dataclass(frozen=True)
class Ttl:
    """How many ns after its last message a key's state goes, by the timestamps of the messages or by the clock."""

    nanoseconds: int
    clock: Clock = "event"


_NO_TIMES = (
    "a ttl by event time needs timestamps; put assign_timestamps and limit_out_of_orderness before it, or use "
    'ttl_clock="wall"'
)
_EXPIRES, _TIMERS = "expires", "ttl-timers"
_LAYOUTS: dict[Clock, str] = {"event": "states that expire by event time", "wall": "states that expire by the clock"}


def layout_of(ttl: Ttl | None) -> str:
    """Return the layout of states with this ttl; its length is none of it, since the ends that are stored hold with any."""
    return "" if ttl is None else _LAYOUTS[ttl.clock]


def waits_of(ttl: Ttl | None) -> str:
    """Return what does not happen to states with this ttl where no epoch ever comes."""
    by_event_time = ttl is not None and ttl.clock == "event"
    return 'no state expires (with ttl_clock="wall" it would, by the time of day)' if by_event_time else ""


def check_times(ttl: Ttl | None, inputs: tuple[bool | None, ...]) -> None:
    """Refuse a ttl by event time where messages have no timestamps."""
    if ttl is not None and ttl.clock == "event" and False in inputs:
        raise GraphError(_NO_TIMES)


def conversion_to(ttl: Ttl | None, layout: str) -> Conversion | None:
    """Return how states of another layout get this ttl; None if they are of another kind.

    The ends that are stored mean nothing to another clock, or were kept up to a time when there was a ttl. Versions that did
    not tell their ttl have the layout of states without one.
    """
    if layout not in ("", *_LAYOUTS.values()):
        return None
    anew = "its ttl counts from now on for the states that are there, and then from each key's last message"
    said = "it has no ttl any more, and its states stay" if ttl is None else anew
    return Conversion(None, said, emptied=(_EXPIRES, _TIMERS))


class TtlProcess(Process):
    """Another process whose state has a time to live.

    When each key's state goes is kept beside it. A key has one timer at the most, set when its state begins: if messages came
    since, it is set again when it fires, so a message costs no timer. A state that was there before the program had this ttl
    begins when the operator first looks at its shard.
    """

    def __init__(self, inner: Process, state: KeyedState, ttl: Ttl, context: Context) -> None:
        """Take the process and its state."""
        self.inner, self.state, self.ttl, self.context = inner, state, ttl, context
        self.expires = context.state(msgpack_codec(int), int, _EXPIRES)
        self.timers = context.timers(_TIMERS)
        self.latest: dict[Any, int] = {}
        """The keys that have messages, each with its latest time."""
        self.set_without_message: list[Any] = []
        """The keys whose state a timer, an epoch or a schedule has set."""
        self._covered_at: tuple[int | None, int | None] | None = None
        """The epochs with which the shards were looked through: shards that catch up have others than the batch itself."""
        state.watch(self.set_without_message.append)

    def on_batch(self, batch: Batch, port: int) -> None:
        """Drop expired states before the first message sees them, and note which keys have messages."""
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
            raise OperatorError(f"operator {self.context.operator!r}: {_NO_TIMES}")
        return batch.times

    def on_end_of_data(self) -> None:
        """Set when the states of this batch's keys expire."""
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
        """Drop the states that have expired by the clock."""
        if self.ttl.clock == "wall":
            self._expire(self.context.now)
        self.inner.on_schedule()
        now = self._now()
        # Where no epoch has come yet, the clock is the best that there is.
        self._begin(self.context.now if now is None else now)

    def on_epoch(self, epoch: int) -> None:
        """Pass the epoch on, then drop expired states: at the end of a bounded run the logic still sees all states."""
        self.inner.on_epoch(epoch)
        self._begin(self.context.now if self.ttl.clock == "wall" else epoch)
        if self.ttl.clock == "event":
            self._expire(epoch)

    def _begin(self, time: int) -> None:
        """Start the time to live of states that were set without a message."""
        for key in self.set_without_message:
            if self.state.get(key) is not None and self.expires.get(key) is None:
                self._prolong(key, time)
        self.set_without_message.clear()

    def _cover(self, time: int) -> None:
        """Start the time to live of states from before the program had this ttl: nothing is kept beside them."""
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
            for timer in self.timers.due(shard, self.ttl.clock, until):
                self.timers.cancel(timer)
                at = self.expires.get(timer.key)
                if at is not None and at > until:
                    self.timers.put(Timer(timer.key, at, "", self.ttl.clock))
                    continue
                self.expires.put(timer.key, None)
                self.state.put(timer.key, None)
