"""Session windows of a function: the messages of a key that come less than a gap apart, folded one after the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tidewheel._operators.keyed.timed import time_of
from tidewheel._operators.logic import Message
from tidewheel._operators.windows.window import CLOSED, OPEN, REOPENED, Fold, Panes, WindowLogic, WindowOperator
from tidewheel._time.windows import Session
from tidewheel._values import Shape
from tidewheel.errors import GraphError


@dataclass(frozen=True, kw_only=True)
class SessionWindows(WindowOperator):
    """Fold the values of each key by sessions."""

    windows: Session

    @property
    def state_layout(self) -> str:
        """Sessions of whatever gap: each is stored with its end, which another gap leaves as it is."""
        return "sessions"

    def check(self, inputs: tuple[Shape, ...]) -> None:
        if self.fold.merge is None:
            raise GraphError("two sessions can grow into one: give merge=, a function of two folded values")

    def logic(self, timestamps: bool = False) -> SessionLogic:
        return SessionLogic(self.windows.gap, self.fold, self.lateness, timestamps)


class SessionLogic(WindowLogic):
    """The sessions of each key."""

    ends_move = True

    def __init__(self, gap: int, fold: Fold, lateness: int, timestamps: bool) -> None:
        super().__init__(fold, lateness, timestamps)
        self.gap = gap

    def on_data(self, message: Message, state: Panes, output: Any) -> Panes | None:
        """Take a message into a session: a new one, one that it prolongs, or several that it joins.

        Where that is over, the message is set aside.
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
        # A session that is prolonged keeps its timer, which sets the next when it fires too early.
        self.keep(start, end, status, folded, not waits, state, output)
        return state
