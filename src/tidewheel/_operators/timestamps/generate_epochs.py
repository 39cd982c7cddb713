"""generate_epochs, limit_out_of_orderness: advance the clock, and separate late messages."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import pyarrow as pa

from tidewheel._core.text import shortened, valid
from tidewheel._operators.accepted import accepted
from tidewheel._operators.base import Context, Operator, Process, Reads, each, readable, without
from tidewheel._operators.keyed.key_by import column_of
from tidewheel._operators.logic import Message
from tidewheel._time.duration import MAX_TIME, in_ns, moment
from tidewheel._time.frontier import Input
from tidewheel._values import Batch, Shape
from tidewheel.errors import StepError

ON_TIME, LATE = 0, 1
_LONGEST = 256
"""The maximum number of characters in the name of a partition."""


@dataclass(frozen=True)
class GenerateEpochs(Operator):
    """Advance the job's clock, and separate late messages from those that are on time.

    Either `bound` says how far a message may be behind the latest one, or `function(message, last_epoch)` returns an epoch
    or None. The commit merges the epochs of all tasks; the merged epoch is sent with the next batch, and a message of that
    batch is late if its timestamp is not after the epoch.
    """

    function: Callable[[Message, Any], Any] | None
    bound: int
    idle_after: int | None
    partition: str | Callable[[Any], Any] | None = None
    advance_after: int | None = None
    max_ahead: int | None = None
    """How far a timestamp may be after the time of the batch, in ns; messages further ahead go to the late output."""
    kind = "generate_epochs"
    ports = 2
    output_names = ("on time", "late")
    needs_time = True

    @property
    def step(self) -> str:
        return self.kind if self.function is not None else "limit_out_of_orderness"

    def start(self, context: Context) -> Process:
        return _Generating(self, context)

    def shapes(self, inputs: tuple[Shape, ...]) -> tuple[Shape, ...]:
        return (inputs[0], inputs[0])

    def schemas(self, inputs: tuple[pa.Schema | None, ...]) -> tuple[pa.Schema | None, ...]:
        return (inputs[0], inputs[0])

    def reads(self) -> Reads | None:
        if self.function is not None or callable(self.partition):
            return None
        return Reads(() if self.partition is None else (self.partition,), (ON_TIME, LATE))

    def input(self, name: str) -> Input:
        return Input(name, self.idle_after, self.advance_after, whole=self.partition is None)


class _Generating(Process):
    def __init__(self, operator: GenerateEpochs, context: Context) -> None:
        self.operator, self.context = operator, context
        self.last = context.clock()

    def on_batch(self, batch: Batch, port: int) -> None:
        if batch.times is None:
            raise StepError(
                f"step {self.context.operator!r}: the messages have no timestamps; add assign_timestamps before it"
            )
        batch = self._without_ahead(batch, batch.times)
        if self.operator.function is not None:
            batch = readable(self.context, batch)
        batch, inputs = self._inputs(batch)
        if not len(batch):
            return
        assert batch.times is not None
        self._report_epochs(batch, batch.times, inputs)
        if self.last is None or min(batch.times) > self.last:
            self.context.emit(batch, ON_TIME)
            return
        last = self.last
        late = [position for position, time in enumerate(batch.times) if time <= last]
        self.context.count("late", len(late))
        self.context.emit(batch.take([position for position, time in enumerate(batch.times) if time > last]), ON_TIME)
        self.context.emit(batch.take(late), LATE)

    def _without_ahead(self, batch: Batch, times: list[int]) -> Batch:
        """Send messages that are too far in the future to the late output: one would make all following messages late."""
        if self.operator.max_ahead is None:
            return batch
        latest = self.context.now + self.operator.max_ahead
        if max(times) <= latest:
            return batch
        ahead = [position for position, time in enumerate(times) if time > latest]
        self.context.count("ahead", len(ahead))
        self.context.emit(batch.take(ahead), LATE)
        return without(batch, ahead)

    def _report_epochs(self, batch: Batch, times: list[int], inputs: list[str]) -> None:
        """Report the latest epoch of the messages, for each partition if there are partitions."""
        if self.operator.partition is None and self.operator.function is None:
            self.context.report_clock_input(self.context.operator, self._bounded(max(times)))
            return
        latest: dict[str, int | None] = {}
        for name, time in zip(inputs, self._epochs(batch, times), strict=True):
            before = latest.get(name)
            latest[name] = before if time is None or (before is not None and before >= time) else time
        for name, epoch in latest.items():
            self.context.report_clock_input(name, epoch)

    def _bounded(self, time: int) -> int:
        # A message with the timestamp `time - bound` is still on time.
        return max(time - self.operator.bound - 1, -(2**63))

    def _epochs(self, batch: Batch, times: list[int]) -> list[int | None]:
        function = self.operator.function
        if function is None:
            return [self._bounded(time) for time in times]
        keys = batch.keys if batch.keyed else repeat(None, len(batch))
        epochs: list[int | None] = []
        last: Any = self.last
        shown: Iterable[Any] = times
        if self.context.timestamps:
            last, shown = None if last is None else moment(last), map(moment, times)
        for position, message in enumerate(map(Message, keys, batch.values, shown)):
            try:
                epochs.append(_checked(in_ns(function(message, last))))
            except Exception as error:
                # The message itself is valid, and is on time or late like any other.
                self.context.reject(error, batch, position)
                epochs.append(None)
        return epochs

    def _inputs(self, batch: Batch) -> tuple[Batch, list[str]]:
        """Return the messages with a valid partition and the clock input of each; reject the other messages."""
        partition, name = self.operator.partition, self.context.operator
        if partition is None:
            return batch, [name] * len(batch)
        if callable(partition):
            names, rejected = each(self.context, batch, lambda value: _input_name(name, partition(value)))
            return without(batch, rejected), names
        parts: list[Batch] = []
        inputs: list[str] = []
        for part, column in accepted(self.context, batch, lambda part: _input_names(name, part, partition)):
            parts.append(part)
            inputs += column
        return (Batch.joined(parts) if parts else batch.take([])), inputs


def _input_names(operator: str, batch: Batch, column: str) -> list[str]:
    return [_input_name(operator, each) for each in column_of(batch, column).to_pylist()]


def _input_name(operator: str, partition: Any) -> str:
    """Return the name of a partition's clock input. Every commit stores it, so it must be short and valid text."""
    text = str(partition)
    if len(text) > _LONGEST or valid(text) != text:
        raise StepError(
            f"the partition {shortened(partition, 100)} cannot be an input of the job's clock: its name must "
            f"have at most {_LONGEST} characters and be valid text"
        )
    return f"{operator}/{text}"


def _checked(epoch: Any) -> int | None:
    if epoch is not None and (isinstance(epoch, bool) or not isinstance(epoch, int) or epoch > MAX_TIME):
        raise StepError(f"the function must return an epoch, a datetime or ns, or None, not {epoch!r}")
    return epoch
