"""Aggregates of windows, folded by Arrow before any Python: what is left is work per key and stretch of time, not per message."""

from __future__ import annotations

from math import gcd
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidewheel.operators.aggregates import Accumulator
from tidewheel.operators.base import Context, Process
from tidewheel.operators.stateful_op import Running
from tidewheel.time.windows import Fixed
from tidewheel.values import ANY, Batch

MESSAGES, PARTIALS = 0, 1
"""The inputs of the process behind: messages as they came, and partial results."""

_KEY, _TIME = "~key", "~time"


class WindowPartials(Process):
    """In front of windows that keep aggregates: gives them partial results where the messages are columns of numbers.

    All timestamps of one stretch, the common divisor of length and step, are in the same windows. Messages that are too late for
    all their windows go on as they are, since they are set aside one by one.
    """

    def __init__(
        self, running: Running, windows: Fixed, lateness: int, accumulators: tuple[Accumulator, ...], context: Context
    ) -> None:
        """Take the process that keeps the windows."""
        self.running, self.windows, self.accumulators = running, windows, accumulators
        self.stretch = gcd(windows.length, windows.every)
        # A stretch whose last window ended this long before an epoch is over.
        self.reach = windows.length - 1 + lateness
        self.last_epoch = context.last_epoch

    def on_batch(self, batch: Batch, port: int) -> None:
        """Fold the messages, where that is possible."""
        numbers = self._numbers(batch)
        if numbers is None or batch.times is None:
            self.running.on_batch(batch, MESSAGES)
            return
        times = np.array(batch.times, np.int64)
        if self.last_epoch is not None:
            begin = times - (times - self.windows.offset) % self.windows.every
            late = begin + self.reach <= self.last_epoch
            if late.any():
                self.running.on_batch(batch.take(np.flatnonzero(late).tolist()), MESSAGES)
                rest = np.flatnonzero(~late).tolist()
                if not rest:
                    return
                batch, times = batch.take(rest), times[~late]
                numbers = {name: column.take(pa.array(rest)) for name, column in numbers.items()}
        stretches = times - (times - self.windows.offset) % self.stretch
        self.running.on_batch(self._folded(batch, stretches, numbers), PARTIALS)

    def on_end_of_data(self) -> None:
        """Handle what is left."""
        self.running.on_end_of_data()

    def on_schedule(self) -> None:
        """Pass it on."""
        self.running.on_schedule()

    def on_epoch(self, epoch: int) -> None:
        """Pass it on."""
        self.running.on_epoch(epoch)

    def _numbers(self, batch: Batch) -> dict[str, pa.Array] | None:
        """Return the columns that are folded, or None where Python's own arithmetic is needed."""
        if not batch.has_columns or batch.key_column is None:
            return None
        found: dict[str, pa.Array] = {}
        columns = batch.columns
        for name in {accumulator.column for accumulator in self.accumulators} - {None}:
            at = columns.schema.get_field_index(name)
            # A stream of one chosen column has that one, whatever an aggregate calls it.
            column = columns.column(at) if at >= 0 else None
            if column is None or not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
                return None
            if pa.types.is_integer(column.type):
                bounds = pc.min_max(column).as_py()
                if max(abs(bounds["min"] or 0), abs(bounds["max"] or 0)) * len(column) >= 2**62:
                    return None
            found[str(name)] = column
        return found

    def _folded(self, batch: Batch, stretches: Any, numbers: dict[str, pa.Array]) -> Batch:
        table = pa.table([batch.key_column, pa.array(stretches), *numbers.values()], names=[_KEY, _TIME, *numbers])
        folds: list[tuple[Any, str]] = [
            ([], "count_all") if each.column is None else (each.column, each.fold) for each in self.accumulators
        ]
        grouped = table.group_by([_KEY, _TIME], use_threads=False).aggregate(folds)
        columns = []
        for each in self.accumulators:
            column = grouped.column("count_all" if each.column is None else f"{each.column}_{each.fold}")
            columns.append((pc.fill_null(column, 0) if each.fold == "sum" else column).to_pylist())
        return Batch(
            ANY,
            values=[list(partial) for partial in zip(*columns, strict=True)],
            key_column=grouped.column(_KEY).combine_chunks(),
            times=grouped.column(_TIME).to_pylist(),
        )
