"""deduplicate: the first message of each id, within a horizon."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import pyarrow as pa

from tidewheel._operators.base import Operator
from tidewheel._operators.field_getter import check_field
from tidewheel._operators.keyed.known_ids import KnownIds, KnownIdsCodec
from tidewheel._operators.keyed.state_spec import StateSpec
from tidewheel._operators.keyed.timed import TimedOperator, time_of
from tidewheel._operators.logic import Message, StatefulLogic
from tidewheel._state.layout import IDS, StateLayout
from tidewheel._state.timers import NEVER, Timer
from tidewheel._values import Shape
from tidewheel.errors import StepError

_encode = msgspec.msgpack.Encoder().encode


@dataclass(frozen=True)
class Deduplicate(TimedOperator):
    """Drop a message if an earlier message of the same key, less than `horizon` ns away in time, was passed on.

    With `by`, a function of the value that returns a str, an int or bytes, messages of a key are duplicates only if the
    results are equal. Dropped messages are counted.
    """

    horizon: int
    by: Callable[[Any], Any] | None = None
    began_with: int | None = None
    """The horizon with which the state was created, if it differs. Stored times are that long after their messages."""
    kind = "deduplicate"
    needs_time = True
    wants_epochs = "the ids of its messages are kept forever"

    @property
    def _stored_after(self) -> int:
        return self.horizon if self.began_with is None else self.began_with

    @property
    def state_layout(self) -> StateLayout:
        """The horizon that is included in the stored times of the ids."""
        return StateLayout(IDS, after=self._stored_after)

    def takes(self, layout: StateLayout) -> bool:
        """Accept state from versions that did not record the horizon."""
        return layout == super().state_layout

    def continuing(self, layout: StateLayout) -> Operator | None:
        return None if layout.after is None else replace(self, began_with=layout.after)

    def logic(self, timestamps: bool = False) -> DeduplicateLogic:
        return DeduplicateLogic(self.horizon, self.by, self._stored_after)

    def spec(self) -> StateSpec:
        return StateSpec(default=KnownIds, codec=KnownIdsCodec())

    def check(self, inputs: tuple[Shape, ...]) -> None:
        check_field(self.by, inputs[0])

    def shapes(self, inputs: tuple[Shape, ...]) -> tuple[Shape, ...]:
        return inputs

    def schemas(self, inputs: tuple[pa.Schema | None, ...]) -> tuple[pa.Schema | None, ...]:
        return inputs


class DeduplicateLogic(StatefulLogic[KnownIds]):
    """The known ids of each key. An id is known for one horizon after its message was passed on."""

    _calls_last_timer_only = True
    _all_or_nothing = True

    def __init__(self, horizon: int, by: Callable[[Any], Any] | None, stored_after: int) -> None:
        self.horizon, self.by, self.stored_after = horizon, by, stored_after
        self._ahead = stored_after - horizon
        """The difference between the stored time of an id and the time until which the id is known."""

    def on_data(self, message: Message, state: KnownIds, output: Any) -> KnownIds:
        """Pass on a message if its id is not known at its time."""
        name = "" if self.by is None else self.by(message.value)
        if isinstance(name, bool) or not isinstance(name, str | int | bytes):
            raise StepError(f"the id of a message must be a str, an int or bytes, not {name!r}")
        try:
            _encode(name)
        except (OverflowError, UnicodeEncodeError) as error:
            raise StepError(f"the id {name!r} of a message cannot be stored: {error}") from None
        time = time_of(message)
        epoch = None if output.last_epoch is None else output.last_epoch + self._ahead
        stored = time + self.stored_after
        if stored >= NEVER:
            raise StepError(f"the timestamp {time} is too late for a horizon; timestamps are in ns")
        if not any(abs(other - stored) < self.horizon for other in state.until(name, epoch)):
            # An older message must not shorten the time for which a newer one is known.
            output.set_timer(time + self.horizon)
            state.add(name, stored, epoch)
            output.emit(message.value)
        else:
            output.dropped += 1
        return state

    def on_timer(self, timer: Timer, state: KnownIds, output: Any) -> KnownIds | None:
        """Forget the ids whose horizon has passed."""
        state.forget(timer.time + self._ahead)
        if state and self._ahead:
            # A program with a shorter horizon may have set the timers.
            output.set_timer(state.latest() - self._ahead)
        return state or None
