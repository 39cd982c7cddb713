"""interval_join: pairs of messages of one key that are near each other in time."""

from __future__ import annotations

from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from msgspec import Raw

from tidewheel._operators.joins.join import Join
from tidewheel._operators.keyed.output_buffer import OutputBuffer
from tidewheel._operators.keyed.state_spec import StateSpec
from tidewheel._operators.keyed.timed import allowed, time_of
from tidewheel._operators.logic import Message, StatefulLogic
from tidewheel._state.time_order import TimeOrder, TimeOrderCodec, nothing
from tidewheel._state.timers import NEVER, Timer
from tidewheel.errors import StepError

Waiting = tuple[int, Raw, bool]
"""Timestamp, value, and whether it found a partner."""
Sides = list[TimeOrder]
"""The waiting messages of the left and of the right side."""


@dataclass(frozen=True)
class IntervalJoin(Join):
    """Pair each left message with the right ones from `before` ns before it to `after` ns after it, both included.

    A message is kept until the epoch shows that no partner can come; if it had none, an outer join emits it then.
    """

    before: int
    after: int
    kind = "interval_join"
    wants_epochs = "all its messages are kept forever"

    @property
    def holds_back(self) -> bool:
        return self.how != "inner"

    @property
    def waits_for_epochs(self) -> str:
        return "" if not self.holds_back else "no message without a partner is emitted"

    def logic(self, timestamps: bool = False) -> IntervalLogic:
        return IntervalLogic(self)

    def spec(self) -> StateSpec:
        return StateSpec(default=nothing, codec=TimeOrderCodec(Waiting))


class IntervalLogic(StatefulLogic[Sides]):
    """The messages of each key that may still find a partner."""

    _calls_last_timer_only = True
    _all_or_nothing = True

    def __init__(self, join: IntervalJoin) -> None:
        self.function = join.function
        self.values = join.state_values()
        # A left message at t matches right ones up to t + after; a right one at t matches left ones up to t + before.
        self.reach = (join.after, join.before)
        self.outer = (join.how in ("left", "full"), join.how in ("right", "full"))

    def on_left(self, message: Message, state: Sides, output: Any) -> Sides | None:
        """Pair a left message with the waiting right ones."""
        return self._on(0, message, state, output)

    def on_right(self, message: Message, state: Sides, output: Any) -> Sides | None:
        """Pair a right message with the waiting left ones."""
        return self._on(1, message, state, output)

    def _on(self, side: int, message: Message, state: Sides, output: OutputBuffer) -> Sides | None:
        time, other = time_of(message), 1 - side
        until = time + self.reach[side]
        if until >= NEVER:
            raise StepError(f"the timestamp {time} is too late to wait for partners; timestamps are in ns")
        stored = self.values[side].put(message.value)
        paired = False
        for segment, at in state[other].near(time - self.reach[other], time + self.reach[side]):
            there, value, met = segment.entries[at]
            if not met:
                segment.changing()[at] = (there, value, True)
            paired = True
            self._pair(side, stored, value, max(time, there), output)
        if output.last_epoch is not None and until <= output.last_epoch:
            if not paired and self.outer[side]:
                self._pair(side, stored, None, time, output)
        else:
            first = self._first(state)
            state[side].add((time, stored, paired))
            # The timer of the first message sets the next one. A message that should be gone has a timer that comes too
            # late, of a program whose interval was longer.
            if first is None or until < first or (output.last_epoch is not None and first <= output.last_epoch):
                output.set_timer(until)
        return state if any(state) else None

    def on_timer(self, timer: Timer, state: Sides, output: Any) -> Sides | None:
        """Drop messages that can find no partner any more, and set a timer for the next one."""
        now = timer.time if output.epoch is None else max(timer.time, output.epoch)
        alone: list[tuple[int, int, Raw]] = []
        for side, reach in enumerate(self.reach):
            due = state[side].take(now - reach)
            if self.outer[side]:
                alone += [(time + reach, side, stored) for time, stored, paired in due if not paired]
        for until, side, stored in sorted(alone, key=itemgetter(0, 1)):
            self._pair(side, stored, None, allowed(until, output), output)
        first = self._first(state)
        if first is not None:
            output.set_timer(first)
        return state if any(state) else None

    def _first(self, state: Sides) -> int | None:
        """Return until when the message waits that can be dropped first."""
        return min((state[side].first + reach for side, reach in enumerate(self.reach) if state[side]), default=None)

    def _pair(self, side: int, own: Any, other: Any, time: int, output: OutputBuffer) -> None:
        left, right = (own, other) if side == 0 else (other, own)
        output.send_result(
            time,
            self.function,
            left=None if left is None else self.values[0].get(left),
            right=None if right is None else self.values[1].get(right),
        )
