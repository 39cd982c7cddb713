"""The base of windows of aggregates, fixed windows and sessions: outputs, columns read, and conversion of times."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from tidewheel._operators.aggregates.functions import Array
from tidewheel._operators.aggregates.operator import ColumnAggregates, column_values
from tidewheel._operators.aggregates.partial_results import KEY
from tidewheel._operators.base import Context
from tidewheel._operators.keyed.timed import LATE, NO_WINDOW_CLOSES
from tidewheel._operators.windows.due_keys import EARLY
from tidewheel._operators.windows.window import check_names, shown
from tidewheel._state.key_batch import KeyBatch
from tidewheel._state.timers import NEVER, TimerTable
from tidewheel._time.early import Early
from tidewheel._time.panes import Ints, far_times
from tidewheel._values import ROW, Batch, Shape
from tidewheel._values.exact import plain_array
from tidewheel.errors import StepError


@dataclass(frozen=True)
class TimedAggregates(ColumnAggregates):
    """Aggregates of each key by windows. The second output has the messages that are too late, unchanged."""

    early: Early | None = field(default=None, kw_only=True)
    kind = "window"
    ports = 2
    output_names = ("", "late")
    passed_on = (LATE,)
    needs_time = True
    holds_back = True
    waits_for_epochs = NO_WINDOW_CLOSES

    def __post_init__(self) -> None:
        check_names(self.aggregates, self.early)
        super().__post_init__()

    def shapes(self, inputs: tuple[Shape, ...]) -> tuple[Shape, ...]:
        """Rows, and the late messages unchanged."""
        return (ROW, inputs[0])

    @property
    def driven_by_time(self) -> bool:
        return True

    @property
    def with_each_batch(self) -> bool:
        """Whether early results are emitted with each batch."""
        return self.early is not None and self.early.every is None

    def set_early_timers(self, timers: TimerTable, key_batch: KeyBatch, epoch: int | None) -> None:
        """Set the timers for early results of keys that have new messages, if a time decides when these are emitted."""
        if self.early is not None and self.early.every is not None:
            never, due = (np.full(len(key_batch), time, np.int64) for time in (NEVER, self.early.due(epoch)))
            timers.move(key_batch.stored, key_batch.shards, never, due, EARLY)

    def emit(
        self,
        context: Context,
        key_batch: KeyBatch,
        windows: pa.Table,
        starts: Ints,
        ends: Ints,
        corrections: Array,
        *,
        final: bool = True,
    ) -> None:
        """Emit the results of windows, each with the key whose index is in the column `KEY`, at the end of the window."""
        marks = {"correction": pa.array(corrections)}
        if self.early is not None:
            marks["final"] = pa.array(np.full(len(starts), final))
        spans = {"start": shown(starts, context.timestamps), "end": shown(ends, context.timestamps)}
        context.emit(self.rows(key_batch, windows, spans, marks, (ends - 1).tolist()))

    def rows(
        self,
        key_batch: KeyBatch,
        windows: pa.Table,
        before: dict[str, pa.Array],
        after: dict[str, pa.Array],
        times: list[int] | None,
    ) -> Batch:
        """Return the results of windows as messages, with further columns before and after those of the aggregates."""
        totals = {accumulator: column_values(windows, accumulator) for accumulator in self.accumulators}
        columns = before | dict(zip(self.aggregates, self.results(totals), strict=True)) | after
        which = ints(windows, KEY)
        keys = plain_array(key_batch.keys)
        return Batch(
            ROW,
            columns=pa.RecordBatch.from_arrays(list(columns.values()), list(columns)),
            keys=[key_batch.keys[at] for at in which.tolist()] if keys is None else None,
            key_column=None if keys is None else keys.take(pa.array(which)),
            times=times,
        )


def with_valid_times(batch: Batch, context: Context) -> tuple[Batch, Ints]:
    """Return the messages with valid timestamps, and these timestamps; reject the others."""
    if batch.times is None:
        raise StepError(f"step {context.operator!r}: the messages have no timestamps; add event_time before it")
    times = np.array(batch.times, np.int64)
    far = far_times(times)
    if not far.any():
        return batch, times
    for position in np.flatnonzero(far).tolist():
        error = StepError(f"the timestamp {times[position]} is more than a century from 1970; timestamps are in ns")
        context.reject(error, batch, position)
    return batch.take(np.flatnonzero(~far).tolist()), times[~far]


def ints(table: pa.Table, name: str) -> Array:
    """Return a column of integers."""
    column: Array = table.column(name).to_numpy()
    return column
