"""The classes that a user's stateful code works with: messages, outputs and logics."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from datetime import datetime
from typing import Any, ClassVar, Generic, Protocol

import msgspec

from tidewheel._state.timers import Clock, Timer
from tidewheel._values.type_variables import Emitted, Handled, Key, LogicKey, Sent, State, Value


class Message(msgspec.Struct, Generic[Key, Value], frozen=True, gc=False):
    """One record with its key and, on a stream with timestamps, its time.

    The time is a datetime in UTC. If the times are integers with a `unit=`, it is an int: ns since 1970 UTC.
    """

    key: Key
    value: Value
    time: Any = None


class Output(Protocol[Sent]):
    """The output of a `StatefulLogic`. `Output[str]` accepts values of that type."""

    @property
    def last_epoch(self) -> Any:
        """The last epoch that this step received, or None. Like all times here, it is a datetime, or an int in ns."""

    @property
    def now(self) -> Any:
        """The time of the batch. It is the same in every task, and stays the same if the batch runs again.

        Use it for wall-clock timers: `output.set_timer(output.now + delay, clock="wall")`. In a `StepTester` it is
        the time of the tester's clock.
        """

    def send(self, message: Message[Any, Sent]) -> None:
        """Send a message. Its key must be that of the input message, and its time must be after the last epoch."""

    def emit(self, value: Sent) -> None:
        """Send a value with the key and the time of the current message.

        In `on_timer`, the value gets the time of the timer or, for a wall-clock timer, a time just after the last epoch.
        """

    def set_timer(self, time: int | datetime, name: str = "", clock: Clock = "event") -> None:
        """Call `on_timer` for this key when the epoch or, with `clock="wall"`, the time of the batch reaches `time`.

        A key can have any number of timers, identified by time, name and clock. Setting a timer twice has no effect.
        """

    def cancel_timer(self, time: int | datetime, name: str = "", clock: Clock = "event") -> None:
        """Cancel a timer of this key. Cancelling a timer that is not set has no effect."""


class StatefulLogic(Generic[State, Handled, Emitted, LogicKey]):
    """The code of a `stateful_op`: subclass it and override the methods that you need.

    `StatefulLogic[int, Order, str]` keeps an int per key, receives orders and emits text; a fourth type is that of the
    keys. Omitted types can be anything.

    Keep no state in attributes: the instance is created once and copied to the tasks, and only the state of the keys is
    stored.
    """

    _calls_last_timer_only: ClassVar[bool] = False
    """Whether one call of `on_timer` handles all due timers of a key, so that only the last one is called."""
    _all_or_nothing: ClassVar[bool] = False
    """Whether a failing message leaves the state unchanged, and every state can be stored, so that no copy is needed."""

    def on_data(self, message: Message[LogicKey, Handled], state: State, output: Output[Emitted]) -> State | None:
        """Handle one message with the state of its key; return the new state, or None to delete it.

        A key without state gets the default. You can send any number of messages, all with the same key.
        """
        raise NotImplementedError(f"{type(self).__name__} must define on_data(message, state, output)")

    def on_epoch(self, epoch: Any, states: MutableMapping[LogicKey, State], output: Output[Emitted]) -> None:
        """Handle an epoch: from now on, messages with a timestamp up to `epoch` are late.

        `states` maps the keys of one shard to their states. The mapping reads states lazily; set an item to change a state,
        delete the item to delete the state. If you change a state in place, set it again. You can still send messages with
        times up to the epoch.
        """

    def on_timer(self, timer: Timer, state: State, output: Output[Emitted]) -> State | None:
        """Handle a due timer with the state of its key; return the new state, or None to delete it.

        The timers of a key fire in the order of their times, after the data of the batch. A timer that you set here and
        that is already due fires in the same batch, but not at the end of a bounded run. Deleting a state does not cancel
        timers: they fire with the default state.
        """
        raise NotImplementedError(
            f"{type(self).__name__} sets timers, so it must define on_timer(timer, state, output)"
        )

    def on_schedule(self, states: MutableMapping[LogicKey, State], output: Output[Emitted]) -> None:
        """Do periodic work, once per shard and batch, after the data of the batch."""


class FunctionLogic(StatefulLogic[Any]):
    """A logic that consists of one function, which handles messages and ignores epochs."""

    def __init__(self, function: Callable[[Message, Any, Output], Any]) -> None:
        """Take the function that becomes `on_data`."""
        self.function = function

    def on_data(self, message: Message, state: Any, output: Output) -> Any:
        return self.function(message, state, output)


def overrides(logic: StatefulLogic[Any], method: str) -> bool:
    """Return whether the logic overrides the method. Methods that it does not override need not be called."""
    logic = getattr(logic, "wrapped", logic)
    return getattr(type(logic), method) is not getattr(StatefulLogic, method)
