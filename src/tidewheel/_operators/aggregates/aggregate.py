"""aggregate: sums, counts, minima, maxima and means per key, computed on columns from end to end.

Partial results are made in the tasks that read the source, before the shuffle; the keyed task merges them with the
stored state as arrays. No Python code runs per record, only per key.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tidewheel._operators.aggregates.combiner import AggregateCombiner
from tidewheel._operators.aggregates.functions import Accumulator, Array, columns_of, names_of, parsed, said
from tidewheel._operators.aggregates.operator import ColumnAggregates, partial_results
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
from tidewheel._operators.base import Context, Conversion, Process, Reads
from tidewheel._operators.keyed.combiner import Combiner
from tidewheel._operators.keyed.message_buffer import MessageBuffer
from tidewheel._values import ANY, ROW, Batch, Shape

PARTIAL = Shape("row", "partial aggregates")


@dataclass(frozen=True)
class AggregateBy(ColumnAggregates):
    """Keep the named aggregates of each key, and emit them once per batch for every key that the batch touched.

    A result has the latest timestamp of the messages that the batch brought for its key.
    """

    kind = "aggregate"
    most_numbers = 15

    def start(self, context: Context) -> Process:
        return _Aggregating(self, context)

    def combiner(self, context: Context) -> Combiner:
        return _Partials(self.accumulators, context, PARTIAL)

    def reads(self) -> Reads:
        return Reads(columns_of(self.accumulators))

    def shapes(self, inputs: tuple[Shape, ...]) -> tuple[Shape, ...]:
        """Rows, one attribute per aggregate."""
        return (ROW,)

    @property
    def state_layout(self) -> str:
        """The numbers that are kept, in their order."""
        return names_of(self.accumulators)

    def stored_numbers(self, layout: str) -> tuple[Accumulator, ...] | None:
        return parsed(layout) or None  # Without a number it is no layout of aggregates.

    def conversion(self, layout: str) -> Conversion | None:
        stored = self.stored_numbers(layout)
        return None if stored is None else Conversion(self.rewriting(stored).convert, said(self.aggregates, stored))


class _Partials(AggregateCombiner):
    shape = PARTIAL

    def fold(self, batch: Batch) -> list[pa.Table]:
        return grouped(batch, self.accumulators, self.context)


class _Aggregating(Process):
    def __init__(self, operator: AggregateBy, context: Context) -> None:
        self.operator, self.context = operator, context
        self.messages, self.partial_results = MessageBuffer(), list[pa.Table]()
        self.table = context.raw_table()

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
        if not self.partial_results:
            return
        name, accumulators = self.context.operator, self.operator.accumulators
        fresh = merged(self.partial_results, accumulators, self.context)
        self.partial_results = []
        keys = fresh.column(KEY).combine_chunks()
        key_batch = key_batch_of(keys, self.table.n_shards)
        rank = np.empty(len(keys), np.int64)
        rank[key_batch.place_array()] = np.arange(len(keys))
        packing = Packing(len(accumulators))
        old: list[bytes] = []
        for shard, part in key_batch.shards.items():
            old += [raw or packing.nothing for raw in self.table.get_many(shard, key_batch.stored[part])]
        new = [fresh.column(a.name).to_numpy()[rank].copy() for a in accumulators]
        stored = packing.unpack(b"".join(old), len(old), name)
        self._reject_overflows(key_batch.keys, stored, new)
        totals = _added(accumulators, stored, new)
        raws: list[bytes | None] = list(packing.rows([totals[a] for a in accumulators]))
        for shard, part in key_batch.shards.items():
            self.table.put(shard, key_batch.stored[part], raws[part])
        times = fresh.column(LATEST).to_numpy()[rank].tolist() if LATEST in fresh.schema.names else None
        self.context.emit(self._results(keys.take(pa.array(rank)), totals, times))

    def _reject_overflows(self, keys: Sequence[Any], stored: list[Array], new: list[Array]) -> None:
        """Reject what the batch has for keys whose sum would leave 64 bits; there, `new` then has nothing."""
        accumulators = self.operator.accumulators
        for accumulator, a, b in zip(accumulators, stored, new, strict=True):
            if accumulator.fold not in ("min", "max"):
                for place in _overflows(a, b):
                    numbers = {each.name: column[place].item() for each, column in zip(accumulators, new, strict=True)}
                    self.context.reject(
                        Left64Bits(accumulator.column), Batch(ANY, values=[numbers], keys=[keys[place]]), 0
                    )
                    for column in new:
                        column[place] = 0

    def _results(self, keys: pa.Array, totals: dict[Accumulator, Array], times: list[int] | None) -> Batch:
        columns = pa.RecordBatch.from_arrays(self.operator.results(totals), list(self.operator.aggregates))
        return keyed(ROW, columns, keys, times)


def _added(accumulators: tuple[Accumulator, ...], old: list[Array], new: list[Array]) -> dict[Accumulator, Array]:
    """Merge the batch's numbers into the stored ones."""
    stored, fresh = dict(zip(accumulators, old, strict=True)), dict(zip(accumulators, new, strict=True))
    merged: dict[Accumulator, Array] = {}
    for accumulator in accumulators:
        a, b = stored[accumulator], fresh[accumulator]
        if accumulator.fold in ("min", "max"):
            present = accumulator.present
            # As Arrow does: NaN counts only where there is nothing else.
            both = np.fmin(a, b) if accumulator.fold == "min" else np.fmax(a, b)
            merged[accumulator] = np.where(stored[present] == 0, b, np.where(fresh[present] == 0, a, both))
            continue
        merged[accumulator] = a + b
    return merged


def _overflows(a: Array, b: Array) -> list[int]:
    """Return the places at which the sum of two arrays of integers does not fit in 64 bits."""
    if a.dtype.kind != "i" or b.dtype.kind != "i":
        return []
    total = a + b
    places: list[int] = np.flatnonzero(((a ^ total) & (b ^ total)) < 0).tolist()
    return places
