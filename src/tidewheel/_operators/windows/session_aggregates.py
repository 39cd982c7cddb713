"""Sessions of aggregates, computed in columns: the work is per key and session, without Python code per message.

The tasks that read the source fold neighbouring messages of a key into one partial session, before the shuffle. The state
of a key is the list of its sessions, each with start, end, status and numbers. Partial and stored sessions are intervals;
overlapping intervals are merged into one session.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidewheel._operators.accepted import accepted_places
from tidewheel._operators.aggregates.combiner import AggregateCombiner
from tidewheel._operators.aggregates.functions import Array, describe_changes
from tidewheel._operators.aggregates.operator import column_values, partial_results
from tidewheel._operators.aggregates.packed_rows import PackedRows, packed_list
from tidewheel._operators.aggregates.partial_results import (
    KEY,
    LATEST,
    Left64Bits,
    concatenated,
    grouped,
    grouping_keys,
    key_batch_of,
    merged,
    regrouped,
    regrouped_or_rejected,
    rows_of,
)
from tidewheel._operators.aggregates.values import TooManyDigits
from tidewheel._operators.base import Context, Conversion, Process
from tidewheel._operators.keyed.combiner import Combiner
from tidewheel._operators.keyed.message_buffer import MessageBuffer
from tidewheel._operators.keyed.timed import LATE
from tidewheel._operators.windows.due_keys import due_keys
from tidewheel._operators.windows.timed_aggregates import TimedAggregates, ints, with_valid_times
from tidewheel._operators.windows.window import CLOSED, OPEN, REOPENED
from tidewheel._state.key_batch import KeyBatch
from tidewheel._state.layout import SESSION_MAPS, SESSION_ROWS, Accumulator, StateLayout
from tidewheel._state.timers import NEVER
from tidewheel._time.intervals import overlapping
from tidewheel._time.panes import Ints, no_longer_than
from tidewheel._time.windows import Session
from tidewheel._values import Batch

_FIRST = "~first"
"""The column with the first timestamp, which is the first column of partial sessions. Messages have no such column."""
_NUMBER, _START, _END, _STATUS = "~number", "~start", "~end", "~status"
_BEFORE = 3
"""The number of columns of a stored session that are not aggregates: start, end and status."""
_PARTIAL = 3
"""The status of a partial session; stored sessions have others."""


@dataclass(frozen=True)
class SessionAggregates(TimedAggregates):
    """Keep aggregates of each key by sessions; a session is emitted once, when the epoch passes its end.

    Messages up to `lateness` after the end are still included; the session is then emitted again, once per batch, as a
    correction. Later messages go to the second output.
    """

    windows: Session
    lateness: int

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
    def state_layout(self) -> StateLayout:
        """The stored numbers of each session."""
        return StateLayout(SESSION_ROWS, numbers=tuple(self.accumulators))

    def stored_numbers(self, layout: StateLayout) -> tuple[Accumulator, ...] | None:
        # Earlier versions stored maps, which are rewritten when a job begins.
        return layout.numbers if layout.form in (SESSION_ROWS, SESSION_MAPS) else None

    def conversion(self, layout: StateLayout) -> Conversion | None:
        stored = self.stored_numbers(layout)
        if stored is None:
            return None
        convert = self.rewriting(stored, _BEFORE).convert
        if layout.form == SESSION_MAPS:
            rewrite, size = convert, _BEFORE + len(stored)
            return Conversion(
                lambda raw: rewrite(packed_list(_mapped(raw), size)), describe_changes(self.aggregates, stored)
            )
        return Conversion(convert, describe_changes(self.aggregates, stored))

    def separate_late(self, batch: Batch, context: Context) -> tuple[Batch | None, list[pa.Table]]:
        """Return the messages that only an existing session can include, and the partial sessions of the others.

        A message is always included if a session of its own would still be open at the epoch before the batch.
        """
        batch, times = with_valid_times(batch, context)
        late = None
        over = self.over(times + self.windows.gap, context.last_epoch)
        if over.any():
            late = batch.take(np.flatnonzero(over).tolist())
            batch, times = batch.take(np.flatnonzero(~over).tolist()), times[~over]
        return late, self._partial_sessions(batch, times, context) if len(batch) else []

    def over(self, ends: Array, epoch: int | None) -> Array:
        """Return which sessions, given by their ends, no longer accept messages at an epoch."""
        return np.zeros(len(ends), bool) if epoch is None else ends <= epoch + 1 - self.lateness

    def _partial_sessions(self, batch: Batch, times: Ints, context: Context) -> list[pa.Table]:
        keys = pc.dictionary_encode(grouping_keys(batch)).indices.to_numpy()
        order, new = overlapping(keys, times, times + self.windows.gap)
        firsts = np.empty(len(times), np.int64)
        firsts[order] = times[order][np.flatnonzero(new)[np.cumsum(new) - 1]]
        return grouped(batch, self.accumulators, context, {_FIRST: pa.array(firsts)})


class _PartialSessions(AggregateCombiner):
    """Send partial sessions, and pass on messages unchanged that may be too late for any session."""

    def __init__(self, operator: SessionAggregates, context: Context) -> None:
        super().__init__(operator.accumulators, context, context.shapes[LATE], (_FIRST,))
        self.operator = operator

    def fold(self, batch: Batch) -> list[pa.Table]:
        late, partial = self.operator.separate_late(batch, self.context)
        if late is not None:
            self.aside.append(late)
        return partial


class _Sessions(Process):
    def __init__(self, operator: SessionAggregates, context: Context) -> None:
        self.operator, self.context = operator, context
        self.gap, self.accumulators = operator.windows.gap, operator.accumulators
        self.table, self.timers = context.raw_table(), context.timers()
        self.rows = PackedRows(self.table, _BEFORE, self.accumulators, context.operator)
        self.messages, self.partial_sessions = MessageBuffer(), list[pa.Table]()
        self.late: list[Batch] = []

    def on_batch(self, batch: Batch, port: int) -> None:
        if batch.has_columns and batch.columns.schema.names[:1] == [_FIRST]:
            self.partial_sessions.append(partial_results(batch))
        elif len(batch):
            self.messages.add(batch, self._fold)

    def _fold(self, batch: Batch) -> None:
        late, partial = self.operator.separate_late(batch, self.context)
        self.partial_sessions += partial
        if late is not None:
            self.late.append(late)

    def on_end_of_data(self) -> None:
        """Merge the partial sessions into the state, and emit those that ended before the batch."""
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
        whole, touched = self._taken_in(key_batch, stored, partial)
        if last is not None:
            ended = touched & (ints(whole, _END) - 1 <= last)
            self._emit(key_batch, whole.filter(pa.array(ended)))
            whole = _with_status(whole, np.where(ended, CLOSED, ints(whole, _STATUS)))
        # The lateness determines when a closed session is deleted, and a program with another lateness may have set
        # the timer.
        waiting = stored.filter(pa.array(ints(stored, _STATUS) != CLOSED))
        self._write(key_batch, self._timers(key_batch, waiting), whole)
        self.operator.set_early_timers(self.timers, key_batch, last)
        if self.operator.with_each_batch:
            self._emit_open(key_batch, whole, self.context.clock())

    def on_epoch(self, epoch: int) -> None:
        """Emit the sessions that have ended, and delete those that accept no more messages."""
        key_batch, firsts, early = due_keys(self.timers, self.context.shards_awake(self.timers), epoch)
        if not len(firsts):
            return
        stored = self._read(key_batch)
        ended = ints(stored, _END) - 1 <= epoch
        status = ints(stored, _STATUS)
        self._emit(key_batch, stored.filter(pa.array(ended & (status != CLOSED))))
        closed = _with_status(stored, np.where(ended, CLOSED, status))
        rest = closed.filter(pa.array(~self.operator.over(ints(stored, _END), epoch)))
        self._write(key_batch, np.full(len(firsts), NEVER, np.int64), rest)
        if self.operator.early is not None and early.any():
            self._emit_open(key_batch, rest.filter(pa.array(early[ints(rest, KEY)])), epoch)

    def _take_late(self) -> None:
        """Add late messages to stored sessions in order; send the others to the late output."""
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
            late = pa.table(columns, names)
            self.partial_sessions.append(regrouped_or_rejected(late, self.accumulators, (KEY, _FIRST), self.context))
        if not taken.all():
            aside = batch.take(np.flatnonzero(~taken).tolist())
            self.context.count("late", len(aside))
            self.context.emit(aside, LATE)

    def _taken_in(self, key_batch: KeyBatch, stored: pa.Table, partial: pa.Table) -> tuple[pa.Table, Array]:
        """Return the stored sessions with the partial ones, and which of them are changed.

        A partial session that makes a sum leave 64 bits is rejected.
        """
        try:
            return self._joined(concatenated([stored, partial]))
        except (Left64Bits, TooManyDigits):
            taken, whole = stored, self._joined(stored)

        def attempt(_: Batch, place: slice) -> tuple[pa.Table, tuple[pa.Table, Array]]:
            more = concatenated([taken, partial[place]])
            return more, self._joined(more)

        for _, (taken, whole) in accepted_places(self.context, rows_of(partial, key_batch.keys), attempt):  # noqa: B007
            pass
        return whole

    def _joined(self, sessions: pa.Table) -> tuple[pa.Table, Array]:
        """Merge the overlapping sessions of each key; return them by key and start, and which of them changed."""
        keys, ends, status = ints(sessions, KEY), ints(sessions, _END), ints(sessions, _STATUS)
        order, new = overlapping(keys, ints(sessions, _START), ends)
        firsts = np.flatnonzero(new)
        status = status[order]
        stored = status != _PARTIAL
        changed = np.logical_or.reduceat(~stored, firsts)
        emitted = np.logical_or.reduceat(stored & (status != OPEN), firsts)
        # An unchanged session is a single stored one, and keeps its status.
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

    def _emit_open(self, key_batch: KeyBatch, sessions: pa.Table, clock: int | None) -> None:
        """Emit early results of the sessions that end after the clock."""
        is_open = np.ones(len(sessions), bool) if clock is None else ints(sessions, _END) - 1 > clock
        self._emit(key_batch, sessions.filter(pa.array(is_open)), final=False)

    def _emit(self, key_batch: KeyBatch, sessions: pa.Table, *, final: bool = True) -> None:
        if not len(sessions):
            return
        sessions = sessions.sort_by([(_START, "ascending"), (KEY, "ascending")])
        starts, ends, status = (ints(sessions, name) for name in (_START, _END, _STATUS))
        self.operator.emit(self.context, key_batch, sessions, starts, ends, status != OPEN, final=final)

    def _read(self, key_batch: KeyBatch) -> pa.Table:
        """Return the stored sessions of the keys, each with the index of its key, without those that are over."""
        places, (starts, ends, status, *numbers) = self.rows.read(key_batch)
        sessions = self._sessions(places, starts, ends, status, numbers)
        over = self.operator.over(ends, self.context.last_epoch) & (status == CLOSED)
        return sessions.filter(pa.array(~over)) if over.any() else sessions

    def _write(self, key_batch: KeyBatch, armed: Ints, sessions: pa.Table) -> None:
        """Store the sessions of the keys in order, and correct the timers."""
        starts, ends, status = (ints(sessions, name) for name in (_START, _END, _STATUS))
        numbers = [column_values(sessions, accumulator) for accumulator in self.accumulators]
        self.rows.write(key_batch, ints(sessions, KEY), [starts, ends, status, *numbers])
        self.timers.move(key_batch.stored, key_batch.shards, armed, self._timers(key_batch, sessions))

    def _timers(self, key_batch: KeyBatch, sessions: pa.Table) -> Ints:
        """Return the next due time of each key: a session ends, or stops accepting messages."""
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
    """Return sessions that were stored as a map from start to end, status and numbers, with None for missing numbers."""
    sessions: dict[int, tuple[int, int, list[Any]]] = msgspec.msgpack.decode(raw)
    return [
        [start, end, status, *(0 if number is None else number for number in numbers)]
        for start, (end, status, numbers) in sorted(sessions.items())
    ]
