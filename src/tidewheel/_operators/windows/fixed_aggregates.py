"""Windows of aggregates, computed in columns: the work is per key and pane, without Python code per message.

The tasks that read the source fold messages into partial results by key and pane, before the shuffle. The state of a key
is the list of its panes, each with its start and its numbers. The result of a window is the sum of its panes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tidewheel._operators.aggregates.combiner import AggregateCombiner
from tidewheel._operators.aggregates.functions import Array, describe_changes
from tidewheel._operators.aggregates.operator import column_values, partial_results
from tidewheel._operators.aggregates.packed_rows import PackedRows
from tidewheel._operators.aggregates.partial_results import (
    KEY,
    grouped,
    groups_too_large,
    key_batch_of,
    merged,
    regrouped,
)
from tidewheel._operators.base import Context, Conversion, Process
from tidewheel._operators.keyed.combiner import Combiner
from tidewheel._operators.keyed.message_buffer import MessageBuffer
from tidewheel._operators.keyed.timed import LATE
from tidewheel._operators.windows.due_keys import due_keys
from tidewheel._operators.windows.timed_aggregates import TimedAggregates, ints, with_valid_times
from tidewheel._state.key_batch import KeyBatch
from tidewheel._state.layout import PANES, Accumulator, StateLayout
from tidewheel._state.timers import NEVER
from tidewheel._time.duration import MAX_TIME
from tidewheel._time.panes import Ints, Panes
from tidewheel._values import ANY, Batch

PANE = "~pane"
"""The column with the start of a pane, which is the first column of partial results. Messages have no such column."""
_START = "~start"


@dataclass(frozen=True)
class FixedAggregates(TimedAggregates):
    """Keep aggregates of each key by windows; a window is emitted once, when the epoch passes its end.

    Messages up to `lateness` after the end are still included; the window is then emitted again, once per batch, as a
    correction. Later messages go to the second output.
    """

    panes: Panes

    @property
    def takes_late(self) -> bool:
        return self.panes.lateness > 0

    def start(self, context: Context) -> Process:
        return _Windowing(self, context)

    def combiner(self, context: Context) -> Combiner:
        return _PartialPanes(self, context)

    @property
    def state_layout(self) -> StateLayout:
        """The windows, whose panes and timers are stored, and the numbers of each pane."""
        return StateLayout(PANES, self.panes.windows, tuple(self.accumulators))

    def stored_numbers(self, layout: StateLayout) -> tuple[Accumulator, ...] | None:
        same = layout.form == PANES and layout.windows == self.panes.windows
        return layout.numbers if same else None

    def conversion(self, layout: StateLayout) -> Conversion | None:
        stored = self.stored_numbers(layout)
        if stored is None:
            return None
        return Conversion(self.rewriting(stored, 1).convert, describe_changes(self.aggregates, stored))

    def separate_late(self, batch: Batch, context: Context) -> tuple[Batch | None, list[pa.Table]]:
        """Return the messages that are too late for every window, and the partial results of the others.

        The decision depends only on the epoch before the batch, so it is the same on both sides of the shuffle.
        """
        batch, times = with_valid_times(batch, context)
        if not len(batch):
            return None, []
        panes = self.panes.of(times)
        over = self.panes.over(panes, context.last_epoch)
        if not over.any():
            return None, grouped(batch, self.accumulators, context, {PANE: pa.array(panes)}, latest=False)
        aside = batch.take(np.flatnonzero(over).tolist())
        if over.all():
            return aside, []
        rest = batch.take(np.flatnonzero(~over).tolist())
        return aside, grouped(rest, self.accumulators, context, {PANE: pa.array(panes[~over])}, latest=False)


class _PartialPanes(AggregateCombiner):
    """Send partial results, and pass on messages unchanged that are too late for every window."""

    def __init__(self, operator: FixedAggregates, context: Context) -> None:
        super().__init__(operator.accumulators, context, context.shapes[LATE], (PANE,))
        self.operator = operator

    def fold(self, batch: Batch) -> list[pa.Table]:
        aside, partial = self.operator.separate_late(batch, self.context)
        if aside is not None:
            self.aside.append(aside)
        return partial


class _Windowing(Process):
    def __init__(self, operator: FixedAggregates, context: Context) -> None:
        self.operator, self.context = operator, context
        self.panes, self.accumulators = operator.panes, operator.accumulators
        self.table, self.timers = context.raw_table(), context.timers()
        self.rows = PackedRows(self.table, 1, self.accumulators, context.operator)
        self.messages, self.partial_results = MessageBuffer(), list[pa.Table]()

    def on_batch(self, batch: Batch, port: int) -> None:
        if batch.has_columns and batch.columns.schema.names[:1] == [PANE]:
            self.partial_results.append(partial_results(batch))
        elif len(batch):
            self.messages.add(batch, self._fold)

    def _fold(self, batch: Batch) -> None:
        aside, partial = self.operator.separate_late(batch, self.context)
        self.partial_results += partial
        if aside is not None:
            self.context.count("late", len(aside))
            self.context.emit(aside, LATE)

    def on_end_of_data(self) -> None:
        """Merge the partial results into the state, and set the timers of keys whose next due time is now earlier."""
        self.messages.finish(self._fold)
        if not self.partial_results:
            return
        fresh = merged(self.partial_results, self.accumulators, self.context, (PANE,))
        self.partial_results = []
        key_batch = key_batch_of(fresh.column(KEY).combine_chunks(), self.table.n_shards)
        last = self.context.last_epoch
        stored = self._read(key_batch)
        if last is not None:
            # A program with a longer lateness may have left panes that have expired.
            stored = stored.filter(pa.array(self.panes.dropped(ints(stored, PANE)) > last))
        fresh = fresh.set_column(0, KEY, pa.array(key_batch.place_array()))
        # Group by index, because the keys are in stored order.
        keys = key_batch.keys
        whole = merged([stored, fresh], self.accumulators, self.context, (PANE,), keys) if len(stored) else fresh
        if last is not None and self.panes.lateness:
            self._correct(key_batch, stored, fresh, whole, last)
        self._write(key_batch, self._armed(key_batch, stored, last), whole, last)
        self.operator.set_early_timers(self.timers, key_batch, last)
        if self.operator.with_each_batch:
            self._emit_open(key_batch, whole, self.context.clock())

    def on_epoch(self, epoch: int) -> None:
        """Emit the windows that have ended, and delete the panes that no open window needs."""
        key_batch, firsts, early = due_keys(self.timers, self.context.shards_awake(self.timers), epoch)
        if not len(firsts):
            return
        stored = self._read(key_batch)
        # What is due is what a key's first timer waits for, and all that follows: the key may come from a holder
        # that had
        # been told less than this one.
        after = firsts[ints(stored, KEY)] - 1
        positions, starts = self.panes.due(ints(stored, PANE), after, epoch)
        self._emit(key_batch, self._windows(key_batch, stored, positions, starts), None)
        rest = stored.filter(pa.array(self.panes.dropped(ints(stored, PANE)) > epoch))
        self._write(key_batch, np.full(len(firsts), NEVER, np.int64), rest, epoch)
        if self.operator.early is not None and early.any():
            self._emit_open(key_batch, rest.filter(pa.array(early[ints(rest, KEY)])), epoch)

    def _emit_open(self, key_batch: KeyBatch, panes: pa.Table, clock: int | None) -> None:
        """Emit early results of the windows that end after the clock."""
        positions, starts = self.panes.due(ints(panes, PANE), clock, MAX_TIME)
        self._emit(key_batch, self._windows(key_batch, panes, positions, starts), None, final=False)

    def _correct(self, key_batch: KeyBatch, stored: pa.Table, fresh: pa.Table, whole: pa.Table, last: int) -> None:
        """Emit the windows that ended before this batch and received late messages in it."""

        def windows(table: pa.Table) -> tuple[Ints, Ints]:
            return self.panes.due(ints(table, PANE), last - self.panes.lateness, last)

        def named(table: pa.Table) -> set[tuple[int, int]]:
            positions, starts = windows(table)
            return set(zip(ints(table, KEY)[positions].tolist(), starts.tolist(), strict=True))

        changed = named(fresh)
        if changed:
            results = self._windows(key_batch, whole, *windows(whole))
            names = list(zip(results.column(KEY).to_pylist(), results.column(_START).to_pylist(), strict=True))
            before, mask = named(stored), [name in changed for name in names]
            corrections = [name in before for name, wanted in zip(names, mask, strict=True) if wanted]
            self._emit(key_batch, results.filter(pa.array(mask)), np.array(corrections))

    def _windows(self, key_batch: KeyBatch, table: pa.Table, positions: Ints, starts: Ints) -> pa.Table:
        """Return the results of windows, given the positions of their panes and their starts, sorted by start and key.

        A window whose sum exceeds 64 bits is rejected as a whole: each of its panes is valid, so no message is at fault.
        """
        panes = table.take(pa.array(positions)).append_column(_START, pa.array(starts))
        groups = (KEY, _START)
        if rejected := groups_too_large(panes, self.accumulators, groups):
            for (place, start), error in sorted(rejected.items(), key=lambda each: each[0]):
                begin, end = self.panes.spans(np.array([start]))
                window = {"start": int(begin[0]), "end": int(end[0])}
                self.context.reject(error, Batch(ANY, values=[window], keys=[key_batch.keys[place]]), 0)
            named = zip(*(panes.column(name).to_pylist() for name in groups), strict=True)
            panes = panes.filter(pa.array([each not in rejected for each in named], pa.bool_()))
        windows = regrouped(panes, self.accumulators, groups)
        return windows.sort_by([(_START, "ascending"), (KEY, "ascending")])

    def _emit(self, key_batch: KeyBatch, windows: pa.Table, corrections: Array | None, *, final: bool = True) -> None:
        if not len(windows):
            return
        starts = ints(windows, _START)
        marked = np.zeros(len(starts), bool) if corrections is None else corrections
        self.operator.emit(self.context, key_batch, windows, *self.panes.spans(starts), marked, final=final)

    def _read(self, key_batch: KeyBatch) -> pa.Table:
        """Return the stored panes of the keys, each with the index of its key."""
        places, numbers = self.rows.read(key_batch)
        return pa.table([places, *numbers], names=[KEY, PANE, *(a.name for a in self.accumulators)])

    def _write(self, key_batch: KeyBatch, armed: Ints, table: pa.Table, epoch: int | None) -> None:
        """Store the panes of the keys, and correct the timers for the time after an epoch."""
        keys, panes = ints(table, KEY), ints(table, PANE)
        order = np.lexsort((panes, keys))
        ordered = table.take(pa.array(order))
        numbers = [panes[order], *(column_values(ordered, each) for each in self.accumulators)]
        self.rows.write(key_batch, keys[order], numbers)
        self.timers.move(key_batch.stored, key_batch.shards, armed, self._timers(key_batch, table, epoch))

    def _armed(self, key_batch: KeyBatch, stored: pa.Table, last: int | None) -> Ints:
        """Return which timer each key is sure to have: for the end of a window.

        One for the moment at which a pane is dropped may be that of a program with another lateness, and be elsewhere.
        """
        is_open = self.panes.is_open(ints(stored, PANE), last)
        return self._timers(key_batch, stored.filter(pa.array(is_open)), last)

    def _timers(self, key_batch: KeyBatch, table: pa.Table, epoch: int | None) -> Ints:
        """Return the next due time of each key after an epoch; a key has one timer for it."""
        times = np.full(len(key_batch), NEVER, np.int64)
        np.minimum.at(times, ints(table, KEY), self.panes.next(ints(table, PANE), epoch))
        return times
