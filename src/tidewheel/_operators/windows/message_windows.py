"""Windows that messages end, with a function that folds them: a number of messages, or a trigger of the user.

A window takes messages in the order in which they arrive, so no message is too late for it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from tidewheel._operators.keyed.output_buffer import OutputBuffer
from tidewheel._operators.keyed.state_spec import StateSpec
from tidewheel._operators.keyed.timed import NO_WINDOW_CLOSES, TimedOperator, allowed, time_of
from tidewheel._operators.logic import Message, StatefulLogic
from tidewheel._operators.windows.window import Fold
from tidewheel._operators.windows.window_result import WindowResult
from tidewheel._state.layout import StateLayout
from tidewheel._state.timers import Timer
from tidewheel._time.duration import MAX_TIME, moment
from tidewheel._time.windows import Counted, Triggered
from tidewheel._values import ANY, Shape
from tidewheel.errors import GraphError

END = MAX_TIME - 1
"""The time of a timer that only the end of a bounded run reaches."""

Window = tuple[int, int | None, int | None, Any]
"""How many messages it still takes (0 for a trigger), its earliest and latest timestamp if it has any, its folded value."""
_RAW_WINDOWS = msgspec.msgpack.Decoder(list[tuple[int, int | None, int | None, msgspec.Raw]])


@dataclass(frozen=True, kw_only=True)
class MessageWindows(TimedOperator):
    """Fold the values of each key by windows that messages end. The end of a bounded run ends the last ones."""

    fold: Fold
    folded: StateSpec
    """The declared type of the folded values."""
    kind = "window"
    ports = 2
    output_names = ("", "late")
    order_matters = True

    @property
    def kept(self) -> Mapping[str, StateSpec]:
        return {"": self.folded}

    def rewritten(self, raw: bytes, convert: Callable[[str, bytes], bytes | None]) -> bytes | None:
        windows = []
        for left, start, end, folded in _RAW_WINDOWS.decode(raw):
            if (value := convert("", bytes(folded))) is not None:
                windows.append((left, start, end, msgspec.Raw(value)))
        return msgspec.msgpack.encode(windows) if windows else None

    def spec(self) -> StateSpec:
        return StateSpec(list[tuple[int, int | None, int | None, self.folded.stored_type]], list)  # type: ignore[name-defined]

    def shapes(self, inputs: tuple[Shape, ...]) -> tuple[Shape, ...]:
        return (ANY, inputs[0])


@dataclass(frozen=True, kw_only=True)
class CountedWindows(MessageWindows):
    """Fold the values of each key by windows of a number of messages."""

    windows: Counted

    @property
    def state_layout(self) -> StateLayout:
        return StateLayout(f"folded {self.windows}")

    def logic(self, timestamps: bool = False) -> StatefulLogic[Any]:
        return CountedLogic(self.windows, self.fold, timestamps)


@dataclass(frozen=True, kw_only=True)
class TriggeredWindows(MessageWindows):
    """Fold the values of each key by windows that a function of the user ends."""

    windows: Triggered

    @property
    def state_layout(self) -> StateLayout:
        """The timeout is not part of the layout: a window is stored with its start only."""
        return StateLayout("folded windows with a trigger")

    @property
    def waits_for_epochs(self) -> str:
        return "" if self.windows.timeout is None else NO_WINDOW_CLOSES.replace("no window closes", "no timeout passes")

    def timed(self, inputs: tuple[bool | None, ...]) -> bool | None:
        if self.windows.timeout is not None and False in inputs:
            raise GraphError("the timeout of a window is measured by timestamps; add event_time before this step")
        return super().timed(inputs)

    def logic(self, timestamps: bool = False) -> StatefulLogic[Any]:
        return TriggeredLogic(self.windows, self.fold, timestamps)


class MessageWindowLogic(StatefulLogic[list[Window]]):
    """The open windows of each key, the oldest first."""

    def __init__(self, fold: Fold, timestamps: bool) -> None:
        self.fold = fold
        self._shown: Callable[[int], Any] = moment if timestamps else int

    @abstractmethod
    def on_timer(self, timer: Timer, state: list[Window], output: Any) -> list[Window] | None: ...

    def added(self, window: Window, message: Message, left: int) -> Window:
        """Return a window with one more message."""
        _, start, end, folded = window
        time = message.time
        if time is not None:
            start, end = time if start is None else min(start, time), time if end is None else max(end, time)
        return left, start, end, self.fold.add(folded, message.value)

    def emit(self, window: Window, output: OutputBuffer) -> None:
        """Emit a window at its latest timestamp or, if the clock has passed that, just after the clock."""
        _, start, end, folded = window
        shown = [None if time is None else self._shown(time) for time in (start, end)]
        time = None if end is None else allowed(end, output)
        output.send_result(time, WindowResult, start=shown[0], end=shown[1], value=folded)


class CountedLogic(MessageWindowLogic):
    """Windows of a number of messages."""

    def __init__(self, windows: Counted, fold: Fold, timestamps: bool) -> None:
        super().__init__(fold, timestamps)
        self.length, self.every = windows.length, windows.every

    def on_data(self, message: Message, state: list[Window], output: Any) -> list[Window] | None:
        """Add a message to the open windows; emit the one that is complete."""
        opened: list[int] = []
        if not state:
            # Overlapping windows begin as if messages had come before the first.
            opened = list(
                range(self.length - (self.length - 1) // self.every * self.every, self.length + 1, self.every)
            )
            output.set_timer(END)
        elif self.length - state[-1][0] == self.every:
            opened = [self.length]
        windows = [*state, *((left, None, None, self.fold.default()) for left in opened)]
        windows = [self.added(window, message, window[0] - 1) for window in windows]
        if windows[0][0] == 0:
            self.emit(windows.pop(0), output)
        if not windows:
            output.cancel_timer(END)
        return windows or None

    def on_timer(self, timer: Timer, state: list[Window], output: Any) -> list[Window] | None:
        """Emit the messages that have come since the last complete window, with those before them in their window."""
        if state and state[0][0] < self.every:
            self.emit(state[0], output)
        return None


class TriggeredLogic(MessageWindowLogic):
    """The open window of each key."""

    def __init__(self, windows: Triggered, fold: Fold, timestamps: bool) -> None:
        super().__init__(fold, timestamps)
        self.closes, self.timeout = windows.closes, windows.timeout

    def on_data(self, message: Message, state: list[Window], output: Any) -> list[Window] | None:
        """Add a message to the open window, or to a new one if its timeout has passed; ask the trigger."""
        if state and self.timeout is not None and time_of(message) > self._due(state[0]):
            self.emit(state[0], output)
            output.cancel_timer(self._due(state[0]))
            state = []
        window = self.added(state[0] if state else (0, None, None, self.fold.default()), message, 0)
        closed = bool(self.closes(window[3], message.value))
        if state and (closed or self._due(state[0]) != self._due(window)):
            output.cancel_timer(self._due(state[0]))
        if closed:
            self.emit(window, output)
            return None
        output.set_timer(self._due(window))
        return [window]

    def on_timer(self, timer: Timer, state: list[Window], output: Any) -> list[Window] | None:
        """Emit the window, whose timeout has passed."""
        if state and timer.time != END and timer.time < self._due(state[0]):
            # A program with a shorter timeout set this timer.
            output.set_timer(self._due(state[0]))
            return state
        for window in state:
            self.emit(window, output)
        return None

    def _due(self, window: Window) -> int:
        """Return the last time that belongs to a window."""
        return END if self.timeout is None or window[1] is None else window[1] + self.timeout - 1
