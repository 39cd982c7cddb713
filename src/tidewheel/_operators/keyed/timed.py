"""What operators that wait for time have in common: a logic with timers, one handler for each input."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from tidewheel._operators.base import Context, Operator, Process
from tidewheel._operators.keyed.output_buffer import OutputBuffer
from tidewheel._operators.keyed.state_spec import StateSpec
from tidewheel._operators.keyed.stateful_op import Handler, LogicProcess
from tidewheel._operators.logic import Message, StatefulLogic
from tidewheel.errors import OperatorError

LATE = 1
"""The output of messages that came too late for the operator, where it has one."""
NO_WINDOW_CLOSES = "no window closes, and nothing comes out,"
"""What does not happen to windows where no epoch ever comes."""


class TimedOperator(Operator):
    """An operator whose logic is ours: the user gives functions and durations."""

    stateful = True

    @abstractmethod
    def logic(self, timestamps: bool = False) -> StatefulLogic[Any]:
        """Return the logic; `timestamps` says whether users see times as datetimes."""

    @abstractmethod
    def spec(self) -> StateSpec:
        """Return how its state begins and how it is stored."""

    def handlers(self, logic: Any) -> tuple[Handler, ...]:
        """Return what handles the messages of each input."""
        return (logic.on_data,)

    def start(self, context: Context) -> Process:
        logic = self.logic(context.timestamps)
        return LogicProcess(logic, self.handlers(logic), self.spec(), context)

    @property
    def driven_by_time(self) -> bool:
        return True

    @property
    def codec_name(self) -> str:
        return self.spec().resolved_codec().name

    @property
    def state_layout(self) -> str:
        """Each kind of timed operator has its own layout."""
        return self.kind.replace("_", " ")


def time_of(message: Message) -> int:
    """Return the timestamp of a message, which it must have."""
    if message.time is None:
        raise OperatorError("the message has no timestamp; put assign_timestamps and generate_epochs before it")
    time: int = message.time
    return time


def allowed(time: int, output: OutputBuffer) -> int:
    """Return the time; if the last epoch has passed it, the first time after that epoch."""
    return time if output.last_epoch is None else max(time, output.last_epoch + 1)
