"""Aggregates of windows of a number of messages, computed in columns.

Messages are numbered for each key, relative to the newest stored window, so that windows begin at multiples of `every`.
Neighbouring messages that are in the same windows are folded first, and then added to each of these windows. The state
of a key is the list of its incomplete windows, the oldest first.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidewheel._operators.aggregates.functions import Array, describe_changes
from tidewheel._operators.aggregates.operator import column_values
from tidewheel._operators.aggregates.packed_rows import PackedRows
from tidewheel._operators.aggregates.partial_results import (
    KEY,
    concatenated,
    grouped_parts,
    grouping_keys,
    key_batch_of,
    merged,
)
from tidewheel._operators.base import Context, Conversion, Process
from tidewheel._operators.keyed.message_buffer import MessageBuffer
from tidewheel._operators.windows.due_keys import due_keys
from tidewheel._operators.windows.message_windows import END
from tidewheel._operators.windows.timed_aggregates import TimedAggregates, ints
from tidewheel._operators.windows.window import shown
from tidewheel._state.key_batch import KeyBatch
from tidewheel._state.layout import Accumulator, StateLayout
from tidewheel._state.timers import NEVER
from tidewheel._time.duration import MAX_TIME
from tidewheel._time.windows import Counted
from tidewheel._values import Batch

_PIECE, _BEGIN, _LEFT, _START, _END = "~piece", "~begin", "~left", "~start", "~end"
_SPANS = [KEY, _BEGIN, _START, _END]
_BEFORE = 3
"""The number of columns of a stored window that are not aggregates: how many messages it lacks, and two timestamps."""
_NO_START, _NO_END = NEVER, -NEVER
"""The earliest and latest timestamp of messages that have none."""


@dataclass(frozen=True)
class CountedAggregates(TimedAggregates):
    """Keep aggregates of each key by windows of a number of messages; a window is emitted when it is complete."""

    windows: Counted
    combines = False
    needs_time = False
    order_matters = True
    holds_back = False
    waits_for_epochs = ""

    def start(self, context: Context) -> Process:
        return _Counting(self, context)

    @property
    def state_layout(self) -> StateLayout:
        return StateLayout(f"aggregates of {self.windows}", numbers=tuple(self.accumulators))

    def stored_numbers(self, layout: StateLayout) -> tuple[Accumulator, ...] | None:
        return layout.numbers if layout.form == self.state_layout.form else None

    def conversion(self, layout: StateLayout) -> Conversion | None:
        stored = self.stored_numbers(layout)
        if stored is None:
            return None
        return Conversion(self.rewriting(stored, _BEFORE).convert, describe_changes(self.aggregates, stored))


class _Counting(Process):
    def __init__(self, operator: CountedAggregates, context: Context) -> None:
        self.operator, self.context = operator, context
        self.length, self.every = operator.windows.length, operator.windows.every
        self.accumulators = operator.accumulators
        self.table, self.timers = context.raw_table(), context.timers()
        self.rows = PackedRows(self.table, _BEFORE, self.accumulators, context.operator)
        self.messages = MessageBuffer()

    def on_batch(self, batch: Batch, port: int) -> None:
        if len(batch):
            self.messages.add(batch, self._add)

    def on_end_of_data(self) -> None:
        self.messages.finish(self._add)

    def _add(self, batch: Batch) -> None:
        """Add messages to the windows of their keys, and emit the windows that are complete."""
        key_batch = key_batch_of(grouping_keys(batch), self.table.n_shards)
        places = key_batch.place_array()
        stored = self._read(key_batch)
        seen = np.zeros(len(key_batch), np.int64)
        # The last row of a key is its newest window.
        seen[ints(stored, KEY)] = self.length - ints(stored, _LEFT)
        numbers = seen[places] + _ranks(places, len(key_batch))
        size = gcd(self.length, self.every)
        most = int(numbers.max()) // size + 1
        pieces, piece = np.unique(places * most + numbers // size, return_inverse=True)
        parts = list(grouped_parts(batch, self.accumulators, self.context, {_PIECE: pa.array(piece)}, latest=False))
        if sum(len(part) for part, _ in parts) < len(batch):
            # A rejected message must not be counted.
            if parts:
                self._add(Batch.joined([part for part, _ in parts]))
            return
        starts, ends = _spans(batch, piece, len(pieces))
        fresh = concatenated([table for _, table in parts]).sort_by(_PIECE)
        fresh = self._by_window(fresh, pieces // most, pieces % most * size, starts, ends)
        stored = stored.append_column(_BEGIN, pa.array(seen[ints(stored, KEY)] - (self.length - ints(stored, _LEFT))))
        totals = seen + np.bincount(places, minlength=len(key_batch))
        self._store(key_batch, stored, fresh, totals)

    def _by_window(self, pieces: pa.Table, keys: Array, firsts: Array, starts: Array, ends: Array) -> pa.Table:
        """Return each piece once for each window that it is in."""
        at = ints(pieces, _PIECE)
        keys, firsts, starts, ends = keys[at], firsts[at], starts[at], ends[at]
        last = firsts // self.every * self.every
        counts = (self.length - 1 - (firsts - last)) // self.every + 1
        rows = np.repeat(np.arange(len(at)), counts)
        back = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
        columns = {KEY: keys[rows], _BEGIN: last[rows] - back * self.every, _START: starts[rows], _END: ends[rows]}
        taken = pieces.drop_columns([KEY, _PIECE]).take(pa.array(rows))
        for name, values in columns.items():
            taken = taken.append_column(name, pa.array(values))
        return taken

    def _store(self, key_batch: KeyBatch, stored: pa.Table, fresh: pa.Table, totals: Array) -> None:
        """Merge new messages into the stored windows; emit those that are complete, and store the others."""
        names = [KEY, _BEGIN, *(each.name for each in self.accumulators)]
        whole = merged(
            [stored.select(names), fresh.select(names)], self.accumulators, self.context, (_BEGIN,), key_batch.keys
        ).sort_by([(KEY, "ascending"), (_BEGIN, "ascending")])
        starts, ends = _merged_spans(whole, pa.concat_tables([stored.select(_SPANS), fresh.select(_SPANS)]))
        left = ints(whole, _BEGIN) + self.length - totals[ints(whole, KEY)]
        complete = left <= 0
        self._emit(key_batch, whole, complete, starts, ends)
        rest = whole.filter(pa.array(~complete))
        self._write(key_batch, rest, left[~complete], starts[~complete], ends[~complete])
        was, due = (np.full(len(key_batch), NEVER, np.int64) for _ in range(2))
        was[ints(stored, KEY)], due[ints(rest, KEY)] = END, END
        self.timers.move(key_batch.stored, key_batch.shards, was, due)

    def on_epoch(self, epoch: int) -> None:
        """At the end of a bounded run, emit the messages since the last complete window, and delete the state."""
        if epoch != MAX_TIME:
            return
        key_batch, due, _ = due_keys(self.timers, self.context.shards_awake(self.timers), epoch)
        if not len(due):
            return
        stored = self._read(key_batch)
        keys = ints(stored, KEY)
        oldest = np.append(True, keys[1:] != keys[:-1]) & (ints(stored, _LEFT) < self.every)
        self._emit(key_batch, stored, oldest, ints(stored, _START), ints(stored, _END))
        self._write(key_batch, stored[:0], *(ints(stored[:0], name) for name in (_LEFT, _START, _END)))

    def _emit(self, key_batch: KeyBatch, windows: pa.Table, chosen: Array, starts: Array, ends: Array) -> None:
        if not chosen.any():
            return
        windows, starts, ends = windows.filter(pa.array(chosen)), starts[chosen], ends[chosen]
        spans = {"start": _shown(starts, _NO_START, self.context), "end": _shown(ends, _NO_END, self.context)}
        times = None
        if (ends != _NO_END).all():
            last = self.context.last_epoch
            times = (ends if last is None else np.maximum(ends, last + 1)).tolist()
        correction = {"correction": pa.array(np.zeros(len(starts), bool))}
        self.context.emit(self.operator.rows(key_batch, windows, spans, correction, times))

    def _read(self, key_batch: KeyBatch) -> pa.Table:
        """Return the incomplete windows of the keys, each with the index of its key, the oldest of a key first."""
        places, columns = self.rows.read(key_batch)
        names = [KEY, _LEFT, _START, _END, *(each.name for each in self.accumulators)]
        return pa.table([places, *columns], names=names)

    def _write(self, key_batch: KeyBatch, windows: pa.Table, left: Array, starts: Array, ends: Array) -> None:
        numbers = [column_values(windows, each) for each in self.accumulators]
        self.rows.write(key_batch, ints(windows, KEY), [left, starts, ends, *numbers])


def _ranks(places: Array, keys: int) -> Array:
    """Return how many messages of the same key come before each message."""
    order = np.argsort(places, kind="stable")
    counts = np.bincount(places, minlength=keys)
    ranks = np.empty(len(places), np.int64)
    ranks[order] = np.arange(len(places)) - np.repeat(np.cumsum(counts) - counts, counts)
    return ranks


def _spans(batch: Batch, piece: Array, pieces: int) -> tuple[Array, Array]:
    """Return the earliest and latest timestamp of each piece."""
    starts, ends = np.full(pieces, _NO_START, np.int64), np.full(pieces, _NO_END, np.int64)
    if batch.times is not None:
        known = np.array([time is not None for time in batch.times])
        times = np.array([0 if time is None else time for time in batch.times], np.int64)
        np.minimum.at(starts, piece[known], times[known])
        np.maximum.at(ends, piece[known], times[known])
    return starts, ends


def _merged_spans(windows: pa.Table, parts: pa.Table) -> tuple[Array, Array]:
    """Return the earliest and latest timestamp of each window, which the parts of it have."""
    low = int(ints(parts, _BEGIN).min())
    width = int(ints(parts, _BEGIN).max()) - low + 1

    def codes(table: pa.Table) -> Array:
        return ints(table, KEY) * width + ints(table, _BEGIN) - low

    known, at = np.unique(codes(parts), return_inverse=True)
    starts, ends = np.full(len(known), _NO_START, np.int64), np.full(len(known), _NO_END, np.int64)
    np.minimum.at(starts, at, ints(parts, _START))
    np.maximum.at(ends, at, ints(parts, _END))
    chosen = np.searchsorted(known, codes(windows))
    return starts[chosen], ends[chosen]


def _shown(times: Array, missing: int, context: Context) -> pa.Array:
    """Return times in the form of results; null where messages have no timestamps."""
    there = times != missing
    array: Any = shown(np.where(there, times, 0), context.timestamps)
    return array if there.all() else pc.if_else(pa.array(there), array, pa.scalar(None, array.type))
