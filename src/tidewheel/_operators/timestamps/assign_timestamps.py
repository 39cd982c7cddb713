"""assign_timestamps: set the time of each message."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tidewheel._operators.accepted import accepted
from tidewheel._operators.base import Context, Operator, Process, Reads, each, without
from tidewheel._operators.keyed.key_by import column_of
from tidewheel._time.duration import MAX_TIME, UNITS, Unit, instant, is_plausible, without_unit
from tidewheel._values import Batch, Shape
from tidewheel.errors import GraphError, StepError


@dataclass(frozen=True)
class AssignTimestamps(Operator):
    """Set the timestamp of each message from a column of timestamps or integers, or by a function of the value.

    Integers count `unit` since 1970 UTC. Without a unit they are read as ns and rejected if they give an implausible year.
    A message is also rejected if its timestamp does not fit in 64 bits, or is more than `max_ahead` ns after the time of
    the batch.
    """

    time: str | Callable[[Any], Any]
    max_ahead: int | None = None
    unit: Unit | None = None
    kind = "assign_timestamps"

    def start(self, context: Context) -> Process:
        return (_ByColumn if isinstance(self.time, str) else _ByFunction)(self, context)

    def shapes(self, inputs: tuple[Shape, ...]) -> tuple[Shape, ...]:
        return inputs

    def schemas(self, inputs: tuple[pa.Schema | None, ...]) -> tuple[pa.Schema | None, ...]:
        return inputs

    def timed(self, inputs: tuple[bool | None, ...]) -> bool:
        return True

    def timestamps(self, inputs: tuple[bool, ...]) -> bool:
        return self.unit is None

    def reads(self) -> Reads | None:
        return Reads((self.time,), (0,)) if isinstance(self.time, str) else None

    def check(self, inputs: tuple[Shape, ...]) -> None:
        known = inputs[0].columns()
        if isinstance(self.time, str) and known is not None and self.time not in known:
            raise GraphError(f"there is no column {self.time!r}; {inputs[0].describe()} has {', '.join(known)}")
        kind = inputs[0].column_type(self.time) if isinstance(self.time, str) else None
        if kind is not None and not pa.types.is_timestamp(kind) and not pa.types.is_integer(kind):
            raise GraphError(_wrong_type(self.time, kind))
        if kind is not None and pa.types.is_timestamp(kind) and self.unit is not None:
            raise GraphError(_no_unit(self.time, kind))


def _wrong_type(column: Any, kind: pa.DataType) -> str:
    return (
        f"a time column must have timestamps, or integers with unit=, but {column!r} has the type {kind}; convert "
        "it, or "
        "pass a function that returns a datetime"
    )


def _no_unit(column: Any, kind: pa.DataType) -> str:
    return f"unit= is for integers, but {column!r} has the type {kind}; remove unit="


class _Assigning(Process):
    def __init__(self, operator: AssignTimestamps, context: Context) -> None:
        self.operator, self.context = operator, context
        self.max_ahead = max_ahead = operator.max_ahead
        self.latest = MAX_TIME - 1 if max_ahead is None else min(context.now + max_ahead, MAX_TIME - 1)

    def emit(self, batch: Batch, times: list[int]) -> None:
        """Send the messages with their timestamps; reject messages with invalid timestamps."""
        if not times:
            return
        if max(times) <= self.latest and min(times) >= -MAX_TIME:
            self.context.emit(batch.with_times(times))
            return
        wrong = [position for position, time in enumerate(times) if not -MAX_TIME <= time <= self.latest]
        for position in wrong:
            self.context.reject(self._error(times[position]), batch, position)
        rejected = set(wrong)
        fine = [time for position, time in enumerate(times) if position not in rejected]
        self.context.emit(without(batch, wrong).with_times(fine))

    def _error(self, time: int) -> StepError:
        if not -MAX_TIME <= time < MAX_TIME:
            return StepError(
                f"the timestamp is {time} ns since 1970, which does not fit in 64 bits (the years 1678 to 2262)"
            )
        return StepError(
            f"the timestamp {time} is more than max_ahead, {self.max_ahead} ns, after the batch's time, "
            f"{self.context.now}"
        )


class _ByColumn(_Assigning):
    def __init__(self, operator: AssignTimestamps, context: Context) -> None:
        super().__init__(operator, context)
        assert isinstance(operator.time, str)
        self.column = operator.time

    def on_batch(self, batch: Batch, port: int) -> None:
        for part, times in accepted(self.context, batch, self._times):
            wrong = [position for position, time in enumerate(times) if isinstance(time, StepError)]
            for position in wrong:
                self.context.reject(times[position], part, position)  # type: ignore[arg-type]
            fine = [time for time in times if not isinstance(time, StepError)]
            self.emit(without(part, wrong), fine)

    def _times(self, batch: Batch) -> list[int | StepError]:
        """Return the column in ns, with an error in place of each invalid time."""
        column = column_of(batch, self.column)
        if pa.types.is_timestamp(column.type):
            if self.operator.unit is not None:
                raise StepError(_no_unit(self.column, column.type))
            return [self._no_time() if time is None else time for time in _nanoseconds(column)]
        if not pa.types.is_integer(column.type) and not pa.types.is_null(column.type):
            raise StepError(_wrong_type(self.column, column.type))
        factor = 1 if self.operator.unit is None else UNITS[self.operator.unit]
        return [self._no_time() if time is None else self._counted(time, factor) for time in column.to_pylist()]

    def _counted(self, time: int, factor: int) -> int | StepError:
        if self.operator.unit is None and not is_plausible(time):
            return without_unit(time, self.column)
        return time * factor

    def _no_time(self) -> StepError:
        return StepError(f"the time column {self.column!r} is null; filter such records out before")


def _nanoseconds(column: pa.Array) -> list[int | None]:
    try:
        times: list[int | None] = column.cast(pa.timestamp("ns", column.type.tz)).cast(pa.int64()).to_pylist()
    except pa.ArrowInvalid:
        # A year does not fit in 64 bits of ns. Convert with Python integers, so that only its record fails.
        factor = UNITS[column.type.unit]
        return [None if time is None else time * factor for time in column.cast(pa.int64()).to_pylist()]
    return times


class _ByFunction(_Assigning):
    def on_batch(self, batch: Batch, port: int) -> None:
        times, rejected = each(self.context, batch, self._time)
        self.emit(without(batch, rejected), times)

    def _time(self, value: Any) -> int:
        time, unit = self.operator.time(value), self.operator.unit  # type: ignore[operator]
        if isinstance(time, bool) or not isinstance(time, int):
            if unit is not None and isinstance(time, datetime.datetime):
                raise StepError(f"the function returned {time!r}, but unit={unit!r} is for integers; remove unit=")
            return instant(time)
        if unit is not None:
            return instant(time * UNITS[unit])
        if not is_plausible(time):
            raise without_unit(time)
        return time
