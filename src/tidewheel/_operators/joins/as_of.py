"""as_of_join: each left message with the right value that was the last known at its time."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from msgspec import Raw

from tidewheel._operators.joins.join import Join
from tidewheel._operators.keyed.catch_up_logic import CatchUpLogic
from tidewheel._operators.keyed.stateful_map import StateSpec
from tidewheel._operators.keyed.timed import allowed, time_of
from tidewheel._operators.logic import Message
from tidewheel._state.timers import Timer

Sides = list[list[tuple[int, Raw]]]
_TIME = itemgetter(0)


@dataclass(frozen=True)
class AsOfJoin(Join):
    """Hold each left message until the epoch reaches its time, then emit it with the latest right value up to that time.

    Of the right values that the epoch has passed, only the last is kept; with a `tolerance` in ns, not for longer than
    that.
    """

    tolerance: int | None
    kind = "as_of_join"

    def logic(self, timestamps: bool = False) -> AsOfLogic:
        return AsOfLogic(self)

    def spec(self) -> StateSpec:
        return StateSpec(Sides, _nothing)


def _nothing() -> Sides:
    return [[], []]


class AsOfLogic(CatchUpLogic[Sides]):
    """Left messages that wait, and right values that may still be the last known."""

    def __init__(self, join: AsOfJoin) -> None:
        self.function, self.how, self.tolerance, self.values = (
            join.function,
            join.how,
            join.tolerance,
            join.state_values(),
        )

    def on_left(self, message: Message, state: Sides, output: Any) -> Sides:
        """Hold a left message."""
        time = time_of(message)
        state[0].append((time, self.values[0].put(message.value)))
        output.set_timer(time)
        return state

    def on_right(self, message: Message, state: Sides, output: Any) -> Sides:
        """Note a right value; of two with the same time the one that came later counts."""
        time, rights = time_of(message), state[1]
        rights.insert(bisect_right(rights, time, key=_TIME), (time, self.values[1].put(message.value)))
        output.set_timer(time)
        if self.tolerance is not None:
            output.set_timer(time + self.tolerance + 1)
        return state

    def on_timer(self, timer: Timer, state: Sides, output: Any) -> Sides | None:
        """Emit the left messages that are due, and drop right values that no message needs."""
        lefts, rights = state
        due = [each for each in lefts if each[0] <= timer.time]
        for time, stored in sorted(due, key=_TIME):
            at = bisect_right(rights, time, key=_TIME) - 1
            known = at >= 0 and (self.tolerance is None or time - rights[at][0] <= self.tolerance)
            if known or self.how == "left":
                right = self.values[1].get(rights[at][1]) if known else None
                value = self.function(self.values[0].get(stored), right)
                output.send(Message(timer.key, value, allowed(time, output)))
        if due:
            lefts = [each for each in lefts if each[0] > timer.time]
        # Whatever comes now is later than the timer, so of the values up to it only the last can matter.
        rights = rights[max(bisect_right(rights, timer.time, key=_TIME) - 1, 0) :]
        if self.tolerance is not None:
            rights = [each for each in rights if each[0] + self.tolerance >= timer.time]
            if rights:
                # Its own timer may be that of a program whose tolerance was shorter.
                output.set_timer(rights[0][0] + self.tolerance + 1)
        return [lefts, rights] if lefts or rights else None
