"""window: the messages of a key, folded by stretches of time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from tidewheel._operators.keyed.output_buffer import Collected
from tidewheel._operators.keyed.stateful_map import StateSpec
from tidewheel._operators.keyed.timed import TimedOperator, time_of
from tidewheel._operators.logic import Message, StatefulLogic
from tidewheel._state.timers import Timer
from tidewheel._time.fold import Fold
from tidewheel._time.windows import Session, Windows
from tidewheel._values import ANY, ROW, Shape
from tidewheel.errors import GraphError

_OPEN, _CLOSED, _REOPENED = 0, 1, 2
_DROP = "drop"

Panes = dict[int, tuple[int, int, Any]]
"""By start: the end, whether it was emitted, and what was folded."""


class WindowResult(msgspec.Struct, frozen=True):
    """What a window holds when it ends: `start` is part of it, `end` is not.

    A `correction` replaces what the same window, or the sessions that grew into it, emitted before.
    """

    start: int
    end: int
    value: Any
    correction: bool = False


@dataclass(frozen=True)
class WindowBy(TimedOperator):
    """Fold the values of each key by windows; a window is emitted once, when the epoch passes its end.

    With `lateness`, a message that comes that much after the end is still taken in, and the window is emitted again, as
    a correction. A message that comes later than that goes to the second output.
    """

    windows: Windows
    fold: Fold
    lateness: int
    type: Any = None
    rows: bool = False
    """Whether the results are rows, as those of aggregates are."""
    kind = "window"
    ports = 2

    def check(self, inputs: tuple[Shape, ...]) -> None:
        """Refuse a session that could not be merged."""
        if isinstance(self.windows, Session) and self.fold.merge is None:
            raise GraphError("two sessions can grow into one: give merge=, a function of two folded values")

    def logic(self) -> WindowLogic:
        """Return the logic."""
        return WindowLogic(self.windows, self.fold, self.lateness)

    def spec(self) -> StateSpec:
        """Keep the open windows of a key."""
        folded = Any if self.type is None else self.type
        return StateSpec(dict[int, tuple[int, int, folded]], dict)  # type: ignore[valid-type]

    def shapes(self, inputs: tuple[Shape, ...]) -> tuple[Shape, ...]:
        """Results, and the late messages as they came."""
        return (ROW if self.rows else ANY, inputs[0])


class WindowLogic(StatefulLogic[Panes]):
    """The windows of each key."""

    def __init__(self, windows: Windows, fold: Fold, lateness: int) -> None:
        """Take what the operator was given."""
        self.windows, self.fold, self.lateness = windows, fold, lateness

    def on_data(self, message: Message, state: Panes, output: Any) -> Panes | None:
        """Take a message into its windows, or set it aside where it is too late for all of them."""
        time = time_of(message)
        if isinstance(self.windows, Session):
            taken = self._extend(
                self.windows.gap, time, time, lambda folded: self.fold.add(folded, message.value), state, output
            )
        else:
            taken = False
            for start, end in self.windows.of(time):
                if not self._is_over(end, output):
                    taken = True
                    known = state.get(start)
                    _, status, folded = known or (end, _OPEN, self.fold.default())
                    self._keep(start, end, status, self.fold.add(folded, message.value), known is None, state, output)
        if not taken:
            output.set_aside()
        return state or None

    def on_session(self, message: Message, state: Panes, output: Any) -> Panes | None:
        """Take a session that was folded elsewhere: the message has the time of its first one, its value that of the last."""
        last, partial = message.value
        assert isinstance(self.windows, Session)
        assert self.fold.merge is not None
        merge = self.fold.merge
        self._extend(self.windows.gap, time_of(message), last, lambda folded: merge(folded, partial), state, output)
        return state or None

    def _extend(
        self, gap: int, first: int, last: int, take: Callable[[Any], Any], state: Panes, output: Collected
    ) -> bool:
        """Take messages into a session: a new one, one that they prolong, or several that they join."""
        near = sorted(start for start, (end, _, _) in state.items() if start < last + gap and first < end)
        start = min([first, *near])
        end = max(last + gap, *(state[each][0] for each in near)) if near else last + gap
        if self._is_over(end, output):
            return False
        status, waits = _OPEN, False
        folded = None
        for number, each in enumerate(near):
            _, other, part = state.pop(each)
            waits = waits or other != _CLOSED
            status = status if other == _OPEN else _REOPENED
            folded = part if number == 0 else self.fold.merge(folded, part)  # type: ignore[misc]
        folded = take(self.fold.default() if not near else folded)
        # A session that is prolonged keeps its timer, which sets the next when it fires too early.
        self._keep(start, end, status, folded, not waits, state, output)
        return True

    def _keep(self, start: int, end: int, status: int, folded: Any, new: bool, state: Panes, output: Collected) -> None:
        if output.last_epoch is not None and end - 1 <= output.last_epoch:
            self._emit(start, end, status, folded, output)
            output.set_timer(end - 1 + self.lateness, _DROP)
            state[start] = (end, _CLOSED, folded)
            return
        if new:
            output.set_timer(end - 1)
        state[start] = (end, _REOPENED if status == _CLOSED else status, folded)

    def on_timer(self, timer: Timer, state: Panes, output: Any) -> Panes | None:
        """Emit the windows that have ended, and forget those that take no late messages any more."""
        until = timer.time if output.epoch is None else max(timer.time, output.epoch)
        for start in sorted(state):
            end, status, folded = state[start]
            if end - 1 > until:
                if status != _CLOSED and isinstance(self.windows, Session):
                    output.set_timer(end - 1)
                continue
            if status != _CLOSED:
                self._emit(start, end, status, folded, output)
                state[start] = (end, _CLOSED, folded)
                if self.lateness and end - 1 + self.lateness > until:
                    output.set_timer(end - 1 + self.lateness, _DROP)
            if end - 1 + self.lateness <= until:
                del state[start]
        return state or None

    def _is_over(self, end: int, output: Collected) -> bool:
        return output.last_epoch is not None and end - 1 + self.lateness <= output.last_epoch

    def _emit(self, start: int, end: int, status: int, folded: Any, output: Collected) -> None:
        result = self.fold.result or WindowResult
        assert output.current is not None
        output.send(Message(output.current.key, result(start, end, folded, status != _OPEN), end - 1))
