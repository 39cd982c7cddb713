"""OutputBuffer: check and hold the output of a stateful step until all messages are handled."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from tidewheel._operators.logic import Message
from tidewheel._state.timers import Clock, Timer
from tidewheel._time.duration import in_ns, instant
from tidewheel._values import Batch, Shape
from tidewheel.errors import StepError

Mark = tuple[int, int, int]


class OutputBuffer:
    """An `Output` that holds messages, and rejects messages that break the rules for outputs."""

    def __init__(self, operator: str, last_epoch: int | None, epoch: int | None = None, now: int = 0) -> None:
        """Take the previous epoch, the epoch of this batch if it is new, and the time of the batch."""
        self.operator, self.last_epoch, self.now = operator, last_epoch, now
        self.epoch = last_epoch if epoch is None else epoch
        """The newest epoch. Messages from sources are after it; messages that an epoch triggered may be before it."""
        self.keys: list[Any] = []
        self.values: list[Any] = []
        self.times: list[int | None] = []
        self.aside: list[Message] = []
        self.dropped = 0
        """The number of messages that were dropped on purpose."""
        self.timers: list[tuple[Timer, bool]] = []
        """Timers that were set (True) or cancelled, in order."""
        self.current: Message | None = None
        self.belongs: Callable[[Any], bool] = lambda key: False
        self.reject: Callable[[Exception, Any], None] | None = None
        """Rejects a record, if there is a dead-letter sink."""

    def send(self, message: Message) -> None:
        """Send a message with the current key."""
        if not isinstance(message, Message):
            raise StepError(
                f"output.send takes a Message, not {type(message).__name__}; output.emit(value) keeps key and time"
            )
        if isinstance(message.time, datetime):
            message = Message(message.key, message.value, instant(message.time))
        current = self.current
        if current is not None:
            if message.key != current.key:
                raise StepError(
                    f"an output message must have the key of its input, {current.key!r}, but {message!r} has "
                    f"{message.key!r}"
                )
        elif not self.belongs(message.key):
            raise StepError(f"the key of {message!r} does not belong to the shard whose states are in `states`")
        if self._too_early(message):
            raise StepError(
                f"the timestamp of {message!r} must be after the last epoch, {self.last_epoch}: that epoch promised "
                "the next "
                "steps that no earlier message would come"
            )
        # An equal key may have another type, such as True and 1; the stream keeps the key of the input.
        self._append(message.key if current is None else current.key, message.value, message.time)

    def send_result(self, time: int | None, function: Callable[..., Any], **values: Any) -> None:
        """Call a function of the user with values from the state, and send the result.

        If the function fails, these values go to the dead letters, and the current message or timer does not fail.
        """
        current = self._handled("send_result", "")
        try:
            value = function(*values.values())
        except Exception as error:
            if self.reject is None:
                raise
            self.reject(error, values)
        else:
            self.send(Message(current.key, value, time))

    def _too_early(self, message: Message) -> bool:
        if message.time is None or self.last_epoch is None or message.time > self.last_epoch:
            return False
        # The output of a late message may be as late as the message itself.
        return self.current is None or self.current.time is None or message.time < self.current.time

    def emit(self, value: Any) -> None:
        """Send a value with the current key and time."""
        current = self._handled("emit", "use output.send(Message(key, value, time))")
        self._append(current.key, value, current.time)

    def set_aside(self) -> None:
        """Send the current message, unchanged, to the second output of the step."""
        self.aside.append(self._handled("set_aside", ""))

    def set_timer(self, time: int | datetime, name: str = "", clock: Clock = "event") -> None:
        """Set a timer of the current key."""
        time = in_ns(time)
        if isinstance(time, bool) or not isinstance(time, int) or not -(2**63) <= time < 2**63 - 1:
            raise StepError(f"the time of a timer must be a datetime or an int (ns since 1970 UTC), not {time!r}")
        current = self._handled("set_timer", "set timers in on_data and on_timer")
        self.timers.append((Timer(current.key, time, name, clock), True))

    def cancel_timer(self, time: int | datetime, name: str = "", clock: Clock = "event") -> None:
        """Cancel a timer of the current key."""
        current = self._handled("cancel_timer", "cancel timers in on_data and on_timer")
        self.timers.append((Timer(current.key, in_ns(time), name, clock), False))

    def _handled(self, method: str, instead: str) -> Message:
        if self.current is None:
            raise StepError(
                f"output.{method} needs a current message, which on_epoch and on_schedule do not have: {instead}"
            )
        return self.current

    def _append(self, key: Any, value: Any, time: int | None) -> None:
        self.keys.append(key)
        self.values.append(value)
        self.times.append(time)

    def mark(self) -> Mark:
        """Return a position in the output, for `cut`."""
        return len(self.values), len(self.aside), len(self.timers)

    def cut(self, mark: Mark) -> None:
        """Discard the output since the mark, because the record that caused it was rejected."""
        values, aside, timers = mark
        del self.keys[values:], self.values[values:], self.times[values:], self.aside[aside:], self.timers[timers:]

    def batch(self, shape: Shape) -> Batch:
        """Return the sent messages as a batch."""
        times = self.times if any(time is not None for time in self.times) else None
        return Batch(shape, keys=self.keys, values=self.values, times=times)  # type: ignore[arg-type]

    def batch_aside(self, shape: Shape) -> Batch:
        """Return the messages for the second output as a batch."""
        times = [message.time for message in self.aside]
        return Batch(
            shape,
            keys=[message.key for message in self.aside],
            values=[message.value for message in self.aside],
            times=times if any(time is not None for time in times) else None,
        )
