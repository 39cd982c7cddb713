"""ttl: the state of a key goes when nothing has come for it for some time."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import repeat
from typing import Any

from tidewheel._operators.base import Context, Process
from tidewheel._state.codec import msgpack_codec
from tidewheel._state.task_state import KeyedState
from tidewheel._state.timers import Clock, Timer
from tidewheel._time.duration import MAX_TIME
from tidewheel._values import Batch
from tidewheel.errors import OperatorError


@dataclass(frozen=True)
class Ttl:
    """How many ns after its last message a key's state goes, by the timestamps of the messages or by the clock."""

    nanoseconds: int
    clock: Clock = "event"


class TtlProcess(Process):
    """Another process whose state has a time to live.

    When each key's state goes is kept beside it. A key has one timer at the most, set when its state begins: if messages came
    since, it is set again when it fires, so a message costs no timer.
    """

    def __init__(self, inner: Process, state: KeyedState, ttl: Ttl, context: Context) -> None:
        """Take the process and its state."""
        self.inner, self.state, self.ttl, self.context = inner, state, ttl, context
        self.expires = context.state(msgpack_codec(int), int, "expires")
        self.timers = context.timers("ttl-timers")
        self.touched: dict[Any, int] = {}
        self._begun = False

    def on_batch(self, batch: Batch, port: int) -> None:
        """Let go of what has expired before the first message sees it, and note which keys have messages."""
        if not self._begun:
            self._begun = True
            self._expire(self.context.now if self.ttl.clock == "wall" else self.context.clock())
        for key, time in zip(batch.keys, self._times(batch), strict=True):
            if time > self.touched.get(key, -MAX_TIME):
                self.touched[key] = time
        self.inner.on_batch(batch, port)

    def _times(self, batch: Batch) -> Any:
        if self.ttl.clock == "wall":
            return repeat(self.context.now, len(batch))
        if batch.times is None:
            raise OperatorError(
                f"operator {self.context.operator!r}: a ttl by event time needs timestamps; put assign_timestamps before it, "
                'or use ttl_clock="wall"'
            )
        return batch.times

    def on_end_of_data(self) -> None:
        """Set when the states of this batch's keys go."""
        self.inner.on_end_of_data()
        touched, self.touched = self.touched, {}
        self.expires.fetch(touched)
        for key, time in touched.items():
            before = self.expires.get(key)
            if self.state.get(key) is None:
                self.expires.put(key, None)
                continue
            at = min(time + self.ttl.nanoseconds, MAX_TIME - 1)
            self.expires.put(key, at if before is None else max(at, before))
            if before is None:
                self.timers.put(Timer(key, at, "", self.ttl.clock))

    def on_schedule(self) -> None:
        """Let go of what the clock has passed."""
        if self.ttl.clock == "wall":
            self._expire(self.context.now)
        self.inner.on_schedule()

    def on_epoch(self, epoch: int) -> None:
        """Give the epoch on, then let go of what it has passed: at the end of a bounded run the logic still sees all states."""
        self.inner.on_epoch(epoch)
        if self.ttl.clock == "event":
            self._expire(epoch)

    def _expire(self, until: int | None) -> None:
        if until is None:
            return
        for shard in self.context.shards():
            for timer in self.timers.due(shard, self.ttl.clock, until):
                self.timers.cancel(timer)
                at = self.expires.get(timer.key)
                if at is not None and at > until:
                    self.timers.put(Timer(timer.key, at, "", self.ttl.clock))
                    continue
                self.expires.put(timer.key, None)
                self.state.put(timer.key, None)
