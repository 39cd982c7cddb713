"""window_join: messages of one key that are in the same window."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import Raw

from tidewheel._operators.joins.join import Join
from tidewheel._operators.keyed.output_buffer import OutputBuffer
from tidewheel._operators.keyed.state_spec import StateSpec
from tidewheel._operators.keyed.timed import NO_WINDOW_CLOSES, time_of
from tidewheel._operators.logic import Message, StatefulLogic
from tidewheel._state.layout import JOINED_WINDOWS, StateLayout
from tidewheel._state.timers import Timer
from tidewheel._time.windows import Fixed

Panes = dict[int, tuple[int, list[Raw], list[Raw]]]
"""The open windows by start: the end, and the values of each side."""
_PANES = msgspec.msgpack.Decoder(Panes)


@dataclass(frozen=True)
class WindowJoin(Join):
    """When the epoch passes the end of a window, emit each pair of a left and a right value in the window.

    An outer join emits the values of a window that has only one side with None. A message whose windows have all ended
    goes to the second output.
    """

    windows: Fixed
    kind = "window_join"
    ports = 2
    output_names = ("", "late")
    holds_back = True
    waits_for_epochs = NO_WINDOW_CLOSES

    @property
    def state_layout(self) -> StateLayout:
        """The windows, because windows of another length would be mistaken for stored ones with the same start."""
        return StateLayout(JOINED_WINDOWS, self.windows)

    def takes(self, layout: StateLayout) -> bool:
        """Accept state from versions that did not record the windows."""
        return layout == super().state_layout

    def rewritten(self, raw: bytes, convert: Callable[[str, bytes], bytes | None]) -> bytes | None:
        windows = {}
        for start, (end, lefts, rights) in _PANES.decode(raw).items():
            left, right = (
                [each for each in (convert(side, bytes(value)) for value in values) if each is not None]
                for side, values in (("left", lefts), ("right", rights))
            )
            if left or right:
                windows[start] = (end, list(map(Raw, left)), list(map(Raw, right)))
        return msgspec.msgpack.encode(windows) if windows else None

    def logic(self, timestamps: bool = False) -> WindowJoinLogic:
        return WindowJoinLogic(self)

    def spec(self) -> StateSpec:
        return StateSpec(Panes, dict)


class WindowJoinLogic(StatefulLogic[Panes]):
    """The open windows of each key."""

    _calls_last_timer_only = True
    _all_or_nothing = True

    def __init__(self, join: WindowJoin) -> None:
        self.windows, self.function, self.how, self.values = join.windows, join.function, join.how, join.state_values()

    def on_left(self, message: Message, state: Panes, output: Any) -> Panes | None:
        """Keep a left message."""
        return self._on(0, message, state, output)

    def on_right(self, message: Message, state: Panes, output: Any) -> Panes | None:
        """Keep a right message."""
        return self._on(1, message, state, output)

    def _on(self, side: int, message: Message, state: Panes, output: OutputBuffer) -> Panes | None:
        stored = self.values[side].put(message.value)
        last = output.last_epoch
        taken = [each for each in self.windows.of(time_of(message)) if last is None or each[1] - 1 > last]
        for start, end in taken:
            if start not in state:
                output.set_timer(end - 1)
        for start, end in taken:
            _, lefts, rights = state.setdefault(start, (end, [], []))
            (rights if side else lefts).append(stored)
        if not taken:
            output.set_aside()
        return state or None

    def on_timer(self, timer: Timer, state: Panes, output: Any) -> Panes | None:
        """Emit the windows that have ended."""
        for start in sorted(start for start, (end, _, _) in state.items() if end - 1 <= timer.time):
            end, lefts, rights = state.pop(start)
            for left, right in self._pairs(list(map(self.values[0].get, lefts)), list(map(self.values[1].get, rights))):
                output.send_result(end - 1, self.function, left=left, right=right)
        return state or None

    def _pairs(self, lefts: list[Any], rights: list[Any]) -> list[tuple[Any, Any]]:
        if not rights:
            return [(left, None) for left in lefts] if self.how in ("left", "full") else []
        if not lefts:
            return [(None, right) for right in rights] if self.how in ("right", "full") else []
        return [(left, right) for left in lefts for right in rights]
