"""deduplicate: the first message of each id, within a horizon."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from tidewheel._operators.base import Operator
from tidewheel._operators.keyed.catch_up_logic import CatchUpLogic
from tidewheel._operators.keyed.known_ids import KnownIds, KnownIdsCodec
from tidewheel._operators.keyed.state_spec import StateSpec
from tidewheel._operators.keyed.timed import TimedOperator, time_of
from tidewheel._operators.logic import Message
from tidewheel._state.timers import Timer
from tidewheel._values import Shape
from tidewheel._values.records import field_names, has_fields, optional_field
from tidewheel.errors import GraphError, OperatorError

_LAYOUT = re.compile(r"ids until (\d+) ns after their messages")


@dataclass(frozen=True)
class FieldGetter:
    """A function that returns a field of a value."""

    name: str

    def __call__(self, value: Any) -> Any:
        """Return the field, or raise an error that says what the value has."""
        if not has_fields(type(value)) or self.name not in field_names(value):
            raise OperatorError(f"the value has no field {self.name!r}")
        return optional_field(value, self.name)


@dataclass(frozen=True)
class Deduplicate(TimedOperator):
    """Drop a message if one of the same key, less than `horizon` ns away in time, was let through before.

    With `by`, a function of the value, the messages of a key are told apart by what it returns: a str, an int or bytes.
    What is dropped is counted.
    """

    horizon: int
    by: Callable[[Any], Any] | None = None
    began_with: int | None = None
    """The horizon of the program that began the state, if it was another: what is stored for an id is that long after it."""
    kind = "deduplicate"
    needs_time = True
    wants_epochs = "what it has let through is kept for ever"

    @property
    def _stored_after(self) -> int:
        return self.horizon if self.began_with is None else self.began_with

    @property
    def state_layout(self) -> str:
        """How long after its message the time is that is stored for an id."""
        return f"ids until {self._stored_after} ns after their messages"

    def takes(self, layout: str) -> bool:
        """Take state of a version that did not record with which horizon it began."""
        return layout == super().state_layout

    def continuing(self, layout: str) -> Operator | None:
        began = _LAYOUT.fullmatch(layout)
        return None if began is None else replace(self, began_with=int(began[1]))

    def logic(self, timestamps: bool = False) -> DeduplicateLogic:
        return DeduplicateLogic(self.horizon, self.by, self._stored_after)

    def spec(self) -> StateSpec:
        return StateSpec(default=KnownIds, codec=KnownIdsCodec())

    def check(self, inputs: tuple[Shape, ...]) -> None:
        known = inputs[0].columns()
        if isinstance(self.by, FieldGetter) and known is not None and self.by.name not in known:
            raise GraphError(f"there is no column {self.by.name!r}; {inputs[0].describe()} has {', '.join(known)}")

    def shapes(self, inputs: tuple[Shape, ...]) -> tuple[Shape, ...]:
        return inputs

    def schemas(self, inputs: tuple[pa.Schema | None, ...]) -> tuple[pa.Schema | None, ...]:
        return inputs


class DeduplicateLogic(CatchUpLogic[KnownIds]):
    """The ids of each key that are known: a horizon after each message that was let through."""

    def __init__(self, horizon: int, by: Callable[[Any], Any] | None, stored_after: int) -> None:
        self.horizon, self.by, self.stored_after = horizon, by, stored_after
        self._ahead = stored_after - horizon
        """How much later than the time until which an id is known the one is that is stored for it."""

    def on_data(self, message: Message, state: KnownIds, output: Any) -> KnownIds:
        """Let a message through whose id is not known at its time."""
        name = "" if self.by is None else self.by(message.value)
        if isinstance(name, bool) or not isinstance(name, str | int | bytes):
            raise OperatorError(f"the id of a message is a str, an int or bytes, not {name!r}")
        time = time_of(message)
        epoch = None if output.last_epoch is None else output.last_epoch + self._ahead
        stored = time + self.stored_after
        if not any(abs(other - stored) < self.horizon for other in state.until(name, epoch)):
            # An older message does not make the operator forget the newer one.
            state.add(name, stored, epoch)
            output.set_timer(time + self.horizon)
            output.emit(message.value)
        else:
            output.dropped += 1
        return state

    def on_timer(self, timer: Timer, state: KnownIds, output: Any) -> KnownIds | None:
        """Forget the ids whose horizon has passed."""
        state.forget(timer.time + self._ahead)
        if state and self._ahead:
            # The timers may be those of a program whose horizon was shorter.
            output.set_timer(state.latest() - self._ahead)
        return state or None
