"""The reader of a log source. Its position is the number of the next record, by partition."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa

from tidewheel._checkpoint.manifest import Position, SeenFile
from tidewheel._connectors.kept_logs import opened
from tidewheel._connectors.log_source import Log, Opener, Positions, limited
from tidewheel._connectors.memory.iterable_stream import cuts
from tidewheel._connectors.source import SourceReader, smaller
from tidewheel._connectors.split import Place, Split, fitted
from tidewheel.errors import StateError

_Answer = TypeVar("_Answer")
_SLICE = 1000
"""The minimum number of records in a slice of a partition. For fewer, a separate task is not worth its connection."""
_RECORD_BYTES = 100
"""The estimated size of a record, to compare ranges."""
_LARGEST = 2**63
_NUMBERS = ("offset", "sequence")
"""The columns with the numbers of records, as Kafka and JetStream name them."""


@dataclass(frozen=True)
class LogSplit(Split):
    """A range of a partition, which a task reads over its own connection."""

    opener: Opener
    partition: str
    first: int
    last: int
    columns: pa.Schema

    @property
    def size(self) -> int:  # type: ignore[override]  # it is not set, it follows
        return (self.last - self.first) * _RECORD_BYTES

    def read(self) -> Iterator[pa.RecordBatch]:
        with opened(self.opener) as log:
            for batch in log.read(self.partition, self.first, self.last):
                yield fitted(batch, self.columns)

    def located(self) -> Iterator[tuple[pa.RecordBatch, list[Place]]]:
        first = self.first
        with opened(self.opener) as log:
            for batch in log.read(self.partition, self.first, self.last):
                name = next((each for each in _NUMBERS if each in batch.schema.names), None)
                # A log without a column of numbers has no gaps.
                numbers = range(first, first + batch.num_rows) if name is None else batch.column(name).to_pylist()
                places: list[Place] = [{"partition": self.partition, name or "offset": number} for number in numbers]
                yield fitted(batch, self.columns), places
                first += batch.num_rows


class LogReader(SourceReader):
    """Read a log by positions. The same range always has the same records."""

    def __init__(self, opener: Opener, schema: pa.Schema, max_records: int | None, tasks: int = 1) -> None:
        """Take a function that opens the log. The driver opens it on first use, and each task opens its own."""
        self.opener, self.schema, self.max_records, self.tasks = opener, schema, max_records, tasks
        self._opened: Log | None = None
        self._last: Positions | None = None
        self._checked = False
        """Whether the log was checked to be the one that the job has read before."""

    def start(self) -> Position:
        return _recorded(self._asked(lambda log: log.start()))

    def freeze(self) -> None:
        self._last = self._asked(lambda log: log.end({}))

    def check(self, position: Position, last: SeenFile | None) -> None:
        self._asked(lambda log: _span(log, positions_of(position)))
        self._checked = True

    def end(self, start: Position) -> Position:
        begin, end = self._asked(lambda log: _span(log, positions_of(start)))
        self._checked = True
        if self._last is not None:
            end = {name: min(last, self._last.get(name, begin[name])) for name, last in end.items()}
        end = {name: max(begin[name], last) for name, last in end.items()}
        most = smaller(self.max_records, self.limit)
        return _recorded(end if most is None else limited(begin, end, most))

    def amount(self, start: Position, end: Position) -> int:
        first, last = positions_of(start), positions_of(end)
        # A partition that is new has no first position in `start`, and the ids of topics do not change.
        return sum(until - first[name] for name, until in last.items() if name in first)

    def splits(self, start: Position, end: Position, tasks: int) -> list[Split]:
        first, last = positions_of(start), positions_of(end)
        if not self._checked:
            self._asked(lambda log: log.check(last))
            self._checked = True
        begin = {name: first[name] if name in first else self._asked(_oldest(name)) for name in last}
        return [
            LogSplit(self.opener, name, begin[name] + at, begin[name] + at + size, self.schema)
            for name, until in last.items()
            for at, size in cuts(until - begin[name], max(1, min(self.tasks, (until - begin[name]) // _SLICE)))
        ]

    def missing(self, start: Position, end: Position) -> str | None:
        first = positions_of(start)
        for name, until in positions_of(end).items():
            begin = first.get(name, until)
            if begin < until and begin < (oldest := self._asked(_oldest(name))):
                return f"partition {name} retains records from {oldest} on, and the batch begins at {begin}"
        return None

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def _asked(self, question: Callable[[Log], _Answer]) -> _Answer:
        """Call the log; after an error, open it again for the next call."""
        if self._opened is None:
            self._opened = self.opener()
        try:
            return question(self._opened)
        except BaseException:
            self.close()
            raise


def positions_of(position: Position) -> Positions:
    """Return a recorded position as numbers by partition.

    >>> positions_of({"orders/0": 7, "orders#id": "18446744073709551616"})
    {'orders/0': 7, 'orders#id': 18446744073709551616}
    """
    recorded: Mapping[str, Any] = position if isinstance(position, dict) else {}
    try:
        return {name: int(number) for name, number in recorded.items()}
    except (TypeError, ValueError, OverflowError) as error:
        raise StateError(f"the position of a log has a number for each partition, not {position!r} ({error})") from None


def _recorded(positions: Positions) -> Position:
    """Return numbers by partition in their recorded form: numbers of more than 64 bits as text."""
    return {name: number if number < _LARGEST else str(number) for name, number in positions.items()}


def _span(log: Log, start: Positions) -> tuple[Positions, Positions]:
    """Return the begin and end of the range to read. A partition that no longer exists keeps its position."""
    end = {**start, **log.end(start)}
    return {name: start[name] if name in start else log.oldest(name) for name in end}, end


def _oldest(name: str) -> Callable[[Log], int]:
    return lambda log: log.oldest(name)
