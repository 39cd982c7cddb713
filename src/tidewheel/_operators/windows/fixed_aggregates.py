"""Windows of aggregates, column-wise from end to end: the work is per key and pane, and none of it per message in Python.

Messages become partial results by key and pane in the tasks that read the source, before the shuffle. A key's state is the
list of its panes, each its start and its numbers; a window is what its panes hold together when it ends.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tidewheel._operators.aggregates.combiner import AggregateCombiner
from tidewheel._operators.aggregates.functions import Accumulator, Array, names_of, parsed, said
from tidewheel._operators.aggregates.operator import partial_results
from tidewheel._operators.aggregates.packed_rows import PackedRows, conversion_of_lists
from tidewheel._operators.aggregates.partial_results import (
    KEY,
    grouped,
    key_batch_of,
    merged,
    regrouped,
)
from tidewheel._operators.base import Context, Conversion, Process
from tidewheel._operators.keyed.combiner import Combiner
from tidewheel._operators.keyed.message_buffer import MessageBuffer
from tidewheel._operators.keyed.timed import LATE
from tidewheel._operators.windows.due_keys import due_keys
from tidewheel._operators.windows.timed_aggregates import TimedAggregates, ints, reckonable
from tidewheel._state.key_batch import KeyBatch
from tidewheel._state.timers import NEVER
from tidewheel._time.panes import Ints, Panes
from tidewheel._values import Batch

PANE = "~pane"
"""The column of panes' starts, which is the first of partial results: messages have none of this name."""
_START = "~start"


@dataclass(frozen=True)
class FixedAggregates(TimedAggregates):
    """Keep aggregates of each key by windows; a window is emitted once, when the epoch passes its end.

    Messages up to `lateness` after the end are still taken in; a window is then emitted again, once a batch, as a correction.
    Messages that no window takes go to the second output.
    """

    panes: Panes
    most_numbers = 14
    """The start of the pane is stored with them."""

    @property
    def takes_late(self) -> bool:
        return self.panes.lateness > 0

    def start(self, context: Context) -> Process:
        return _Windowing(self, context)

    def combiner(self, context: Context) -> Combiner:
        return _PartialPanes(self, context)

    @property
    def state_layout(self) -> str:
        """The windows, whose panes and timers are stored, and the numbers that are kept of each pane."""
        return f"panes of {self.panes.windows}: {names_of(self.accumulators)}"

    def stored_numbers(self, layout: str) -> tuple[Accumulator, ...] | None:
        own = self.state_layout.removesuffix(names_of(self.accumulators))
        return parsed(layout.removeprefix(own)) if layout.startswith(own) else None

    def conversion(self, layout: str) -> Conversion | None:
        stored = self.stored_numbers(layout)
        if stored is None:
            return None
        return Conversion(conversion_of_lists(self.rewriting(stored, 1)), said(self.aggregates, stored))

    def parted(self, batch: Batch, context: Context) -> tuple[Batch | None, list[pa.Table]]:
        """Return the messages that no window takes, and the partial results of the others.

        Which they are depends on the epoch before the batch alone, so it is the same on either side of the shuffle.
        """
        batch, times = reckonable(batch, context)
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
    """Gives partial results, and passes on unchanged the messages that no window takes."""

    def __init__(self, operator: FixedAggregates, context: Context) -> None:
        super().__init__(operator.accumulators, context, context.shapes[LATE], (PANE,))
        self.operator = operator

    def fold(self, batch: Batch) -> list[pa.Table]:
        aside, partial = self.operator.parted(batch, self.context)
        if aside is not None:
            self.aside.append(aside)
        return partial


class _Windowing(Process):
    def __init__(self, operator: FixedAggregates, context: Context) -> None:
        self.operator, self.context = operator, context
        self.panes, self.accumulators = operator.panes, operator.accumulators
        self.table, self.timers = context.raw_table(), context.timers()
        self.rows = PackedRows(self.table, len(self.accumulators) + 1, context.operator)
        self.messages, self.partial_results = MessageBuffer(), list[pa.Table]()

    def on_batch(self, batch: Batch, port: int) -> None:
        if batch.has_columns and batch.columns.schema.names[:1] == [PANE]:
            self.partial_results.append(partial_results(batch))
        elif len(batch):
            self.messages.add(batch, self._fold)

    def _fold(self, batch: Batch) -> None:
        aside, partial = self.operator.parted(batch, self.context)
        self.partial_results += partial
        if aside is not None:
            self.context.count("late", len(aside))
            self.context.emit(aside, LATE)

    def on_end_of_data(self) -> None:
        """Take the partial results into the state, and set the timers of keys that have something due earlier than before."""
        self.messages.finish(self._fold)
        if not self.partial_results:
            return
        fresh = merged(self.partial_results, self.accumulators, self.context, (PANE,))
        self.partial_results = []
        key_batch = key_batch_of(fresh.column(KEY).combine_chunks(), self.table.n_shards)
        last = self.context.last_epoch
        stored = self._read(key_batch)
        if last is not None:
            # A program whose lateness was longer has left panes that are over by now.
            stored = stored.filter(pa.array(self.panes.dropped(ints(stored, PANE)) > last))
        fresh = fresh.set_column(0, KEY, pa.array(key_batch.place_array()))
        # By numbers, since the keys are in the order of the store.
        keys = key_batch.keys
        whole = merged([stored, fresh], self.accumulators, self.context, (PANE,), keys) if len(stored) else fresh
        if last is not None and self.panes.lateness:
            self._correct(key_batch, stored, fresh, whole, last)
        self._write(key_batch, self._armed(key_batch, stored, last), whole, last)

    def on_epoch(self, epoch: int) -> None:
        """Emit the windows that have ended, and drop the panes that no open window needs."""
        key_batch, firsts = due_keys(self.timers, self.context.shards_awake(self.timers), epoch)
        if not len(firsts):
            return
        stored = self._read(key_batch)
        # What is due is what a key's first timer waits for, and all that follows: the key may come from a holder that had
        # been told less than this one.
        after = firsts[ints(stored, KEY)] - 1
        positions, starts = self.panes.due(ints(stored, PANE), after, epoch)
        self._emit(key_batch, self._windows(stored, positions, starts), None)
        rest = stored.filter(pa.array(self.panes.dropped(ints(stored, PANE)) > epoch))
        self._write(key_batch, np.full(len(firsts), NEVER, np.int64), rest, epoch)

    def _correct(self, key_batch: KeyBatch, stored: pa.Table, fresh: pa.Table, whole: pa.Table, last: int) -> None:
        """Emit the windows that had ended before this batch and got late messages in it."""

        def windows(table: pa.Table) -> tuple[Ints, Ints]:
            return self.panes.due(ints(table, PANE), last - self.panes.lateness, last)

        def named(table: pa.Table) -> set[tuple[int, int]]:
            positions, starts = windows(table)
            return set(zip(ints(table, KEY)[positions].tolist(), starts.tolist(), strict=True))

        changed = named(fresh)
        if changed:
            results = self._windows(whole, *windows(whole))
            names = list(zip(results.column(KEY).to_pylist(), results.column(_START).to_pylist(), strict=True))
            before, mask = named(stored), [name in changed for name in names]
            corrections = [name in before for name, wanted in zip(names, mask, strict=True) if wanted]
            self._emit(key_batch, results.filter(pa.array(mask)), np.array(corrections))

    def _windows(self, table: pa.Table, positions: Ints, starts: Ints) -> pa.Table:
        """Return what windows hold, given by the positions of their panes and their starts; by start, and then by key."""
        panes = table.take(pa.array(positions)).append_column(_START, pa.array(starts))
        windows = regrouped(panes, self.accumulators, (KEY, _START))
        return windows.sort_by([(_START, "ascending"), (KEY, "ascending")])

    def _emit(self, key_batch: KeyBatch, windows: pa.Table, corrections: Array | None) -> None:
        if not len(windows):
            return
        starts = ints(windows, _START)
        marked = np.zeros(len(starts), bool) if corrections is None else corrections
        self.operator.emit(self.context, key_batch, windows, starts, starts + self.panes.windows.length, marked)

    def _read(self, key_batch: KeyBatch) -> pa.Table:
        """Return the stored panes of the keys, each under its key's number."""
        places, numbers = self.rows.read(key_batch)
        return pa.table([places, *numbers], names=[KEY, PANE, *(a.name for a in self.accumulators)])

    def _write(self, key_batch: KeyBatch, armed: Ints, table: pa.Table, epoch: int | None) -> None:
        """Store the panes of the keys; set the timers as they must be after an epoch, where that is not as they are."""
        keys, panes = ints(table, KEY), ints(table, PANE)
        order = np.lexsort((panes, keys))
        numbers = [panes[order], *(table.column(a.name).to_numpy()[order] for a in self.accumulators)]
        self.rows.write(key_batch, keys[order], numbers)
        self.timers.move(key_batch.stored, key_batch.shards, armed, self._timers(key_batch, table, epoch))

    def _armed(self, key_batch: KeyBatch, stored: pa.Table, last: int | None) -> Ints:
        """Return which timer each key is sure to have: for the end of a window.

        One for the moment at which a pane is dropped may be that of a program with another lateness, and be elsewhere.
        """
        is_open = self.panes.is_open(ints(stored, PANE), last)
        return self._timers(key_batch, stored.filter(pa.array(is_open)), last)

    def _timers(self, key_batch: KeyBatch, table: pa.Table, epoch: int | None) -> Ints:
        """Return when each key has something due: it has one timer, for the first moment after an epoch."""
        times = np.full(len(key_batch), NEVER, np.int64)
        np.minimum.at(times, ints(table, KEY), self.panes.next(ints(table, PANE), epoch))
        return times
