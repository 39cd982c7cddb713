"""as_of_join: each left message with the latest right value at its time."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from msgspec import Raw

from tidewheel._operators.joins.join import Join
from tidewheel._operators.keyed.state_spec import StateSpec
from tidewheel._operators.keyed.timed import allowed, time_of
from tidewheel._operators.keyed.upserts import row_of
from tidewheel._operators.logic import Message, StatefulLogic
from tidewheel._state.time_order import TimeOrder, TimeOrderCodec, nothing
from tidewheel._state.timers import Timer

Sides = list[TimeOrder]
"""Left messages that wait, and right values that may still be needed."""
_TIME = itemgetter(0)


@dataclass(frozen=True)
class AsOfJoin(Join):
    """Hold each left message until the epoch reaches its time, then emit it with the latest right value up to that time.

    Of the right values before the epoch, only the latest is kept; with a `tolerance` in ns, at most for that time.
    """

    tolerance: int | None
    is_table: bool = False
    """Whether the right values are rows of `upserts`: then no value is known after a delete."""
    kind = "as_of_join"
    holds_back = True
    waits_for_epochs = "nothing is emitted"

    def logic(self, timestamps: bool = False) -> AsOfLogic:
        return AsOfLogic(self)

    def spec(self) -> StateSpec:
        return StateSpec(default=nothing, codec=TimeOrderCodec(tuple[int, Raw]))


class AsOfLogic(StatefulLogic[Sides]):
    """Left messages that wait, and right values that may still be needed."""

    _calls_last_timer_only = True
    _all_or_nothing = True

    def __init__(self, join: AsOfJoin) -> None:
        self.function, self.how, self.tolerance, self.values = (
            join.function,
            join.how,
            join.tolerance,
            join.state_values(),
        )
        self.is_table = join.is_table

    def on_left(self, message: Message, state: Sides, output: Any) -> Sides:
        """Store a left message until its time comes."""
        time = time_of(message)
        stored = self.values[0].put(message.value)
        output.set_timer(time)
        state[0].add((time, stored))
        return state

    def on_right(self, message: Message, state: Sides, output: Any) -> Sides:
        """Store a right value. Of two values with the same time, the one that arrived later counts."""
        time = time_of(message)
        stored = self.values[1].put(row_of(message.value) if self.is_table else message.value)
        output.set_timer(time)
        if self.tolerance is not None:
            output.set_timer(time + self.tolerance + 1)
        state[1].add((time, stored))
        return state

    def on_timer(self, timer: Timer, state: Sides, output: Any) -> Sides | None:
        """Emit the left messages that are due, and delete right values that no message needs."""
        lefts, rights = state
        known = rights.take(timer.time)
        for time, stored in lefts.take(timer.time):
            at = bisect_right(known, time, key=_TIME) - 1
            is_known = at >= 0 and self._counts(known[at], time)
            if is_known or self.how == "left":
                right = self.values[1].get(known[at][1]) if is_known else None
                output.send_result(allowed(time, output), self.function, left=self.values[0].get(stored), right=right)
        # All later messages are after the timer, so of the values before it only the last one is needed.
        if known and self._counts(known[-1], timer.time):
            rights.add(known[-1])
        if rights and self.tolerance is not None:
            # A program with a shorter tolerance may have set its timer.
            output.set_timer(rights.first + self.tolerance + 1)
        return state if any(state) else None

    def _counts(self, entry: tuple[int, Raw], time: int) -> bool:
        """Return whether a right value is still valid at a time: not too old, and not a deleted row."""
        if self.tolerance is not None and time - entry[0] > self.tolerance:
            return False
        return not self.is_table or self.values[1].get(entry[1]) is not None
