"""stateful_op: any number of messages out, epochs and schedules, with a state per key."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from typing import Any

from tidewheel.errors import OperatorError
from tidewheel.keys import shard_of
from tidewheel.logic import FunctionLogic, Message, StatefulLogic, overrides
from tidewheel.operators.base import Context, Operator, Process
from tidewheel.operators.gather import Gathered
from tidewheel.operators.stateful_map import StateSpec
from tidewheel.values import Batch, Shape, shape_of


@dataclass(frozen=True)
class StatefulOp(Operator):
    """Run a `StatefulLogic`, or a plain function `(message, state, output) -> new state` in its place."""

    logic: StatefulLogic[Any]
    state: StateSpec
    returns: Any = None
    kind = "stateful_op"
    stateful = True

    def start(self, context: Context) -> Process:
        """Start in a task."""
        return _Running(self, context)

    def shapes(self, inputs: tuple[Shape, ...]) -> tuple[Shape, ...]:
        """Take the declared type."""
        return (shape_of(self.returns),)

    @property
    def driven_by_time(self) -> bool:
        """Whether the logic handles epochs or schedules."""
        return overrides(self.logic, "on_epoch") or overrides(self.logic, "on_schedule")

    @property
    def codec_name(self) -> str:
        """The codec of its state."""
        return self.state.resolved_codec().name


def as_logic(logic: StatefulLogic[Any] | Callable[..., Any]) -> StatefulLogic[Any]:
    """Return the logic, or the function dressed as one."""
    return logic if isinstance(logic, StatefulLogic) else FunctionLogic(logic)


class _Collected:
    """An `Output` that collects, and refuses what breaks the rules for outputs."""

    def __init__(self, operator: str, last_epoch: int | None) -> None:
        self.operator, self.last_epoch = operator, last_epoch
        self.keys: list[Any] = []
        self.values: list[Any] = []
        self.times: list[int | None] = []
        self.current: Message | None = None
        self.belongs: Callable[[Any], bool] = lambda key: False

    def send(self, message: Message) -> None:
        if not isinstance(message, Message):
            raise OperatorError(
                f"output.send takes a Message, not {type(message).__name__}; output.emit(value) keeps key and time"
            )
        if self.current is not None:
            if message.key != self.current.key:
                raise OperatorError(
                    f"an output message must have its input's key {self.current.key!r}, but {message!r} has {message.key!r}"
                )
        elif not self.belongs(message.key):
            raise OperatorError(f"the key of {message!r} does not belong to the shard whose states were given")
        if message.time is not None and self.last_epoch is not None and message.time <= self.last_epoch:
            raise OperatorError(
                f"the timestamp of {message!r} must be above the last epoch, {self.last_epoch}: later operators were "
                "told that nothing up to it would come"
            )
        # An equal key may be of another type, as True is to 1; the stream goes on with the one that came in.
        self._append(message.key if self.current is None else self.current.key, message.value, message.time)

    def emit(self, value: Any) -> None:
        if self.current is None:
            raise OperatorError(
                "output.emit needs an input message; inside on_epoch and on_schedule use output.send(Message(key, value, time))"
            )
        self._append(self.current.key, value, self.current.time)

    def _append(self, key: Any, value: Any, time: int | None) -> None:
        self.keys.append(key)
        self.values.append(value)
        self.times.append(time)

    def mark(self) -> int:
        return len(self.values)

    def cut(self, mark: int) -> None:
        """Forget what was sent since the mark: the record that sent it was rejected."""
        del self.keys[mark:], self.values[mark:], self.times[mark:]


class _Running(Process):
    def __init__(self, operator: StatefulOp, context: Context) -> None:
        self.logic, self.context = operator.logic, context
        self.codec = operator.state.resolved_codec()
        self.state = context.state(self.codec, operator.state.factory())
        self.gathered = Gathered()

    def on_batch(self, batch: Batch, port: int) -> None:
        self.gathered.add(batch, self._process)

    def on_end_of_data(self) -> None:
        self.gathered.finish(self._process)

    def _process(self, batch: Batch) -> None:
        output = _Collected(self.context.operator, self.context.last_epoch)
        opened = self.state.open(batch.keys_made, batch.key_column)
        times: Iterable[int | None] = batch.times or repeat(None, len(batch))
        keys, states, default, on_data = opened.keys, opened.states, self.state.default, self.logic.on_data
        careful = self.context.keeps_rejected()
        for position, (at, value, time) in enumerate(zip(opened.which, batch.values, times, strict=True)):
            message = output.current = Message(keys[at], value, time)
            state = states[at]
            mark, before = (
                (output.mark(), None if state is None else self.codec.encode(state)) if careful else (0, None)
            )
            try:
                states[at] = on_data(message, default() if state is None else state, output)
            except Exception as error:
                self.context.reject(error, batch, position)
                output.cut(mark)
                states[at] = None if before is None else self.codec.decode(before)
        output.current = None
        self.state.keep(opened)
        self._send(output)

    def on_schedule(self) -> None:
        if overrides(self.logic, "on_schedule"):
            self._whole_shards(lambda states, output: self.logic.on_schedule(states, output), self.context.last_epoch)

    def on_epoch(self, epoch: int) -> None:
        if overrides(self.logic, "on_epoch"):
            # Up to the epoch is allowed here, since it goes out after what is sent now.
            self._whole_shards(
                lambda states, output: self.logic.on_epoch(epoch, states, output), self.context.last_epoch
            )

    def _whole_shards(self, handle: Callable[[Any, _Collected], None], last_epoch: int | None) -> None:
        for shard in self.context.shards():
            output = _Collected(self.context.operator, last_epoch)
            output.belongs = partial(self._belongs, shard)
            try:
                handle(self.state.shard(shard), output)
            except Exception as error:
                raise OperatorError(
                    f"operator {self.context.operator!r}, shard {shard}: {type(error).__name__}: {error}"
                ) from error
            self._send(output)

    def _belongs(self, shard: int, key: Any) -> bool:
        return shard_of(key, self.state.n_shards) == shard

    def _send(self, output: _Collected) -> None:
        if output.values:
            times = output.times if any(time is not None for time in output.times) else None
            shape = self.context.shapes[0]
            self.context.emit(Batch(shape, keys=output.keys, values=output.values, times=times))  # type: ignore[arg-type]
