"""Convert times between a user's logic, which uses datetimes, and the engine, which uses ns."""

from __future__ import annotations

import datetime
from collections.abc import MutableMapping
from typing import Any

from tidewheel._operators.keyed.output_buffer import OutputBuffer
from tidewheel._operators.logic import Message, StatefulLogic
from tidewheel._state.timers import Clock, Timer
from tidewheel._time.duration import moment

Time = int | datetime.datetime


class DatetimeLogic(StatefulLogic[Any]):
    """A user's logic, called with datetimes."""

    def __init__(self, logic: StatefulLogic[Any]) -> None:
        """Take the logic, which `overrides` inspects."""
        self.wrapped = logic

    def on_data(self, message: Message, state: Any, output: Any) -> Any:
        return self.wrapped.on_data(with_datetime(message), state, DatetimeOutput(output))

    def on_epoch(self, epoch: int, states: MutableMapping[Any, Any], output: Any) -> None:
        self.wrapped.on_epoch(moment(epoch), states, DatetimeOutput(output))

    def on_timer(self, timer: Timer, state: Any, output: Any) -> Any:
        shown = Timer(timer.key, moment(timer.time), timer.name, timer.clock)
        return self.wrapped.on_timer(shown, state, DatetimeOutput(output))

    def on_schedule(self, states: MutableMapping[Any, Any], output: Any) -> None:
        self.wrapped.on_schedule(states, DatetimeOutput(output))


class DatetimeOutput:
    """An `Output` with times as datetimes."""

    def __init__(self, output: OutputBuffer) -> None:
        """Take the output whose times are in ns."""
        self._output = output
        self.emit = output.emit

    @property
    def last_epoch(self) -> datetime.datetime | None:
        """The last epoch that this step received."""
        return None if self._output.last_epoch is None else moment(self._output.last_epoch)

    @property
    def now(self) -> datetime.datetime:
        """The time of the batch."""
        return moment(self._output.now)

    def send(self, message: Message) -> None:
        """Send a message, whose time may be a datetime."""
        self._output.send(message)

    def set_timer(self, time: Time, name: str = "", clock: Clock = "event") -> None:
        """Set a timer of the current key."""
        self._output.set_timer(time, name, clock)

    def cancel_timer(self, time: Time, name: str = "", clock: Clock = "event") -> None:
        """Cancel a timer of the current key."""
        self._output.cancel_timer(time, name, clock)


def with_datetime(message: Message) -> Message:
    """Return a message with its time as a datetime."""
    return message if message.time is None else Message(message.key, message.value, moment(message.time))
