"""The base of steps that wait for event time: a logic with timers, and one handler for each input."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from tidewheel._operators.base import Context, Operator, Process
from tidewheel._operators.keyed.output_buffer import OutputBuffer
from tidewheel._operators.keyed.state_spec import StateSpec
from tidewheel._operators.keyed.stateful_op import Handler, LogicProcess
from tidewheel._operators.logic import Message, StatefulLogic
from tidewheel._state.layout import StateLayout
from tidewheel.errors import StepError

LATE = 1
"""The output of messages that are too late for the step, if it has one."""
NO_WINDOW_CLOSES = "no window closes, and nothing is emitted,"
"""The consequence of missing epochs for windows, for warnings."""


class TimedOperator(Operator):
    """A step with a built-in logic, configured by functions and durations."""

    stateful = True

    @abstractmethod
    def logic(self, timestamps: bool = False) -> StatefulLogic[Any]:
        """Return the logic; `timestamps` is True if users see times as datetimes."""

    @abstractmethod
    def spec(self) -> StateSpec:
        """Return the description of its state."""

    def handlers(self, logic: Any) -> tuple[Handler, ...]:
        """Return the handler of each input."""
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
    def state_layout(self) -> StateLayout:
        """Each kind of timed step has its own layout."""
        return StateLayout(self.kind.replace("_", " "))


def time_of(message: Message) -> int:
    """Return the timestamp of a message, which it must have."""
    if message.time is None:
        raise StepError("the message has no timestamp; add event_time before this step")
    time: int = message.time
    return time


def allowed(time: int, output: OutputBuffer) -> int:
    """Return the time or, if the last epoch has passed it, the first time after that epoch."""
    return time if output.last_epoch is None else max(time, output.last_epoch + 1)
