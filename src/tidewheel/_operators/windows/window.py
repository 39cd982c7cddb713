"""The base of all windows: how values are folded, the form of results, and when a window of a function is emitted.

`fixed.py` has tumbling and sliding windows of a function, `fixed_aggregates.py` those of aggregates, and `session.py` the
sessions of both.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import msgspec
import pyarrow as pa

from tidewheel._operators.aggregates.functions import Aggregate
from tidewheel._operators.keyed.output_buffer import OutputBuffer
from tidewheel._operators.keyed.state_spec import StateSpec
from tidewheel._operators.keyed.timed import NO_WINDOW_CLOSES, TimedOperator
from tidewheel._operators.logic import StatefulLogic
from tidewheel._operators.windows.due_keys import EARLY
from tidewheel._operators.windows.window_result import EarlyResult, WindowResult
from tidewheel._state.layout import StateLayout
from tidewheel._state.timers import Timer
from tidewheel._time.duration import moment
from tidewheel._time.early import Early
from tidewheel._time.panes import Ints
from tidewheel._values import ANY, Shape
from tidewheel.errors import GraphError

OPEN, CLOSED, REOPENED = 0, 1, 2
"""The status of a window: not emitted yet; emitted; emitted, with late messages since then."""
_DROP = "drop"

Panes = dict[int, tuple[int, int, Any]]
"""The windows of a key by start: end, status, and folded value."""
_RAW_PANES = msgspec.msgpack.Decoder(dict[int, tuple[int, int, msgspec.Raw]])


@dataclass(frozen=True)
class Fold:
    """How the values of a window are folded: `default()` is the initial value, and `add` adds one value at a time.

    `merge` combines two folded values. Sessions need it, because two sessions can grow into one.
    """

    default: Callable[[], Any]
    add: Callable[[Any, Any], Any]
    merge: Callable[[Any, Any], Any] | None = None


def shown(times: Ints, timestamps: bool) -> pa.Array:
    """Return times in the form of results: as timestamps, which have microseconds in Python and Spark, or in ns."""
    return pa.array(times // 1000, pa.timestamp("us", "UTC")) if timestamps else pa.array(times)


def check_names(aggregates: dict[str, Aggregate], early: Early | None) -> None:
    """Raise a `GraphError` for aggregates with the name of another column of the result."""
    reserved = {"start", "end", "correction", *(["final"] if early else [])} & set(aggregates)
    if reserved:
        raise GraphError(
            f"an aggregate of a window cannot have the name {', '.join(sorted(reserved))}, which is a column of the "
            "result"
        )


@dataclass(frozen=True, kw_only=True)
class WindowOperator(TimedOperator):
    """Fold the values of each key by windows. A window is emitted once, when the epoch passes its end.

    With `lateness`, a message that comes at most that long after the end is still included, and the window is emitted
    again as a correction. Later messages go to the second output.
    """

    fold: Fold
    lateness: int
    folded: StateSpec
    """The declared type of the folded values."""
    early: Early | None = None
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

    def takes(self, layout: StateLayout) -> bool:
        """Accept state from versions that did not record the windows."""
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
        return (ANY, inputs[0])


class WindowLogic(StatefulLogic[Panes]):
    """The windows of each key. A subclass decides to which windows a message belongs."""

    ends_move: ClassVar[bool] = False
    """Whether the end of a window can move, so that its timer must be set again when it fires."""

    def __init__(self, fold: Fold, lateness: int, timestamps: bool, early: Early | None) -> None:
        self.fold, self.lateness, self.early = fold, lateness, early
        self._shown: Callable[[int], Any] = moment if timestamps else int
        """Converts the start and end of a window for the result."""

    def is_over(self, end: int, output: OutputBuffer) -> bool:
        """Return whether a window with this end no longer accepts messages."""
        return output.last_epoch is not None and end - 1 + self.lateness <= output.last_epoch

    def keep(
        self, start: int, end: int, status: int, folded: Any, needs_timer: bool, state: Panes, output: OutputBuffer
    ) -> None:
        """Keep a window that has received a message; emit it at once if its end has passed."""
        if output.last_epoch is not None and end - 1 <= output.last_epoch:
            self._emit(start, end, status, folded, output)
            output.set_timer(end - 1 + self.lateness, _DROP)
            state[start] = (end, CLOSED, folded)
            return
        if needs_timer:
            output.set_timer(end - 1)
        state[start] = (end, REOPENED if status == CLOSED else status, folded)
        if self.early is None:
            return
        if self.early.every is None:
            # The time of the batch is due after its data.
            output.set_timer(output.now, EARLY, "wall")
        else:
            output.set_timer(self.early.due(output.last_epoch), EARLY)

    def on_timer(self, timer: Timer, state: Panes, output: Any) -> Panes | None:
        """Emit the windows that have ended, and delete those that accept no more messages."""
        if timer.name == EARLY:
            self._emit_open(state, output)
            return state or None
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
                # A program with a shorter allowed lateness set this timer.
                output.set_timer(end - 1 + self.lateness, _DROP)
            if end - 1 + self.lateness <= until:
                del state[start]
        return state or None

    def _emit_open(self, state: Panes, output: OutputBuffer) -> None:
        """Emit early results. Without `early=`, ignore the timer: an earlier version of the program had set it."""
        for start in sorted(state) if self.early is not None else ():
            end, status, folded = state[start]
            if output.epoch is None or end - 1 > output.epoch:
                self._emit(start, end, status, folded, output, final=False)

    def _emit(
        self, start: int, end: int, status: int, folded: Any, output: OutputBuffer, *, final: bool = True
    ) -> None:
        values = {
            "start": self._shown(start),
            "end": self._shown(end),
            "value": folded,
            "correction": status != OPEN,
        }
        if self.early is None:
            output.send_result(end - 1, WindowResult, **values)
        else:
            output.send_result(end - 1, EarlyResult, **values, final=final)
