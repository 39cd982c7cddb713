"""assign_timestamps: say when each message happened."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tidewheel._operators.base import Context, Operator, Process, Reads, each, without
from tidewheel._operators.keyed.key_by import column_of
from tidewheel._time.duration import MAX_TIME, instant
from tidewheel._values import Batch, Shape
from tidewheel.errors import GraphError, OperatorError

_NANOSECONDS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}


@dataclass(frozen=True)
class AssignTimestamps(Operator):
    """Give each message a timestamp: a column of ns or of Arrow timestamps, or what a function returns for its value.

    A message whose timestamp does not fit in 64 bits, or is more than `max_ahead` ns after the batch's time, is rejected.
    """

    time: str | Callable[[Any], Any]
    max_ahead: int | None = None
    kind = "assign_timestamps"

    def start(self, context: Context) -> Process:
        if isinstance(self.time, str):
            return _ByColumn(self.time, self.max_ahead, context)
        return _ByFunction(self.time, self.max_ahead, context)

    def shapes(self, inputs: tuple[Shape, ...]) -> tuple[Shape, ...]:
        return inputs

    def schemas(self, inputs: tuple[pa.Schema | None, ...]) -> tuple[pa.Schema | None, ...]:
        return inputs

    def timed(self, inputs: tuple[bool | None, ...]) -> bool:
        return True

    def reads(self) -> Reads | None:
        return Reads((self.time,), (0,)) if isinstance(self.time, str) else None

    def check(self, inputs: tuple[Shape, ...]) -> None:
        known = inputs[0].columns()
        if isinstance(self.time, str) and known is not None and self.time not in known:
            raise GraphError(f"there is no column {self.time!r}; {inputs[0].describe()} has {', '.join(known)}")


class _Assigning(Process):
    def __init__(self, max_ahead: int | None, context: Context) -> None:
        self.context = context
        self.latest = MAX_TIME - 1 if max_ahead is None else min(context.now + max_ahead, MAX_TIME - 1)
        self.max_ahead = max_ahead

    def emit(self, batch: Batch, times: list[int]) -> None:
        """Send the messages with their timestamps; reject those whose timestamp is not valid."""
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

    def _error(self, time: int) -> OperatorError:
        if not -MAX_TIME <= time < MAX_TIME:
            return OperatorError(
                f"the timestamp is {time} ns since 1970, which does not fit in 64 bits: they hold the years 1678 to 2262"
            )
        return OperatorError(
            f"the timestamp {time} is more than max_ahead, {self.max_ahead} ns, after the batch's time, {self.context.now}"
        )


class _ByColumn(_Assigning):
    def __init__(self, column: str, max_ahead: int | None, context: Context) -> None:
        super().__init__(max_ahead, context)
        self.column = column

    def on_batch(self, batch: Batch, port: int) -> None:
        column = column_of(self.context, batch, self.column)
        if column.null_count:
            empty = [position for position, time in enumerate(column) if not time.is_valid]
            for position in empty:
                error = OperatorError(f"the time column {self.column!r} is null; filter such records out before")
                self.context.reject(error, batch, position)
            batch, column = without(batch, empty), column.drop_null()
        self.emit(batch, self._nanoseconds(column))

    def _nanoseconds(self, column: pa.Array) -> list[int]:
        if pa.types.is_timestamp(column.type):
            try:
                column = column.cast(pa.timestamp("ns", column.type.tz)).cast(pa.int64())
            except pa.ArrowInvalid:
                # Some year does not fit in 64 bits of ns, as Python integers it does: it is one record's error.
                factor = _NANOSECONDS[column.type.unit]
                return [time * factor for time in column.cast(pa.int64()).to_pylist()]
        elif not pa.types.is_integer(column.type):
            raise OperatorError(
                f"operator {self.context.operator!r}: a time column holds integers (ns since 1970 UTC) or timestamps, and "
                f"{self.column!r} is of type {column.type}"
            )
        times: list[int] = column.to_pylist()
        return times


class _ByFunction(_Assigning):
    def __init__(self, function: Callable[[Any], Any], max_ahead: int | None, context: Context) -> None:
        super().__init__(max_ahead, context)
        self.function = function

    def on_batch(self, batch: Batch, port: int) -> None:
        times, rejected = each(self.context, batch, lambda value: instant(self.function(value)))
        self.emit(without(batch, rejected), times)
