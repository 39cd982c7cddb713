"""assign_timestamps: say when each message happened."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tidewheel._operators.base import Context, Operator, Process, Reads, each, without
from tidewheel._operators.keyed.key_by import column_of
from tidewheel._time.duration import instant
from tidewheel._values import Batch, Shape
from tidewheel.errors import GraphError, OperatorError


@dataclass(frozen=True)
class AssignTimestamps(Operator):
    """Give each message a timestamp: a column of ns or of Arrow timestamps, or what a function returns for its value."""

    time: str | Callable[[Any], Any]
    kind = "assign_timestamps"

    def start(self, context: Context) -> Process:
        return _ByColumn(self.time, context) if isinstance(self.time, str) else _ByFunction(self.time, context)

    def shapes(self, inputs: tuple[Shape, ...]) -> tuple[Shape, ...]:
        return inputs

    def timed(self, inputs: tuple[bool | None, ...]) -> bool:
        return True

    def reads(self) -> Reads | None:
        return Reads((self.time,), (0,)) if isinstance(self.time, str) else None

    def check(self, inputs: tuple[Shape, ...]) -> None:
        known = inputs[0].columns()
        if isinstance(self.time, str) and known is not None and self.time not in known:
            raise GraphError(f"there is no column {self.time!r}; {inputs[0].describe()} has {', '.join(known)}")


class _ByColumn(Process):
    def __init__(self, column: str, context: Context) -> None:
        self.column, self.context = column, context

    def on_batch(self, batch: Batch, port: int) -> None:
        column = column_of(self.context, batch, self.column)
        if column.null_count:
            empty = [position for position, time in enumerate(column) if not time.is_valid]
            for position in empty:
                error = OperatorError(f"the time column {self.column!r} is null; filter such records out before")
                self.context.reject(error, batch, position)
            batch, column = without(batch, empty), column.drop_null()
        self.context.emit(batch.with_times(self._nanoseconds(column)))

    def _nanoseconds(self, column: pa.Array) -> list[int]:
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.timestamp("ns", column.type.tz)).cast(pa.int64())
        elif not pa.types.is_integer(column.type):
            raise OperatorError(
                f"operator {self.context.operator!r}: a time column holds integers (ns since 1970 UTC) or timestamps, and "
                f"{self.column!r} is of type {column.type}"
            )
        times: list[int] = column.to_pylist()
        return times


class _ByFunction(Process):
    def __init__(self, function: Callable[[Any], Any], context: Context) -> None:
        self.function, self.context = function, context

    def on_batch(self, batch: Batch, port: int) -> None:
        times, rejected = each(self.context, batch, lambda value: instant(self.function(value)))
        self.context.emit(without(batch, rejected).with_times(times))
