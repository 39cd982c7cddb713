"""What windows of aggregates have in common, fixed ones and sessions: outputs, what is read, and what becomes of times."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tidewheel._operators.aggregates.functions import Array, columns_of
from tidewheel._operators.aggregates.operator import ColumnAggregates
from tidewheel._operators.aggregates.partial_results import KEY
from tidewheel._operators.base import Context, Reads
from tidewheel._operators.keyed.timed import LATE, NO_WINDOW_CLOSES
from tidewheel._operators.windows.window import check_names, shown
from tidewheel._state.key_batch import KeyBatch
from tidewheel._time.panes import Ints, far_times
from tidewheel._values import ROW, Batch, Shape
from tidewheel._values.exact import plain_array
from tidewheel.errors import OperatorError


@dataclass(frozen=True)
class TimedAggregates(ColumnAggregates):
    """Aggregates of each key by windows of time. The second output has the messages that no window takes, as they came."""

    kind = "window"
    ports = 2
    output_names = ("", "late")
    needs_time = True
    holds_back = True
    waits_for_epochs = NO_WINDOW_CLOSES

    def __post_init__(self) -> None:
        check_names(self.aggregates)
        super().__post_init__()

    def reads(self) -> Reads:
        return Reads(columns_of(self.accumulators), (LATE,))

    def shapes(self, inputs: tuple[Shape, ...]) -> tuple[Shape, ...]:
        """Rows, and the late messages as they came."""
        return (ROW, inputs[0])

    @property
    def driven_by_time(self) -> bool:
        return True

    def emit(
        self, context: Context, key_batch: KeyBatch, windows: pa.Table, starts: Ints, ends: Ints, corrections: Array
    ) -> None:
        """Emit what windows hold, each under the key whose number is in the column `KEY`, at its last moment."""
        totals = {accumulator: windows.column(accumulator.name).to_numpy() for accumulator in self.accumulators}
        times = [shown(each, context.timestamps) for each in (starts, ends)]
        arrays = [*times, *self.results(totals), pa.array(corrections)]
        columns = pa.RecordBatch.from_arrays(arrays, ["start", "end", *self.aggregates, "correction"])
        which = ints(windows, KEY)
        keys = plain_array(key_batch.keys)
        context.emit(
            Batch(
                ROW,
                columns=columns,
                keys=[key_batch.keys[at] for at in which.tolist()] if keys is None else None,
                key_column=None if keys is None else keys.take(pa.array(which)),
                times=(ends - 1).tolist(),
            )
        )


def reckonable(batch: Batch, context: Context) -> tuple[Batch, Ints]:
    """Return the messages whose timestamps can be reckoned with, and these; reject the others."""
    if batch.times is None:
        raise OperatorError(
            f"operator {context.operator!r}: the messages have no timestamps; put assign_timestamps and generate_epochs "
            "before it"
        )
    times = np.array(batch.times, np.int64)
    far = far_times(times)
    if not far.any():
        return batch, times
    for position in np.flatnonzero(far).tolist():
        error = OperatorError(f"the timestamp {times[position]} is more than a century from 1970; timestamps are in ns")
        context.reject(error, batch, position)
    return batch.take(np.flatnonzero(~far).tolist()), times[~far]


def ints(table: pa.Table, name: str) -> Array:
    """Return a column of whole numbers."""
    column: Array = table.column(name).to_numpy()
    return column
