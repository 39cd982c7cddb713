"""Sessions of aggregates, column-wise from end to end: the work is per key and session, and none of it per message in Python.

Messages of a key that are near each other become one partial session in the tasks that read the source, before the shuffle.
A key's state is the list of its sessions, each its start, its end, its status and its numbers. Partial sessions and stored
ones are intervals; those that overlap are one session.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidewheel._operators.aggregates.combiner import AggregateCombiner
from tidewheel._operators.aggregates.functions import Accumulator, Array, names_of, parsed, said
from tidewheel._operators.aggregates.operator import partial_results
from tidewheel._operators.aggregates.packed_rows import PackedRows, conversion_of_lists, packed_list
from tidewheel._operators.aggregates.partial_results import (
    KEY,
    LATEST,
    concatenated,
    grouped,
    grouping_keys,
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
from tidewheel._operators.windows.window import CLOSED, OPEN, REOPENED
from tidewheel._state.key_batch import KeyBatch
from tidewheel._state.timers import NEVER
from tidewheel._time.intervals import overlapping
from tidewheel._time.panes import Ints, no_longer_than
from tidewheel._time.windows import Session
from tidewheel._values import Batch

_FIRST = "~first"
"""The column of the first timestamps, which is the first of partial sessions: messages have none of this name."""
_NUMBER, _START, _END, _STATUS = "~number", "~start", "~end", "~status"
_BEFORE = 3
"""How many numbers of a stored session are not of its aggregates: start, end and status."""
_LAYOUT, _LAYOUT_OF_MAPS = "rows of sessions of ", "sessions of "
"""How layouts begin: that of today, and one of before, which is rewritten when a job begins."""
_PARTIAL = 3
"""The status of a partial session, beside those of stored ones."""


@dataclass(frozen=True)
class SessionAggregates(TimedAggregates):
    """Keep aggregates of each key by sessions; a session is emitted once, when the epoch passes its end.

    Messages up to `lateness` after the end are still taken in; a session is then emitted again, once a batch, as a correction.
    Messages that no session takes go to the second output.
    """

    windows: Session
    lateness: int
    most_numbers = 1000

    @property
    def takes_late(self) -> bool:
        return self.lateness > 0

    def __post_init__(self) -> None:
        no_longer_than(self.windows.gap + self.lateness, "gap and allowed lateness of a session")
        super().__post_init__()

    def start(self, context: Context) -> Process:
        return _Sessions(self, context)

    def combiner(self, context: Context) -> Combiner:
        return _PartialSessions(self, context)

    @property
    def state_layout(self) -> str:
        """The numbers that are kept of each session."""
        return f"{_LAYOUT}{names_of(self.accumulators)}"

    def stored_numbers(self, layout: str) -> tuple[Accumulator, ...] | None:
        own = next((own for own in (_LAYOUT, _LAYOUT_OF_MAPS) if layout.startswith(own)), None)
        return None if own is None else parsed(layout.removeprefix(own))

    def conversion(self, layout: str) -> Conversion | None:
        stored = self.stored_numbers(layout)
        if stored is None:
            return None
        convert = conversion_of_lists(self.rewriting(stored, _BEFORE))
        if layout.startswith(_LAYOUT_OF_MAPS):
            rewrite, size = convert, _BEFORE + len(stored)
            return Conversion(lambda raw: rewrite(packed_list(_mapped(raw), size)), said(self.aggregates, stored))
        return Conversion(convert, said(self.aggregates, stored))

    def parted(self, batch: Batch, context: Context) -> tuple[Batch | None, list[pa.Table]]:
        """Return the messages that only a session that is there already can take, and the partial sessions of the others.

        A message whose own session is not over at the epoch before the batch is taken whatever sessions there are.
        """
        batch, times = reckonable(batch, context)
        late = None
        over = self.over(times + self.windows.gap, context.last_epoch)
        if over.any():
            late = batch.take(np.flatnonzero(over).tolist())
            batch, times = batch.take(np.flatnonzero(~over).tolist()), times[~over]
        return late, self._partial_sessions(batch, times, context) if len(batch) else []

    def over(self, ends: Array, epoch: int | None) -> Array:
        """Tell which sessions with these ends take no messages any more at an epoch."""
        return np.zeros(len(ends), bool) if epoch is None else ends <= epoch + 1 - self.lateness

    def _partial_sessions(self, batch: Batch, times: Ints, context: Context) -> list[pa.Table]:
        keys = pc.dictionary_encode(grouping_keys(batch)).indices.to_numpy()
        order, new = overlapping(keys, times, times + self.windows.gap)
        firsts = np.empty(len(times), np.int64)
        firsts[order] = times[order][np.flatnonzero(new)[np.cumsum(new) - 1]]
        return grouped(batch, self.accumulators, context, {_FIRST: pa.array(firsts)})


class _PartialSessions(AggregateCombiner):
    """Gives partial sessions, and passes on unchanged the messages that may be too late for any."""

    def __init__(self, operator: SessionAggregates, context: Context) -> None:
        super().__init__(operator.accumulators, context, context.shapes[LATE], (_FIRST,))
        self.operator = operator

    def fold(self, batch: Batch) -> list[pa.Table]:
        late, partial = self.operator.parted(batch, self.context)
        if late is not None:
            self.aside.append(late)
        return partial


class _Sessions(Process):
    def __init__(self, operator: SessionAggregates, context: Context) -> None:
        self.operator, self.context = operator, context
        self.gap, self.accumulators = operator.windows.gap, operator.accumulators
        self.table, self.timers = context.raw_table(), context.timers()
        self.rows = PackedRows(self.table, _BEFORE + len(self.accumulators), context.operator)
        self.messages, self.partial_sessions = MessageBuffer(), list[pa.Table]()
        self.late: list[Batch] = []

    def on_batch(self, batch: Batch, port: int) -> None:
        if batch.has_columns and batch.columns.schema.names[:1] == [_FIRST]:
            self.partial_sessions.append(partial_results(batch))
        elif len(batch):
            self.messages.add(batch, self._fold)

    def _fold(self, batch: Batch) -> None:
        late, partial = self.operator.parted(batch, self.context)
        self.partial_sessions += partial
        if late is not None:
            self.late.append(late)

    def on_end_of_data(self) -> None:
        """Take the partial sessions into the state, and emit those that had ended before the batch."""
        self.messages.finish(self._fold)
        self._take_late()
        if not self.partial_sessions:
            return
        fresh = merged(self.partial_sessions, self.accumulators, self.context, (_FIRST,))
        self.partial_sessions = []
        key_batch = key_batch_of(fresh.column(KEY).combine_chunks(), self.table.n_shards)
        stored = self._read(key_batch)
        partial = self._sessions(
            key_batch.place_array(),
            ints(fresh, _FIRST),
            ints(fresh, LATEST) + self.gap,
            np.full(len(fresh), _PARTIAL, np.int64),
            [fresh.column(accumulator.name) for accumulator in self.accumulators],
        )
        last = self.context.last_epoch
        whole, touched = self._joined(concatenated([stored, partial]))
        if last is not None:
            ended = touched & (ints(whole, _END) - 1 <= last)
            self._emit(key_batch, whole.filter(pa.array(ended)))
            whole = _with_status(whole, np.where(ended, CLOSED, ints(whole, _STATUS)))
        # When a closed session is dropped depends on the lateness: its timer may be that of a program with another.
        waiting = stored.filter(pa.array(ints(stored, _STATUS) != CLOSED))
        self._write(key_batch, self._timers(key_batch, waiting), whole)

    def on_epoch(self, epoch: int) -> None:
        """Emit the sessions that have ended, and drop those that take no messages any more."""
        key_batch, firsts = due_keys(self.timers, self.context.shards_awake(self.timers), epoch)
        if not len(firsts):
            return
        stored = self._read(key_batch)
        ended = ints(stored, _END) - 1 <= epoch
        status = ints(stored, _STATUS)
        self._emit(key_batch, stored.filter(pa.array(ended & (status != CLOSED))))
        closed = _with_status(stored, np.where(ended, CLOSED, status))
        rest = closed.filter(pa.array(~self.operator.over(ints(stored, _END), epoch)))
        self._write(key_batch, np.full(len(firsts), NEVER, np.int64), rest)

    def _take_late(self) -> None:
        """Take the messages that a stored session takes, which it does in their order; set the others aside."""
        if not self.late:
            return
        batch, self.late = Batch.joined(self.late), []
        numbers = {_NUMBER: pa.array(np.arange(len(batch)))}
        tables = grouped(batch, self.accumulators, self.context, numbers)
        if not tables:
            return
        messages = concatenated(tables).sort_by(_NUMBER)
        if len(messages) < len(batch):
            batch = batch.take(messages.column(_NUMBER).to_pylist())
        key_batch = key_batch_of(messages.column(KEY).combine_chunks(), self.table.n_shards)
        stored, last = self._read(key_batch), self.context.last_epoch
        assert last is not None, "what is late is behind an epoch"
        intervals: dict[int, list[tuple[int, int]]] = {}
        for place, start, end in zip(*(stored.column(name).to_pylist() for name in (KEY, _START, _END)), strict=True):
            intervals.setdefault(place, []).append((start, end))
        taken = np.zeros(len(batch), bool)
        for number, (place, time) in enumerate(
            zip(key_batch.places(), messages.column(LATEST).to_pylist(), strict=True)
        ):
            known = intervals.get(place, [])
            near = [each for each in known if each[0] < time + self.gap and time < each[1]]
            end = max([time + self.gap, *(each[1] for each in near)])
            if end - 1 + self.operator.lateness > last:
                joined = (min([time, *(each[0] for each in near)]), end)
                intervals[place] = [*(each for each in known if each not in near), joined]
                taken[number] = True
        if taken.any():
            sessions = messages.filter(pa.array(taken))
            columns = [sessions.column(KEY), sessions.column(LATEST), *sessions.columns[2:]]
            names = [KEY, _FIRST, *sessions.schema.names[2:]]
            self.partial_sessions.append(regrouped(pa.table(columns, names), self.accumulators, (KEY, _FIRST)))
        if not taken.all():
            aside = batch.take(np.flatnonzero(~taken).tolist())
            self.context.count("late", len(aside))
            self.context.emit(aside, LATE)

    def _joined(self, sessions: pa.Table) -> tuple[pa.Table, Array]:
        """Return sessions in which those of a key that overlap are one, by key and start, and which of them are changed."""
        keys, ends, status = ints(sessions, KEY), ints(sessions, _END), ints(sessions, _STATUS)
        order, new = overlapping(keys, ints(sessions, _START), ends)
        firsts = np.flatnonzero(new)
        status = status[order]
        stored = status != _PARTIAL
        changed = np.logical_or.reduceat(~stored, firsts)
        emitted = np.logical_or.reduceat(stored & (status != OPEN), firsts)
        # A session that is not changed is one stored one, and keeps its status.
        joined = np.where(changed, np.where(emitted, REOPENED, OPEN), status[firsts])
        numbered = sessions.take(pa.array(order)).append_column(_NUMBER, pa.array(np.cumsum(new) - 1))
        totals = regrouped(numbered, self.accumulators, (_NUMBER,)).sort_by(_NUMBER)
        return (
            self._sessions(
                keys[order][firsts],
                ints(sessions, _START)[order][firsts],
                np.maximum.reduceat(ends[order], firsts),
                joined,
                [totals.column(accumulator.name) for accumulator in self.accumulators],
            ),
            changed,
        )

    def _emit(self, key_batch: KeyBatch, sessions: pa.Table) -> None:
        if not len(sessions):
            return
        sessions = sessions.sort_by([(_START, "ascending"), (KEY, "ascending")])
        starts, ends, status = (ints(sessions, name) for name in (_START, _END, _STATUS))
        self.operator.emit(self.context, key_batch, sessions, starts, ends, status != OPEN)

    def _read(self, key_batch: KeyBatch) -> pa.Table:
        """Return the stored sessions of the keys, each under its key's place, but for those that are over."""
        places, (starts, ends, status, *numbers) = self.rows.read(key_batch)
        sessions = self._sessions(places, starts, ends, status, numbers)
        over = self.operator.over(ends, self.context.last_epoch) & (status == CLOSED)
        return sessions.filter(pa.array(~over)) if over.any() else sessions

    def _write(self, key_batch: KeyBatch, armed: Ints, sessions: pa.Table) -> None:
        """Store the sessions of the keys, in their order, and set the timers that are not as they must be."""
        starts, ends, status = (ints(sessions, name) for name in (_START, _END, _STATUS))
        numbers = [sessions.column(accumulator.name).to_numpy() for accumulator in self.accumulators]
        self.rows.write(key_batch, ints(sessions, KEY), [starts, ends, status, *numbers])
        self.timers.move(key_batch.stored, key_batch.shards, armed, self._timers(key_batch, sessions))

    def _timers(self, key_batch: KeyBatch, sessions: pa.Table) -> Ints:
        """Return when each key has something due: a session that ends, or one that takes no messages from then on."""
        closed = ints(sessions, _STATUS) == CLOSED
        due = ints(sessions, _END) - 1 + np.where(closed, self.operator.lateness, 0)
        times = np.full(len(key_batch), NEVER, np.int64)
        np.minimum.at(times, ints(sessions, KEY), due)
        return times

    def _sessions(self, places: Array, starts: Array, ends: Array, status: Array, numbers: list[Any]) -> pa.Table:
        names = [KEY, _START, _END, _STATUS, *(accumulator.name for accumulator in self.accumulators)]
        return pa.table([places, starts, ends, status, *numbers], names=names)


def _with_status(sessions: pa.Table, status: Array) -> pa.Table:
    return sessions.set_column(sessions.schema.get_field_index(_STATUS), _STATUS, pa.array(status))


def _mapped(raw: bytes) -> list[list[int | float]]:
    """Return sessions that were stored as a map: by start the end, the status and the numbers, None where there is none."""
    sessions: dict[int, tuple[int, int, list[Any]]] = msgspec.msgpack.decode(raw)
    return [
        [start, end, status, *(0 if number is None else number for number in numbers)]
        for start, (end, status, numbers) in sorted(sessions.items())
    ]
