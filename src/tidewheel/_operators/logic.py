"""What a user writes to keep state: messages in, messages out, state per key."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from datetime import datetime
from typing import Any, Generic, Protocol

import msgspec

from tidewheel._state.timers import Clock, Timer
from tidewheel._values.type_variables import Emitted, Handled, Key, LogicKey, Sent, State, Value


class Message(msgspec.Struct, Generic[Key, Value], frozen=True, gc=False):
    """One record under its key, with its timestamp where the stream has time.

    That is a datetime in UTC. Where `assign_timestamps` was given integers and their `unit=`, it is an int, ns since 1970 UTC.
    """

    key: Key
    value: Value
    time: Any = None


class Output(Protocol[Sent]):
    """Where an operator sends its messages. `Output[str]` takes values of that type."""

    @property
    def last_epoch(self) -> Any:
        """The epoch that this operator got last, None if there was none. As all times here, it is a datetime or ns."""

    @property
    def now(self) -> Any:
        """The batch's own time: the same in every task, and again if the batch runs again.

        Timers of the wall clock are set from it: `output.set_timer(output.now + delay, clock="wall")`. In an
        `OperatorTester` it is the time of the tester's clock.
        """

    def send(self, message: Message[Any, Sent]) -> None:
        """Send a message. Its key must be the input's; its time above the last epoch."""

    def emit(self, value: Sent) -> None:
        """Send a value under the key and time of the message that is being handled.

        From a timer it goes out at the timer's time; from a timer of the wall clock, just above the last epoch.
        """

    def set_timer(self, time: int | datetime, name: str = "", clock: Clock = "event") -> None:
        """Have `on_timer` called for this key: when the epoch reaches `time`, or, with `clock="wall"`, the batch's time does.

        A key may have any number of timers. Time, name and clock are what tells them apart: setting the same again
        changes nothing.
        """

    def cancel_timer(self, time: int | datetime, name: str = "", clock: Clock = "event") -> None:
        """Take back a timer of this key; one that is not set is fine."""


class StatefulLogic(Generic[State, Handled, Emitted, LogicKey]):
    """An operator with state per key: subclass it and override what you need.

    `StatefulLogic[int, Order, str]` keeps an int per key, handles orders and emits text; the type of the keys may be given
    as a fourth. Types that are left out can be anything.

    A logic is made once and sent to the tasks; keep no state in its attributes: what is not in the key's state is lost.
    """

    def on_data(self, message: Message[LogicKey, Handled], state: State, output: Output[Emitted]) -> State | None:
        """Handle one message with the state of its key; return the new state, or None to drop it.

        A key seen first, or dropped before, gets the default. Send none, one or many messages, all under the same key.
        """
        raise NotImplementedError(f"{type(self).__name__} must define on_data(message, state, output)")

    def on_epoch(self, epoch: Any, states: MutableMapping[LogicKey, State], output: Output[Emitted]) -> None:
        """Handle an epoch: no message with a timestamp up to `epoch` will come on time.

        `states` is every key's state of one shard, lazily read and mutable: set an item to change it, delete it to drop
        it. A state that is changed in place must be set again. Messages up to the epoch may still be sent.
        """

    def on_timer(self, timer: Timer, state: State, output: Output[Emitted]) -> State | None:
        """Handle a timer of a key that is due, with the key's state; return the new state, or None to drop it.

        Timers of one key come in the order of their times, after the batch's data. A timer that is set here fires in the same
        batch if it is due already, except at the end of a bounded run: there only those fire that were set before. Dropping a
        state does not cancel timers: they come with the default.
        """
        raise NotImplementedError(
            f"{type(self).__name__} sets timers, so it must define on_timer(timer, state, output)"
        )

    def on_schedule(self, states: MutableMapping[LogicKey, State], output: Output[Emitted]) -> None:
        """Do what is due now, once per shard and batch, after the batch's data."""


class FunctionLogic(StatefulLogic[Any]):
    """A plain function standing in for a logic: it handles messages, and epochs pass it by."""

    def __init__(self, function: Callable[[Message, Any, Output], Any]) -> None:
        """Take the function that becomes `on_data`."""
        self.function = function

    def on_data(self, message: Message, state: Any, output: Output) -> Any:
        return self.function(message, state, output)


def overrides(logic: StatefulLogic[Any], method: str) -> bool:
    """Tell whether the logic defines the method itself; what it does not define need not be called."""
    logic = getattr(logic, "wrapped", logic)
    return getattr(type(logic), method) is not getattr(StatefulLogic, method)
