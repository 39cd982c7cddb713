"""stateful_op: any number of messages out, epochs, schedules and timers, with a state per key."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from typing import Any

from tidewheel._core.keys import shard_of
from tidewheel._core.user_code import described
from tidewheel._operators.base import Context, Conversion, Operator, Process, readable
from tidewheel._operators.keyed.datetimes import DatetimeLogic
from tidewheel._operators.keyed.message_buffer import MessageBuffer
from tidewheel._operators.keyed.output_buffer import OutputBuffer
from tidewheel._operators.keyed.refused_state import keep_states
from tidewheel._operators.keyed.state_spec import StateSpec
from tidewheel._operators.keyed.timer_service import TimerService
from tidewheel._operators.keyed.ttl import Ttl, TtlProcess, check_times, conversion_to, layout_of, waits_of
from tidewheel._operators.logic import FunctionLogic, Message, StatefulLogic, overrides
from tidewheel._state.layout import StateLayout
from tidewheel._state.segments import UNREADABLE
from tidewheel._values import ANY, Batch, Shape, shape_of
from tidewheel.errors import StepError

Handler = Callable[[Message, Any, Any], Any]


@dataclass(frozen=True)
class StatefulOp(Operator):
    """Run a `StatefulLogic`, or a plain function `(message, state, output) -> new state` in its place."""

    logic: StatefulLogic[Any]
    state: StateSpec
    returns: Any = None
    ttl: Ttl | None = None
    kind = "stateful_op"
    stateful = True
    order_matters = True

    def start(self, context: Context) -> Process:
        logic = DatetimeLogic(self.logic) if context.timestamps else self.logic
        process = LogicProcess(logic, (logic.on_data,), self.state, context)
        return process if self.ttl is None else TtlProcess(process, process.state, self.ttl, context)

    def shapes(self, inputs: tuple[Shape, ...]) -> tuple[Shape, ...]:
        return (shape_of(self.returns),)

    def timed(self, inputs: tuple[bool | None, ...]) -> bool | None:
        check_times(self.ttl, inputs)
        # A logic can send messages with its own timestamps, or without any.
        return None

    @property
    def waits_for_epochs(self) -> str:
        return waits_of(self.ttl)

    @property
    def wants_epochs(self) -> str:
        # Whether timers use the wall clock is known only during a run.
        return "its on_epoch is never called" if overrides(self.logic, "on_epoch") else ""

    @property
    def driven_by_time(self) -> bool:
        """Whether the logic handles epochs, schedules or timers, or its state expires."""
        return self.ttl is not None or any(
            overrides(self.logic, method) for method in ("on_epoch", "on_schedule", "on_timer")
        )

    @property
    def state_layout(self) -> StateLayout:
        return layout_of(self.ttl)

    def conversion(self, layout: StateLayout) -> Conversion | None:
        return conversion_to(self.ttl, layout)

    @property
    def kept(self) -> Mapping[str, StateSpec]:
        return {"": self.state}

    @property
    def codec_name(self) -> str:
        return self.state.resolved_codec().name


def as_logic(logic: StatefulLogic[Any] | Callable[..., Any]) -> StatefulLogic[Any]:
    """Return the logic, or a logic that wraps the function."""
    return logic if isinstance(logic, StatefulLogic) else FunctionLogic(logic)


class LogicProcess(Process):
    """Run a logic: one handler for each input port, and its timers."""

    def __init__(
        self, logic: StatefulLogic[Any], handlers: tuple[Handler, ...], state: StateSpec, context: Context
    ) -> None:
        """Open the state and, if the logic uses timers, the timers."""
        self.logic, self.handlers, self.context = logic, handlers, context
        self.codec = state.resolved_codec()
        self.state = context.state(self.codec, state.factory())
        self.messages = [MessageBuffer() for _ in handlers]
        self.timer_service = TimerService(logic, self.state, context) if overrides(logic, "on_timer") else None

    def on_batch(self, batch: Batch, port: int) -> None:
        self.messages[port].add(batch, partial(self._process, self.handlers[port]))

    def on_end_of_data(self) -> None:
        for messages, handler in zip(self.messages, self.handlers, strict=True):
            messages.finish(partial(self._process, handler))

    def _process(self, handle: Handler, batch: Batch) -> None:
        output = self._output()
        batch = readable(self.context, batch)
        key_batch = self.state.open(batch.keys_made, batch.key_data)
        times: Iterable[int | None] = batch.times or repeat(None, len(batch))
        keys, states, default = key_batch.keys, key_batch.states, self.state.default
        rejects = self.context.keeps_rejected()
        careful = rejects and not self.logic._all_or_nothing
        for position, (at, value, time) in enumerate(zip(key_batch.places(), batch.values, times, strict=True)):
            message = output.current = Message(keys[at], value, time)
            state = states[at]
            mark = output.mark() if rejects else (0, 0, 0)
            before = self.codec.encode(state) if careful and state is not None else None
            try:
                new = handle(message, default() if state is None else state, output)
                if careful and new is not None:
                    self.codec.encode(new)
                states[at] = new
            except UNREADABLE:
                # Segments are read on demand, so an error here is not the fault of a message, and no message may be
                # rejected.
                raise
            except Exception as error:
                self.context.reject(error, batch, position)
                output.cut(mark)
                if careful:
                    states[at] = None if before is None else self.state.made_again(message.key, before)
        output.current = None
        keep_states(
            self.state, key_batch, key_batch.places, batch, self.context, partial(self._handle_again, handle, batch)
        )
        if output.timers:
            self._timers().apply(output.timers)
        self._send(output)
        if output.dropped:
            self.context.count("dropped", output.dropped)
        if output.aside:
            self.context.count("late", len(output.aside))
            self.context.emit(output.batch_aside(self.context.shapes[1]), 1)

    def _handle_again(self, handle: Handler, batch: Batch, position: int, state: Any) -> Any:
        """Return the state after a message, and discard its output."""
        output = self._output()
        time = None if batch.times is None else batch.times[position]
        output.current = Message(batch.keys[position], batch.values[position], time)
        return handle(output.current, state, output)

    def _timers(self) -> TimerService:
        if self.timer_service is None:
            raise StepError(
                f"step {self.context.operator!r} sets timers, so its logic must define on_timer(timer, state, output)"
            )
        return self.timer_service

    def on_schedule(self) -> None:
        """Call `on_schedule` of the logic, and fire the timers that are due."""
        if overrides(self.logic, "on_schedule"):
            self._whole_shards(lambda states, output: self.logic.on_schedule(states, output))
        if self.timer_service is not None:
            self._send(self.timer_service.on_schedule(self._output()))

    def on_epoch(self, epoch: int) -> None:
        """Fire the timers that the epoch reaches, then call `on_epoch` of the logic."""
        if self.timer_service is not None:
            self._send(self.timer_service.on_epoch(epoch, self._output()))
        if overrides(self.logic, "on_epoch"):
            # Times up to the epoch are allowed here, because the epoch is sent after these messages.
            self._whole_shards(lambda states, output: self.logic.on_epoch(epoch, states, output))

    def _whole_shards(self, handle: Callable[[Any, OutputBuffer], None]) -> None:
        for shard in self.context.all_shards():
            output = self._output()
            output.belongs = partial(self._belongs, shard)
            try:
                handle(self.state.shard(shard), output)
            except Exception as error:
                self.context.check_transient(error)
                raise StepError(f"step {self.context.operator!r}, shard {shard}: {described(error)}") from error
            self._send(output)

    def _belongs(self, shard: int, key: Any) -> bool:
        return shard_of(key, self.state.n_shards) == shard

    def _output(self) -> OutputBuffer:
        output = OutputBuffer(self.context.operator, self.context.last_epoch, self.context.epoch, self.context.now)
        if self.context.keeps_rejected():
            output.reject = partial(self._reject, output)
        return output

    def _reject(self, output: OutputBuffer, error: Exception, record: Any) -> None:
        keys = None if output.current is None else [output.current.key]
        self.context.reject(error, Batch(ANY, values=[record], keys=keys), 0)

    def _send(self, output: OutputBuffer) -> None:
        if output.values:
            self.context.emit(output.batch(self.context.shapes[0]))
