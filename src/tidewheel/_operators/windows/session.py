"""Session windows with a function that folds the messages of a session one by one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tidewheel._operators.keyed.timed import time_of
from tidewheel._operators.logic import Message
from tidewheel._operators.windows.window import CLOSED, OPEN, REOPENED, Fold, Panes, WindowLogic, WindowOperator
from tidewheel._state.layout import SESSIONS, StateLayout
from tidewheel._time.early import Early
from tidewheel._time.windows import Session
from tidewheel._values import Shape
from tidewheel.errors import GraphError


@dataclass(frozen=True, kw_only=True)
class SessionWindows(WindowOperator):
    """Fold the values of each key by sessions."""

    windows: Session

    @property
    def state_layout(self) -> StateLayout:
        """The gap is not part of the layout: each session is stored with its end, which stays valid."""
        return StateLayout(SESSIONS)

    def check(self, inputs: tuple[Shape, ...]) -> None:
        if self.fold.merge is None:
            raise GraphError("two sessions can grow into one: pass merge=, a function of two folded values")

    def logic(self, timestamps: bool = False) -> SessionLogic:
        return SessionLogic(self.windows.gap, self.fold, self.lateness, timestamps, self.early)


class SessionLogic(WindowLogic):
    """The sessions of each key."""

    ends_move = True

    def __init__(self, gap: int, fold: Fold, lateness: int, timestamps: bool, early: Early | None = None) -> None:
        super().__init__(fold, lateness, timestamps, early)
        self.gap = gap

    def on_data(self, message: Message, state: Panes, output: Any) -> Panes | None:
        """Add a message to a session: a new one, one that it extends, or several that it merges.

        If that session takes no messages any more, the message goes to the late output.
        """
        time = time_of(message)
        near = sorted(start for start, (end, _, _) in state.items() if start < time + self.gap and time < end)
        start = min([time, *near])
        end = max([time + self.gap, *(state[each][0] for each in near)])
        if self.is_over(end, output):
            output.set_aside()
            return state or None
        status, waits = OPEN, False
        folded = None
        for number, each in enumerate(near):
            _, other, part = state.pop(each)
            waits = waits or other != CLOSED
            status = status if other == OPEN else REOPENED
            folded = part if number == 0 else self.fold.merge(folded, part)  # type: ignore[misc]
        folded = self.fold.add(self.fold.default() if not near else folded, message.value)
        # An extended session keeps its timer; if the timer fires too early, it sets the next one.
        self.keep(start, end, status, folded, not waits, state, output)
        return state
