"""aggregate: sums, counts, distinct values and other aggregates per key, computed on columns from end to end.

Partial results are made in the tasks that read the source, before the shuffle; the keyed task merges them with the
stored state as arrays. Python code runs per key, not per record.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tidewheel._operators.aggregates.combiner import AggregateCombiner
from tidewheel._operators.aggregates.functions import Accumulators, Array, describe_changes
from tidewheel._operators.aggregates.operator import ColumnAggregates, column_values, partial_results
from tidewheel._operators.aggregates.packed_rows import PackedRows
from tidewheel._operators.aggregates.partial_results import (
    KEY,
    LATEST,
    Left64Bits,
    Packing,
    grouped,
    key_batch_of,
    keyed,
    merged,
)
from tidewheel._operators.base import Context, Conversion, Process
from tidewheel._operators.keyed.combiner import Combiner
from tidewheel._operators.keyed.message_buffer import MessageBuffer
from tidewheel._state.key_batch import KeyBatch
from tidewheel._state.layout import NUMBERS, Accumulator, StateLayout
from tidewheel._values import ANY, ROW, Batch, Shape

PARTIAL = Shape("row", "partial aggregates")


@dataclass(frozen=True)
class AggregateBy(ColumnAggregates):
    """Keep the named aggregates of each key, and emit them once per batch for every key with messages in the batch.

    A result has the latest timestamp of its key's messages in the batch.
    """

    kind = "aggregate"

    def start(self, context: Context) -> Process:
        return (_AggregatingStates if self.accumulators.states else _AggregatingNumbers)(self, context)

    def combiner(self, context: Context) -> Combiner:
        return _Partials(self.accumulators, context, PARTIAL)

    def shapes(self, inputs: tuple[Shape, ...]) -> tuple[Shape, ...]:
        """Rows, one attribute per aggregate."""
        return (ROW,)

    @property
    def state_layout(self) -> StateLayout:
        """The stored numbers, in order."""
        return StateLayout(NUMBERS, numbers=tuple(self.accumulators))

    def stored_numbers(self, layout: StateLayout) -> tuple[Accumulator, ...] | None:
        return layout.numbers if layout.form == NUMBERS else None

    def conversion(self, layout: StateLayout) -> Conversion | None:
        stored = self.stored_numbers(layout)
        return (
            None
            if stored is None
            else Conversion(self.rewriting(stored, single=True).convert, describe_changes(self.aggregates, stored))
        )


class _Partials(AggregateCombiner):
    shape = PARTIAL

    def fold(self, batch: Batch) -> list[pa.Table]:
        return grouped(batch, self.accumulators, self.context)


class _Aggregating(Process):
    def __init__(self, operator: AggregateBy, context: Context) -> None:
        self.operator, self.context = operator, context
        self.messages, self.partial_results = MessageBuffer(), list[pa.Table]()

    def on_batch(self, batch: Batch, port: int) -> None:
        if len(batch) == 0:
            return
        if batch.shape == PARTIAL:
            self.partial_results.append(partial_results(batch))
        else:
            self.messages.add(batch, self._fold)

    def _fold(self, batch: Batch) -> None:
        self.partial_results += grouped(batch, self.operator.accumulators, self.context)

    def on_end_of_data(self) -> None:
        self.messages.finish(self._fold)
        if self.partial_results:
            fresh = merged(self.partial_results, self.operator.accumulators, self.context)
            self.partial_results = []
            self._merge(fresh)

    @abstractmethod
    def _merge(self, fresh: pa.Table) -> None:
        """Merge the partial results of the batch, one row for each key, into the state, and emit the results."""

    def _emit(self, keys: pa.Array, totals: dict[Accumulator, Any], times: Array | None) -> None:
        columns = pa.RecordBatch.from_arrays(self.operator.results(totals), list(self.operator.aggregates))
        self.context.emit(keyed(ROW, columns, keys, None if times is None else times.tolist()))


class _AggregatingNumbers(_Aggregating):
    """Rows of one width, which are read, added and written as arrays."""

    def __init__(self, operator: AggregateBy, context: Context) -> None:
        super().__init__(operator, context)
        self.table = context.row_table()

    def _merge(self, fresh: pa.Table) -> None:
        name, accumulators = self.context.operator, self.operator.accumulators
        keys = fresh.column(KEY).combine_chunks()
        key_batch = key_batch_of(keys, self.table.n_shards)
        rank = _rank(key_batch)
        packing = Packing(len(accumulators))
        old = self.table.read(key_batch, packing.nothing)
        new = [fresh.column(a.name).to_numpy()[rank].copy() for a in accumulators]
        stored = packing.unpack(old, len(old), name)
        self._reject_overflows(key_batch, stored, new)
        totals = _added(accumulators, stored, new)
        self.table.write(packing.packed([totals[a] for a in accumulators]))
        times = fresh.column(LATEST).to_numpy()[rank] if LATEST in fresh.schema.names else None
        self._emit(keys.take(pa.array(rank)), totals, times)

    def _reject_overflows(self, keys: KeyBatch, stored: list[Array], new: list[Array]) -> None:
        """Reject the messages of keys whose sum would exceed 64 bits, and clear their numbers in `new`."""
        accumulators = self.operator.accumulators
        for accumulator, a, b in zip(accumulators, stored, new, strict=True):
            if accumulator.fold not in ("min", "max"):
                for place in _overflows(a, b):
                    numbers = {each.name: column[place].item() for each, column in zip(accumulators, new, strict=True)}
                    self.context.reject(
                        Left64Bits(accumulator.column), Batch(ANY, values=[numbers], keys=[keys.keys[place]]), 0
                    )
                    for column in new:
                        column[place] = 0


class _AggregatingStates(_Aggregating):
    """Rows with states of aggregators, which have any size."""

    def __init__(self, operator: AggregateBy, context: Context) -> None:
        super().__init__(operator, context)
        self.table = context.raw_table()
        self.rows = PackedRows(self.table, 0, operator.accumulators, context.operator)

    def _merge(self, fresh: pa.Table) -> None:
        accumulators = self.operator.accumulators
        keys = fresh.column(KEY).combine_chunks()
        key_batch = key_batch_of(keys, self.table.n_shards)
        rank = _rank(key_batch)
        places, columns = self.rows.read(key_batch)
        stored = pa.table([places, *columns], names=[KEY, *(a.name for a in accumulators)])
        fresh = fresh.set_column(0, KEY, pa.array(key_batch.place_array()))
        # Group by index, because the keys are in stored order. A rejected key without state has no row.
        whole = merged([stored, fresh], accumulators, self.context, keys=key_batch.keys).sort_by(KEY)
        touched = whole.column(KEY).to_numpy()
        totals = {a: column_values(whole, a) for a in accumulators}
        self.rows.write(key_batch, touched, [totals[a] for a in accumulators])
        times = fresh.column(LATEST).to_numpy()[rank][touched] if LATEST in fresh.schema.names else None
        self._emit(keys.take(pa.array(rank[touched])), totals, times)


def _rank(key_batch: KeyBatch) -> Array:
    """Return the order that puts keys, each there once, into the order of the stored state."""
    rank = np.empty(len(key_batch), np.int64)
    rank[key_batch.place_array()] = np.arange(len(key_batch))
    return rank


def _added(accumulators: Accumulators, old: list[Array], new: list[Array]) -> dict[Accumulator, Array]:
    """Merge the numbers of the batch into the stored ones."""
    stored, fresh = dict(zip(accumulators, old, strict=True)), dict(zip(accumulators, new, strict=True))
    merged: dict[Accumulator, Array] = {}
    for accumulator in accumulators:
        a, b = stored[accumulator], fresh[accumulator]
        if accumulator.fold in ("min", "max"):
            present = accumulator.present
            # As in Arrow, NaN is the result only if all values are NaN.
            both = np.fmin(a, b) if accumulator.fold == "min" else np.fmax(a, b)
            merged[accumulator] = np.where(stored[present] == 0, b, np.where(fresh[present] == 0, a, both))
            continue
        merged[accumulator] = a + b
    return merged


def _overflows(a: Array, b: Array) -> list[int]:
    """Return the positions at which the sum of two integer arrays exceeds 64 bits."""
    if a.dtype.kind != "i" or b.dtype.kind != "i":
        return []
    total = a + b
    places: list[int] = np.flatnonzero(((a ^ total) & (b ^ total)) < 0).tolist()
    return places
