"""OutputBuffer: checks what an operator with state sends, and holds it until all messages are handled."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from tidewheel._operators.logic import Message
from tidewheel._state.timers import Clock, Timer
from tidewheel._time.duration import in_ns, instant
from tidewheel._values import Batch, Shape
from tidewheel.errors import OperatorError

Mark = tuple[int, int, int]


class OutputBuffer:
    """An `Output` that holds what is sent, and refuses what breaks the rules for outputs."""

    def __init__(self, operator: str, last_epoch: int | None, epoch: int | None = None, now: int = 0) -> None:
        """Take the epoch that went out before, the one that this batch carries, if it is new, and the batch's time."""
        self.operator, self.last_epoch, self.now = operator, last_epoch, now
        self.epoch = last_epoch if epoch is None else epoch
        """The newest epoch: nothing from a source is behind it, only what an epoch made an earlier operator send."""
        self.keys: list[Any] = []
        self.values: list[Any] = []
        self.times: list[int | None] = []
        self.aside: list[Message] = []
        self.dropped = 0
        """How many messages were dropped on purpose."""
        self.timers: list[tuple[Timer, bool]] = []
        """Timers that were set (True) or cancelled, in order."""
        self.current: Message | None = None
        self.belongs: Callable[[Any], bool] = lambda key: False
        self.reject: Callable[[Exception, Any], None] | None = None
        """Puts a record aside, where there is a dead-letter sink."""

    def send(self, message: Message) -> None:
        """Send a message under the key that is being handled."""
        if not isinstance(message, Message):
            raise OperatorError(
                f"output.send takes a Message, not {type(message).__name__}; output.emit(value) keeps key and time"
            )
        if isinstance(message.time, datetime):
            message = Message(message.key, message.value, instant(message.time))
        current = self.current
        if current is not None:
            if message.key != current.key:
                raise OperatorError(
                    f"an output message must have its input's key {current.key!r}, but {message!r} has {message.key!r}"
                )
        elif not self.belongs(message.key):
            raise OperatorError(f"the key of {message!r} does not belong to the shard whose states were given")
        if self._too_early(message):
            raise OperatorError(
                f"the timestamp of {message!r} must be above the last epoch, {self.last_epoch}: later operators were "
                "told that nothing up to it would come"
            )
        # An equal key may be of another type, as True is to 1; the stream goes on with the one that came in.
        self._append(message.key if current is None else current.key, message.value, message.time)

    def send_result(self, time: int, function: Callable[..., Any], **values: Any) -> None:
        """Send what a function of the user makes of values that have waited in state.

        Where the function fails, these values go to the dead letters, and the message or timer that is being handled does not
        fail with them.
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
        # What a late message causes may be as late as the message itself.
        return self.current is None or self.current.time is None or message.time < self.current.time

    def emit(self, value: Any) -> None:
        """Send a value under the key and time that are being handled."""
        current = self._handled("emit", "use output.send(Message(key, value, time))")
        self._append(current.key, value, current.time)

    def set_aside(self) -> None:
        """Send the message that is being handled, unchanged, to the operator's second output."""
        self.aside.append(self._handled("set_aside", ""))

    def set_timer(self, time: int | datetime, name: str = "", clock: Clock = "event") -> None:
        """Have the key called at a time."""
        time = in_ns(time)
        if isinstance(time, bool) or not isinstance(time, int) or not -(2**63) <= time < 2**63 - 1:
            raise OperatorError(f"a timer's time is a datetime, or an int, ns since 1970 UTC, not {time!r}")
        current = self._handled("set_timer", "set timers in on_data and on_timer")
        self.timers.append((Timer(current.key, time, name, clock), True))

    def cancel_timer(self, time: int | datetime, name: str = "", clock: Clock = "event") -> None:
        """Take a timer back."""
        current = self._handled("cancel_timer", "cancel timers in on_data and on_timer")
        self.timers.append((Timer(current.key, in_ns(time), name, clock), False))

    def _handled(self, method: str, instead: str) -> Message:
        if self.current is None:
            raise OperatorError(
                f"output.{method} needs an input message; inside on_epoch and on_schedule there is none: {instead}"
            )
        return self.current

    def _append(self, key: Any, value: Any, time: int | None) -> None:
        self.keys.append(key)
        self.values.append(value)
        self.times.append(time)

    def mark(self) -> Mark:
        """Return how much was sent so far."""
        return len(self.values), len(self.aside), len(self.timers)

    def cut(self, mark: Mark) -> None:
        """Forget what was sent since the mark: the record that sent it was rejected."""
        values, aside, timers = mark
        del self.keys[values:], self.values[values:], self.times[values:], self.aside[aside:], self.timers[timers:]

    def batch(self, shape: Shape) -> Batch:
        """Return what was sent as a batch."""
        times = self.times if any(time is not None for time in self.times) else None
        return Batch(shape, keys=self.keys, values=self.values, times=times)  # type: ignore[arg-type]

    def batch_aside(self, shape: Shape) -> Batch:
        """Return what was set aside as a batch."""
        times = [message.time for message in self.aside]
        return Batch(
            shape,
            keys=[message.key for message in self.aside],
            values=[message.value for message in self.aside],
            times=times if any(time is not None for time in times) else None,
        )
