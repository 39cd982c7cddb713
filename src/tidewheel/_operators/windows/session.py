"""Session windows: the messages of a key that come less than a gap apart, of functions and of aggregates.

`SessionLogic` is where sessions are merged. Aggregates fold the messages of a key that are near each other into one partial
session before the shuffle; the logic then merges partial sessions instead of messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidewheel._operators.aggregates.functions import (
    Accumulator,
    Aggregate,
    accumulators_of,
    columns_of,
    continued,
    names_of,
    parsed,
    said,
)
from tidewheel._operators.aggregates.partial_results import KEY, LATEST, grouped, grouping_keys, keyed
from tidewheel._operators.base import Context, Conversion, Process, Reads
from tidewheel._operators.keyed.combiner import Combiner
from tidewheel._operators.keyed.message_buffer import MessageBuffer
from tidewheel._operators.keyed.output_buffer import OutputBuffer
from tidewheel._operators.keyed.stateful_op import LogicProcess
from tidewheel._operators.keyed.timed import LATE, time_of
from tidewheel._operators.logic import Message
from tidewheel._operators.windows.window import (
    CLOSED,
    OPEN,
    REOPENED,
    Fold,
    Panes,
    WindowLogic,
    WindowOperator,
    check_names,
)
from tidewheel._time.windows import Session
from tidewheel._values import ANY, Batch, Shape
from tidewheel._values.row import row_class
from tidewheel.errors import GraphError, OperatorError

_FIRST = "~first"
"""The column of the first timestamps, which is the first of partial sessions: messages have none of this name."""
_LAYOUT = "sessions of "
_MESSAGES, _SESSIONS = 0, 1
"""The inputs of the process behind the shuffle: messages as they came, and partial sessions."""


@dataclass(frozen=True, kw_only=True)
class SessionWindows(WindowOperator):
    """Fold the values of each key by sessions."""

    windows: Session

    def check(self, inputs: tuple[Shape, ...]) -> None:
        if self.fold.merge is None:
            raise GraphError("two sessions can grow into one: give merge=, a function of two folded values")

    def logic(self) -> SessionLogic:
        return SessionLogic(self.windows.gap, self.fold, self.lateness)


class SessionLogic(WindowLogic):
    """The sessions of each key."""

    ends_move = True

    def __init__(self, gap: int, fold: Fold, lateness: int) -> None:
        super().__init__(fold, lateness)
        self.gap = gap

    def on_data(self, message: Message, state: Panes, output: Any) -> Panes | None:
        """Take a message into its session, or set it aside where that is over."""
        time = time_of(message)
        if not self._extend(time, time, lambda folded: self.fold.add(folded, message.value), state, output):
            output.set_aside()
        return state or None

    def on_session(self, message: Message, state: Panes, output: Any) -> Panes | None:
        """Take a partial session: the message has the time of its first one, its value that of the last."""
        last, partial = message.value
        assert self.fold.merge is not None
        merge = self.fold.merge
        self._extend(time_of(message), last, lambda folded: merge(folded, partial), state, output)
        return state or None

    def _extend(self, first: int, last: int, take: Callable[[Any], Any], state: Panes, output: OutputBuffer) -> bool:
        """Take messages into a session: a new one, one that they prolong, or several that they join."""
        near = sorted(start for start, (end, _, _) in state.items() if start < last + self.gap and first < end)
        start = min([first, *near])
        end = max([last + self.gap, *(state[each][0] for each in near)])
        if self.is_over(end, output):
            return False
        status, waits = OPEN, False
        folded = None
        for number, each in enumerate(near):
            _, other, part = state.pop(each)
            waits = waits or other != CLOSED
            status = status if other == OPEN else REOPENED
            folded = part if number == 0 else self.fold.merge(folded, part)  # type: ignore[misc]
        folded = take(self.fold.default() if not near else folded)
        # A session that is prolonged keeps its timer, which sets the next when it fires too early.
        self.keep(start, end, status, folded, not waits, state, output)
        return True


@dataclass(frozen=True, kw_only=True)
class SessionAggregates(SessionWindows):
    """Keep aggregates of each key by sessions."""

    aggregates: dict[str, Aggregate]
    accumulators: tuple[Accumulator, ...]
    combines = True

    def reads(self) -> Reads:
        return Reads(columns_of(self.accumulators), (LATE,))

    def start(self, context: Context) -> Process:
        logic = self.logic()
        process = LogicProcess(logic, (logic.on_data, logic.on_session), self.spec(), context)
        return _Sessions(process, self.accumulators)

    def combiner(self, context: Context) -> Combiner:
        return _PartialSessions(self.windows.gap, self.lateness, self.accumulators, context)

    @property
    def state_layout(self) -> str:
        """The numbers that are kept of each session."""
        return f"{_LAYOUT}{names_of(self.accumulators)}"

    def continuing(self, layout: str) -> SessionAggregates | None:
        stored = _stored_numbers(layout)
        if stored is None:
            return None
        return session_aggregates(self.windows, self.lateness, *continued(self.aggregates, stored))

    def conversion(self, layout: str) -> Conversion | None:
        stored, codec = _stored_numbers(layout), self.spec().resolved_codec()
        if stored is None:
            return None
        begin = dict(zip(self.accumulators, self.fold.default(), strict=True))

        def convert(raw: bytes) -> bytes:
            sessions: Panes = {}
            for start, (end, status, numbers) in codec.decode(raw).items():
                held = begin | dict(zip(stored, numbers, strict=True))
                sessions[start] = (end, status, [held[number] for number in self.accumulators])
            return codec.encode(sessions)

        return Conversion(convert, said(self.aggregates, stored))


def session_aggregates(
    windows: Session,
    lateness: int,
    aggregates: dict[str, Aggregate],
    accumulators: tuple[Accumulator, ...] = (),
) -> SessionAggregates:
    """Return the operator whose results are rows: start, end, one column for each aggregate, correction.

    `accumulators` are its numbers in the order in which they are stored, where an earlier program's state says it.
    """
    check_names(aggregates)
    values = _ValueFold(aggregates, accumulators or accumulators_of(aggregates))
    fold = Fold(values.begin, values.add, values.merge, values.result)
    return SessionAggregates(
        windows=windows, fold=fold, lateness=lateness, aggregates=aggregates, accumulators=values.accumulators
    )


def _stored_numbers(layout: str) -> tuple[Accumulator, ...] | None:
    return parsed(layout.removeprefix(_LAYOUT)) if layout.startswith(_LAYOUT) else None


class _PartialSessions(Combiner):
    """Gives partial sessions, and as they are the messages that may be too late for any.

    A message whose own session is not over at the last epoch is taken whatever sessions there are, so it can be folded first.
    """

    def __init__(self, gap: int, lateness: int, accumulators: tuple[Accumulator, ...], context: Context) -> None:
        self.gap, self.accumulators, self.context = gap, accumulators, context
        self.reach = gap - 1 + lateness
        self.messages, self.ready = MessageBuffer(), list[Batch]()

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
            late_positions = set(late)
            batch = batch.take([at for at in range(len(batch)) if at not in late_positions])
        if len(batch):
            self.messages.add(batch, self._fold)
        yield from self._drained()

    def finish(self) -> Iterator[Batch]:
        self.messages.finish(self._fold)
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

    def __init__(self, process: LogicProcess, accumulators: tuple[Accumulator, ...]) -> None:
        self.process, self.accumulators = process, accumulators

    def on_batch(self, batch: Batch, port: int) -> None:
        if not batch.has_columns or batch.columns.schema.names[:1] != [_FIRST]:
            self.process.on_batch(batch, _MESSAGES)
            return
        columns = batch.columns
        numbers = zip(*(self._numbers(columns, accumulator) for accumulator in self.accumulators), strict=True)
        values = list(zip(columns.column(LATEST).to_pylist(), map(list, numbers), strict=True))
        times = columns.column(_FIRST).to_pylist()
        sessions = Batch(ANY, values=values, keys=batch.keys_made, key_column=batch.key_column, times=times)
        self.process.on_batch(sessions, _SESSIONS)

    def _numbers(self, columns: pa.RecordBatch, accumulator: Accumulator) -> list[Any]:
        column = columns.column(accumulator.name)
        if accumulator.fold in ("min", "max"):
            present = pc.greater(columns.column(accumulator.present.name), 0)
            column = pc.if_else(present, column, pa.scalar(None, column.type))
        numbers: list[Any] = column.to_pylist()
        return numbers

    def on_end_of_data(self) -> None:
        self.process.on_end_of_data()

    def on_schedule(self) -> None:
        self.process.on_schedule()

    def on_epoch(self, epoch: int) -> None:
        self.process.on_epoch(epoch)


@dataclass(frozen=True)
class _ValueFold:
    """Aggregates that take in one value after the other."""

    aggregates: dict[str, Aggregate]
    accumulators: tuple[Accumulator, ...]

    def begin(self) -> list[Any]:
        return [None if each.fold in ("min", "max") else 0 for each in self.accumulators]

    def add(self, numbers: list[Any], value: Any) -> list[Any]:
        for at, accumulator in enumerate(self.accumulators):
            number = 1 if accumulator.column is None else _field(value, accumulator.column)
            if number is not None:
                counts = accumulator.fold in ("count", "rows")
                numbers[at] = _folded(accumulator.fold, numbers[at], 1 if counts else number)
        return numbers

    def merge(self, left: list[Any], right: list[Any]) -> list[Any]:
        return [
            _folded(accumulator.fold, one, other) if other is not None else one
            for accumulator, one, other in zip(self.accumulators, left, right, strict=True)
        ]

    def result(self, start: int, end: int, numbers: list[Any], correction: bool) -> Any:
        known = dict(zip(self.accumulators, numbers, strict=True))
        results = [_result(aggregate, known) for aggregate in self.aggregates.values()]
        return row_class(("start", "end", *self.aggregates, "correction"))._make(  # type: ignore[attr-defined]
            (start, end, *results, correction)
        )


def _folded(fold: str, folded: Any, number: Any) -> Any:
    if folded is None:
        return number
    return min(folded, number) if fold == "min" else max(folded, number) if fold == "max" else folded + number


def _result(aggregate: Aggregate, known: dict[Accumulator, Any]) -> Any:
    numbers = [known[accumulator] for accumulator in aggregate.accumulators()]
    if aggregate.column is None or aggregate.kind == "count":
        return numbers[0]
    present, number = numbers
    if not present:
        return None
    return number / present if aggregate.kind == "mean" else number


def _field(value: Any, column: str) -> Any:
    if isinstance(value, dict):
        return value.get(column)
    if isinstance(value, int | float) and not isinstance(value, bool):
        # A stream keyed with value="amount" has that one column as its values.
        return value
    try:
        return getattr(value, column)
    except AttributeError:
        raise OperatorError(f"there is no column {column!r} in {value!r}") from None
