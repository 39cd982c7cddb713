"""Tumbling and sliding windows with a function that folds the messages of a key one by one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tidewheel._operators.keyed.timed import time_of
from tidewheel._operators.logic import Message
from tidewheel._operators.windows.window import OPEN, Fold, Panes, WindowLogic, WindowOperator
from tidewheel._state.layout import WINDOWS, StateLayout
from tidewheel._time.early import Early
from tidewheel._time.windows import Fixed


@dataclass(frozen=True, kw_only=True)
class FixedWindows(WindowOperator):
    """Fold the values of each key by windows of one length."""

    windows: Fixed

    @property
    def state_layout(self) -> StateLayout:
        """The windows, because windows of another length would be mistaken for stored ones with the same start."""
        return StateLayout(WINDOWS, self.windows)

    def logic(self, timestamps: bool = False) -> FixedLogic:
        return FixedLogic(self.windows, self.fold, self.lateness, timestamps, self.early)


class FixedLogic(WindowLogic):
    """The open windows of each key."""

    def __init__(self, windows: Fixed, fold: Fold, lateness: int, timestamps: bool, early: Early | None = None) -> None:
        super().__init__(fold, lateness, timestamps, early)
        self.windows = windows

    def on_data(self, message: Message, state: Panes, output: Any) -> Panes | None:
        """Add a message to its windows, or send it to the late output if it is too late for all of them."""
        taken = False
        for start, end in self.windows.of(time_of(message)):
            if not self.is_over(end, output):
                taken = True
                window = state.get(start)
                _, status, folded = window or (end, OPEN, self.fold.default())
                self.keep(start, end, status, self.fold.add(folded, message.value), window is None, state, output)
        if not taken:
            output.set_aside()
        return state or None
