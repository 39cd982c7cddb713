"""top: the highest values of each window, over all keys of the stream before it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidewheel._operators.aggregates.partial_results import FLUSH_ROWS
from tidewheel._operators.base import Context
from tidewheel._operators.field_getter import FieldGetter, check_field
from tidewheel._operators.keyed.combiner import Combiner
from tidewheel._operators.keyed.state_spec import StateSpec
from tidewheel._operators.keyed.timed import NO_WINDOW_CLOSES, TimedOperator, time_of
from tidewheel._operators.logic import Message, StatefulLogic
from tidewheel._state.stored_types import undeclared
from tidewheel._state.timers import Timer
from tidewheel._values import ROW, Batch, Shape
from tidewheel._values.records import field_names, field_of, has_fields
from tidewheel._values.row import row_class
from tidewheel.errors import StepError

RANK = "rank"
Ranked = dict[int, list[list[Any]]]
"""The best records of a key by their time, best first: what they are ranked by, and their fields."""


@dataclass(frozen=True)
class Top(TimedOperator):
    """Keep the `n` records of each key and timestamp with the highest `by`; emit them when the epoch passes the timestamp.

    Results of one window have the same timestamp. Records that come after their timestamp has passed go to the second
    output.
    """

    n: int
    by: Callable[[Any], Any]
    kind = "top"
    ports = 2
    output_names = ("", "late")
    needs_time = True
    holds_back = True
    combines = True
    waits_for_epochs = NO_WINDOW_CLOSES

    def logic(self, timestamps: bool = False) -> TopLogic:
        return TopLogic(self.n, self.by)

    def spec(self) -> StateSpec:
        return StateSpec(dict[int, list[undeclared(list)]], dict)  # type: ignore[misc]

    def combiner(self, context: Context) -> Combiner:
        return _Best(self, context)

    def check(self, inputs: tuple[Shape, ...]) -> None:
        check_field(self.by, inputs[0])

    def shapes(self, inputs: tuple[Shape, ...]) -> tuple[Shape, ...]:
        """Rows with a rank, and the late records unchanged."""
        return (ROW, inputs[0])


class TopLogic(StatefulLogic[Ranked]):
    """The best records of each key."""

    _calls_last_timer_only = True

    def __init__(self, n: int, by: Callable[[Any], Any]) -> None:
        self.n, self.by = n, by

    def on_data(self, message: Message, state: Ranked, output: Any) -> Ranked | None:
        """Keep a record if it is one of the best of its time so far."""
        time = time_of(message)
        if output.last_epoch is not None and time <= output.last_epoch:
            output.set_aside()
            return state or None
        if not has_fields(type(message.value)):
            raise StepError(f"top ranks records with fields, not {type(message.value).__name__}")
        best = state.get(time, [])
        if not best:
            output.set_timer(time)
        fields = {name: field_of(message.value, name) for name in field_names(message.value)}
        state[time] = _ranked([*best, [self.by(message.value), fields]])[: self.n]
        return state

    def on_timer(self, timer: Timer, state: Ranked, output: Any) -> Ranked | None:
        """Emit the records of the times that have passed."""
        for time in sorted(each for each in state if each <= timer.time):
            for rank, (_, fields) in enumerate(state.pop(time), 1):
                ranked = fields | {RANK: rank}
                output.send(Message(output.current.key, row_class(tuple(ranked))(*ranked.values()), time))
        return state or None


def _ranked(records: list[list[Any]]) -> list[list[Any]]:
    """Return records, highest first, without a value last. The order of equal ones depends on their fields only."""
    ordered = sorted(records, key=lambda record: [str(each) for each in record[1].values()])
    return sorted(ordered, key=_height, reverse=True)


def _height(record: list[Any]) -> tuple[int, Any]:
    """Return what orders a record. A null, and NaN before it, are not compared with values: NaN is in no order."""
    value = record[0]
    return (0, 0) if value is None else (2, value) if value == value else (1, 0)


class _Best(Combiner):
    """Send the best records of each key and time that a task reads. Several may be equal to the last one."""

    def __init__(self, operator: Top, context: Context) -> None:
        self.n, self.by, self.context = operator.n, operator.by, context
        self.waiting: list[Batch] = []

    def add(self, batch: Batch) -> Iterator[Batch]:
        self.waiting.append(batch)
        if sum(map(len, self.waiting)) > FLUSH_ROWS:
            yield from self.finish()

    def finish(self) -> Iterator[Batch]:
        batches, self.waiting = self.waiting, []
        for batch in [Batch.joined(batches)] if batches else []:
            yield self._best(batch)

    def _best(self, batch: Batch) -> Batch:
        """Return the messages that may be among the best; all, if their order is not that of a column of numbers."""
        if not isinstance(self.by, FieldGetter) or not batch.has_columns or not batch.times or batch.key_data is None:
            return batch
        at = batch.columns.schema.get_field_index(self.by.name)
        values = batch.columns.column(at) if at >= 0 else pa.nulls(len(batch))
        if values.null_count or not (pa.types.is_integer(values.type) or pa.types.is_floating(values.type)):
            return batch
        keys = pc.dictionary_encode(batch.key_data).indices.to_numpy()
        times, numbers = np.array(batch.times, np.int64), values.to_numpy(zero_copy_only=False)
        if pa.types.is_floating(values.type):
            numbers = np.where(np.isnan(numbers), -np.inf, numbers)
        order = np.lexsort((numbers, times, keys))[::-1]
        keys, times, numbers = keys[order], times[order], numbers[order]
        new = np.ones(len(order), bool)
        new[1:] = (keys[1:] != keys[:-1]) | (times[1:] != times[:-1])
        firsts = np.flatnonzero(new)
        lasts = np.append(firsts[1:], len(order)) - 1
        least = numbers[np.minimum(firsts + self.n - 1, lasts)][np.cumsum(new) - 1]
        return batch.take(np.sort(order[numbers >= least]).tolist())


@dataclass(frozen=True)
class Per:
    """The key of a record by several of its columns."""

    columns: tuple[str, ...]

    def __call__(self, value: Any) -> tuple[Any, ...]:
        """Return the values of the columns; a time as text, because it cannot be a key."""
        values = (FieldGetter(name)(value) for name in self.columns)
        return tuple(each.isoformat() if isinstance(each, datetime) else each for each in values)
