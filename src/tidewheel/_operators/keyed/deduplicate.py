"""deduplicate: the first message of each id, within a horizon."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tidewheel._operators.keyed.catch_up_logic import CatchUpLogic
from tidewheel._operators.keyed.known_ids import KnownIds, KnownIdsCodec
from tidewheel._operators.keyed.stateful_map import StateSpec
from tidewheel._operators.keyed.timed import TimedOperator, time_of
from tidewheel._operators.logic import Message
from tidewheel._state.timers import Timer
from tidewheel._values import Shape
from tidewheel.errors import OperatorError


@dataclass(frozen=True)
class Deduplicate(TimedOperator):
    """Drop a message if one of the same key, less than `horizon` ns away in time, was let through before.

    With `by`, a function of the value, the messages of a key are told apart by what it returns: a str, an int or bytes.
    """

    horizon: int
    by: Callable[[Any], Any] | None = None
    kind = "deduplicate"
    needs_time = True

    def logic(self, timestamps: bool = False) -> DeduplicateLogic:
        return DeduplicateLogic(self.horizon, self.by)

    def spec(self) -> StateSpec:
        return StateSpec(default=KnownIds, codec=KnownIdsCodec())

    def shapes(self, inputs: tuple[Shape, ...]) -> tuple[Shape, ...]:
        return inputs

    def schemas(self, inputs: tuple[pa.Schema | None, ...]) -> tuple[pa.Schema | None, ...]:
        return inputs


class DeduplicateLogic(CatchUpLogic[KnownIds]):
    """The ids of each key that are known: a horizon after each message that was let through."""

    def __init__(self, horizon: int, by: Callable[[Any], Any] | None) -> None:
        self.horizon, self.by = horizon, by

    def on_data(self, message: Message, state: KnownIds, output: Any) -> KnownIds:
        """Let a message through whose id is not known at its time."""
        name = "" if self.by is None else self.by(message.value)
        if isinstance(name, bool) or not isinstance(name, str | int | bytes):
            raise OperatorError(f"the id of a message is a str, an int or bytes, not {name!r}")
        time, epoch = time_of(message), output.last_epoch
        if not any(until - 2 * self.horizon < time < until for until in state.until(name, epoch)):
            until = time + self.horizon
            # An older message does not make the operator forget the newer one.
            state.add(name, until, epoch)
            output.set_timer(until)
            output.emit(message.value)
        return state

    def on_timer(self, timer: Timer, state: KnownIds, output: Any) -> KnownIds | None:
        """Forget the ids whose horizon has passed."""
        state.forget(timer.time)
        return state or None
