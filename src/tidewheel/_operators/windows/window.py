"""What all windows share: how values are folded, what goes out, and when a window of a function is emitted.

`fixed.py` has tumbling and sliding windows of a function, `fixed_aggregates.py` those of aggregates, and `session.py` the
sessions of both.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Generic

import msgspec
import pyarrow as pa

from tidewheel._operators.aggregates.functions import Aggregate
from tidewheel._operators.keyed.output_buffer import OutputBuffer
from tidewheel._operators.keyed.state_spec import StateSpec
from tidewheel._operators.keyed.timed import NO_WINDOW_CLOSES, TimedOperator
from tidewheel._operators.logic import StatefulLogic
from tidewheel._state.timers import Timer
from tidewheel._time.duration import moment
from tidewheel._time.panes import Ints
from tidewheel._values import ANY, ROW, Shape
from tidewheel._values.type_variables import Value
from tidewheel.errors import GraphError

OPEN, CLOSED, REOPENED = 0, 1, 2
"""A window that was not emitted yet; one that was; one that was and has taken late messages since."""
_DROP = "drop"

Panes = dict[int, tuple[int, int, Any]]
"""The windows of a key by start: the end, the status, and what was folded."""
_RAW_PANES = msgspec.msgpack.Decoder(dict[int, tuple[int, int, msgspec.Raw]])


@dataclass(frozen=True)
class Fold:
    """How the values of a window become one: `default()` begins, `add` takes in one value after the other.

    `merge` makes one of two that were begun apart. Sessions need it: two of them can grow together.
    """

    default: Callable[[], Any]
    add: Callable[[Any, Any], Any]
    merge: Callable[[Any, Any], Any] | None = None
    result: Callable[[Any, Any, Any, bool], Any] | None = None
    """Makes what goes out of start, end, the folded values, and whether it is a correction."""


class WindowResult(msgspec.Struct, Generic[Value], frozen=True):
    """What a window holds when it ends: `start` is part of it, `end` is not. Both are datetimes, or ns where times are integers.

    A `correction` replaces what the same window, or the sessions that grew into it, emitted before.
    """

    start: Any
    end: Any
    value: Value
    correction: bool = False


def shown(times: Ints, timestamps: bool) -> pa.Array:
    """Return times as they come out: as timestamps, of which Python and Spark know microseconds, or in ns."""
    return pa.array(times // 1000, pa.timestamp("us", "UTC")) if timestamps else pa.array(times)


def check_names(aggregates: dict[str, Aggregate]) -> None:
    """Refuse aggregates that have the name of another column of the result."""
    reserved = {"start", "end", "correction"} & set(aggregates)
    if reserved:
        raise GraphError(
            f"an aggregate of a window cannot be called {', '.join(sorted(reserved))}: the result has that column"
        )


@dataclass(frozen=True, kw_only=True)
class WindowOperator(TimedOperator):
    """Fold the values of each key by windows. A window is emitted once, when the epoch passes its end.

    With `lateness`, a message that comes at most that long after the end is still taken in, and the window is emitted
    again, as a correction. A message that comes later goes to the second output.
    """

    fold: Fold
    lateness: int
    folded: StateSpec
    """What the program says of a window's folded values."""
    kind = "window"
    ports = 2
    output_names = ("", "late")
    needs_time = True
    holds_back = True
    waits_for_epochs = NO_WINDOW_CLOSES

    @property
    def takes_late(self) -> bool:
        return self.lateness > 0

    @abstractmethod
    def logic(self, timestamps: bool = False) -> WindowLogic: ...

    def takes(self, layout: str) -> bool:
        """Take state of a version that did not record of which windows it is."""
        return layout == super().state_layout

    @property
    def kept(self) -> Mapping[str, StateSpec]:
        return {"": self.folded}

    def rewritten(self, raw: bytes, convert: Callable[[str, bytes], bytes | None]) -> bytes | None:
        windows = {}
        for start, (end, status, folded) in _RAW_PANES.decode(raw).items():
            if (value := convert("", bytes(folded))) is not None:
                windows[start] = (end, status, msgspec.Raw(value))
        return msgspec.msgpack.encode(windows) if windows else None

    def spec(self) -> StateSpec:
        return StateSpec(dict[int, tuple[int, int, self.folded.stored_type]], dict)  # type: ignore[name-defined]

    def shapes(self, inputs: tuple[Shape, ...]) -> tuple[Shape, ...]:
        return (ANY if self.fold.result is None else ROW, inputs[0])


class WindowLogic(StatefulLogic[Panes]):
    """The windows of each key. A subclass says which of them a message is for."""

    ends_move: ClassVar[bool] = False
    """Whether the end of a window may move while its timer waits, so that the timer must be set again when it fires."""

    def __init__(self, fold: Fold, lateness: int, timestamps: bool) -> None:
        self.fold, self.lateness = fold, lateness
        self._shown: Callable[[int], Any] = moment if timestamps else int
        """How start and end of a window come out."""

    def is_over(self, end: int, output: OutputBuffer) -> bool:
        """Tell whether a window that ends then takes no messages any more."""
        return output.last_epoch is not None and end - 1 + self.lateness <= output.last_epoch

    def keep(
        self, start: int, end: int, status: int, folded: Any, needs_timer: bool, state: Panes, output: OutputBuffer
    ) -> None:
        """Keep a window that has taken something in; emit it at once where its end has passed."""
        if output.last_epoch is not None and end - 1 <= output.last_epoch:
            self._emit(start, end, status, folded, output)
            output.set_timer(end - 1 + self.lateness, _DROP)
            state[start] = (end, CLOSED, folded)
            return
        if needs_timer:
            output.set_timer(end - 1)
        state[start] = (end, REOPENED if status == CLOSED else status, folded)

    def on_timer(self, timer: Timer, state: Panes, output: Any) -> Panes | None:
        """Emit the windows that have ended, and forget those that take no late messages any more."""
        until = timer.time if output.epoch is None else max(timer.time, output.epoch)
        for start in sorted(state):
            end, status, folded = state[start]
            if end - 1 > until:
                if self.ends_move and status != CLOSED:
                    output.set_timer(end - 1)
                continue
            if status != CLOSED:
                self._emit(start, end, status, folded, output)
                state[start] = (end, CLOSED, folded)
                if self.lateness and end - 1 + self.lateness > until:
                    output.set_timer(end - 1 + self.lateness, _DROP)
            elif timer.name == _DROP and end - 1 + self.lateness > until:
                # The timer is that of a program whose allowed lateness was shorter.
                output.set_timer(end - 1 + self.lateness, _DROP)
            if end - 1 + self.lateness <= until:
                del state[start]
        return state or None

    def _emit(self, start: int, end: int, status: int, folded: Any, output: OutputBuffer) -> None:
        result = self.fold.result or WindowResult
        output.send_result(
            end - 1,
            result,
            start=self._shown(start),
            end=self._shown(end),
            value=folded,
            correction=status != OPEN,
        )
