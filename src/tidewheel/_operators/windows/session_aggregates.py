"""Sessions of aggregates: the messages of a key that are near each other become one partial session before the shuffle."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidewheel._operators.aggregates.functions import Accumulator, Aggregate, accumulators_of, columns_of
from tidewheel._operators.aggregates.partial_results import KEY, LATEST, grouped, grouping_keys, keyed
from tidewheel._operators.base import Context, Process
from tidewheel._operators.keyed.combiner import Combiner
from tidewheel._operators.keyed.message_buffer import Gathered
from tidewheel._operators.keyed.stateful_op import Running
from tidewheel._operators.keyed.timed import LATE
from tidewheel._operators.windows.window import WindowBy
from tidewheel._time.windows import Session
from tidewheel._values import ANY, Batch
from tidewheel.errors import OperatorError

_FIRST = "~first"
"""The column of the first timestamps, which is the first of partial sessions: messages have none of this name."""
_MESSAGES, _SESSIONS = 0, 1
"""The inputs of the process behind: messages as they came, and partial sessions."""


@dataclass(frozen=True)
class AggregateSessions(WindowBy):
    """As `WindowBy`, over sessions, with a fold that keeps aggregates."""

    aggregates: dict[str, Aggregate] = field(default_factory=dict)
    combines = True

    def columns(self) -> set[str]:
        """Return the columns that it reads."""
        return columns_of(accumulators_of(self.aggregates))

    def start(self, context: Context) -> Process:
        """Start in a task."""
        logic = self.logic()
        running = Running(logic, (logic.on_data, logic.on_session), self.spec(), context)
        return _Sessions(running, accumulators_of(self.aggregates))

    def combiner(self, context: Context) -> Combiner:
        """Return what makes partial sessions before the shuffle."""
        assert isinstance(self.windows, Session)
        return _Combining(self.windows.gap, self.lateness, accumulators_of(self.aggregates), context)


class _Combining(Combiner):
    """Gives partial sessions, and as they are the messages that may be too late for any.

    A message whose own session is not over at the last epoch is taken whatever sessions there are, so it can be folded first.
    """

    def __init__(self, gap: int, lateness: int, accumulators: tuple[Accumulator, ...], context: Context) -> None:
        self.gap, self.accumulators, self.context = gap, accumulators, context
        self.reach = gap - 1 + lateness
        self.gathered, self.ready = Gathered(), list[Batch]()

    def add(self, batch: Batch) -> Iterator[Batch]:
        if len(batch) == 0:
            return
        if batch.times is None:
            raise OperatorError(
                f"operator {self.context.operator!r}: the messages have no timestamps; put assign_timestamps and "
                "generate_epochs before it"
            )
        last = self.context.last_epoch
        late = [] if last is None else [at for at, time in enumerate(batch.times) if time + self.reach <= last]
        if late:
            yield batch.take(late)
            gone = set(late)
            batch = batch.take([at for at in range(len(batch)) if at not in gone])
        if len(batch):
            self.gathered.add(batch, self._fold)
        yield from self._drained()

    def finish(self) -> Iterator[Batch]:
        self.gathered.finish(self._fold)
        yield from self._drained()

    def _drained(self) -> Iterator[Batch]:
        ready, self.ready = self.ready, []
        yield from ready

    def _fold(self, batch: Batch) -> None:
        keys = pc.dictionary_encode(grouping_keys(batch)).indices.to_numpy()
        times = np.array(batch.times, np.int64)
        order = np.lexsort((times, keys))
        inner = np.diff(times[order]) < self.gap
        new = np.concatenate(([True], (np.diff(keys[order]) != 0) | ~inner))
        firsts = np.empty(len(times), np.int64)
        firsts[order] = times[order][np.flatnonzero(new)[np.cumsum(new) - 1]]
        table = grouped(batch, self.accumulators, self.context, {_FIRST: pa.array(firsts)})
        for chunk in table.combine_chunks().to_batches():
            columns = chunk.select(chunk.schema.names[1:])
            self.ready.append(keyed(self.context.shapes[LATE], columns, chunk.column(KEY)))


class _Sessions(Process):
    """Tells messages and partial sessions apart."""

    def __init__(self, running: Running, accumulators: tuple[Accumulator, ...]) -> None:
        self.running, self.accumulators = running, accumulators

    def on_batch(self, batch: Batch, port: int) -> None:
        if not batch.has_columns or batch.columns.schema.names[:1] != [_FIRST]:
            self.running.on_batch(batch, _MESSAGES)
            return
        columns = batch.columns
        numbers = zip(*(self._numbers(columns, accumulator) for accumulator in self.accumulators), strict=True)
        values = list(zip(columns.column(LATEST).to_pylist(), map(list, numbers), strict=True))
        times = columns.column(_FIRST).to_pylist()
        sessions = Batch(ANY, values=values, keys=batch.keys_made, key_column=batch.key_column, times=times)
        self.running.on_batch(sessions, _SESSIONS)

    def _numbers(self, columns: pa.RecordBatch, accumulator: Accumulator) -> list[Any]:
        column = columns.column(accumulator.name)
        if accumulator.fold in ("min", "max"):
            present = pc.greater(columns.column(Accumulator("count", accumulator.column).name), 0)
            column = pc.if_else(present, column, pa.scalar(None, column.type))
        numbers: list[Any] = column.to_pylist()
        return numbers

    def on_end_of_data(self) -> None:
        self.running.on_end_of_data()

    def on_schedule(self) -> None:
        self.running.on_schedule()

    def on_epoch(self, epoch: int) -> None:
        self.running.on_epoch(epoch)
