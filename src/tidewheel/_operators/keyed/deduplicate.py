"""deduplicate: the first message of each id, within a horizon."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tidewheel._operators.keyed.stateful_map import StateSpec
from tidewheel._operators.keyed.timed import TimedOperator, time_of
from tidewheel._operators.logic import Message, StatefulLogic
from tidewheel._state.timers import Timer
from tidewheel._values import Shape
from tidewheel.errors import OperatorError


@dataclass(frozen=True)
class Deduplicate(TimedOperator):
    """Let the first message of a key through, and those that come within `horizon` ns of it no more.

    With `by`, a function of the value, the messages of a key are told apart by what it returns: a str, an int or bytes.
    """

    horizon: int
    by: Callable[[Any], Any] | None = None
    kind = "deduplicate"

    def logic(self) -> DeduplicateLogic:
        return DeduplicateLogic(self.horizon, self.by)

    def spec(self) -> StateSpec:
        """Keep until when each id is known."""
        return StateSpec(dict[Any, int], dict)

    def shapes(self, inputs: tuple[Shape, ...]) -> tuple[Shape, ...]:
        return inputs


class DeduplicateLogic(StatefulLogic[dict[Any, int]]):
    """The ids of each key that were met."""

    def __init__(self, horizon: int, by: Callable[[Any], Any] | None) -> None:
        """Take what the operator was given."""
        self.horizon, self.by = horizon, by

    def on_data(self, message: Message, state: dict[Any, int], output: Any) -> dict[Any, int]:
        """Let a message through whose id is not known at its time."""
        name = "" if self.by is None else self.by(message.value)
        if isinstance(name, bool) or not isinstance(name, str | int | bytes):
            raise OperatorError(f"the id of a message is a str, an int or bytes, not {name!r}")
        time = time_of(message)
        until = state.get(name)
        if until is None or not until - 2 * self.horizon < time < until:
            state[name] = time + self.horizon
            output.set_timer(time + self.horizon)
            output.emit(message.value)
        return state

    def on_timer(self, timer: Timer, state: dict[Any, int], output: Any) -> dict[Any, int] | None:
        """Forget the ids that were known until now."""
        for name in [name for name, until in state.items() if until <= timer.time]:
            del state[name]
        return state or None
