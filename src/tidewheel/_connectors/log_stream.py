"""What Spark runs for a source that is a log: a Python data source whose offsets are positions by partition."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pyarrow as pa

from tidewheel._connectors.kept_logs import opened
from tidewheel._connectors.log_source import Log, Opener, Positions, limited
from tidewheel._connectors.memory.iterable_stream import cuts
from tidewheel._connectors.stream_reader import InputPartition, ReadAllAvailable, ReadLimit, ReadMaxRows, StreamReader

_Answer = TypeVar("_Answer")
_SLICE = 1000
"""How many records a slice of a partition has at least: for fewer, a task of their own is not worth its connection."""
_RECORD_BYTES = 100
"""About how large a record is, so that ranges can be compared."""


class LogReader(StreamReader):
    """Reads by positions: the same range gives the same records."""

    def __init__(self, opener: Opener, max_records: int | None, tasks: int = 1) -> None:
        """Take how to open the log; the planner opens it when it is first asked, and each task opens its own."""
        self.opener, self.max_records, self.tasks = opener, max_records, tasks
        self._opened: Log | None = None
        self._last: Positions | None = None
        self._checked = False
        """Whether the log is known to be the one that the job has read."""

    def initialOffset(self) -> Positions:
        """Begin where the log says."""
        return self._asked(lambda log: log.start())

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the size of a batch."""
        return ReadMaxRows(self.max_records) if self.max_records else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Let no record come that is not there now."""
        self._last = self._asked(lambda log: log.end({}))

    def batch_end(self, start: Positions, limit: ReadLimit) -> Positions:
        begin, end = self._asked(lambda log: _span(log, start))
        self._checked = True
        if self._last is not None:
            end = {name: min(last, self._last.get(name, begin[name])) for name, last in end.items()}
        end = {name: max(begin[name], last) for name, last in end.items()}
        return limited(begin, end, limit.max_rows) if isinstance(limit, ReadMaxRows) else end

    def partitions(self, start: Positions, end: Positions) -> list[InputPartition]:
        """Return the ranges that have something, each for a task."""
        if not self._checked:
            self._asked(lambda log: log.check(end))
            self._checked = True
        begin = {name: start[name] if name in start else self._asked(_oldest(name)) for name in end}
        return [
            InputPartition((name, begin[name] + at, begin[name] + at + size))
            for name, last in end.items()
            for at, size in cuts(last - begin[name], max(1, min(self.tasks, (last - begin[name]) // _SLICE)))
        ]

    def size_of(self, partition: InputPartition) -> int:
        _, first, last = partition.value
        return int(last - first) * _RECORD_BYTES

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Give a range's records."""
        name, first, last = partition.value
        with opened(self.opener) as log:
            yield from log.read(name, first, last)

    def stop(self) -> None:
        """Let go of the planner's connection."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def _asked(self, question: Callable[[Log], _Answer]) -> _Answer:
        """Return the log's answer; one that could not answer is opened anew the next time."""
        if self._opened is None:
            self._opened = self.opener()
        try:
            return question(self._opened)
        except BaseException:
            self.stop()
            raise

    def __getstate__(self) -> dict[str, Any]:
        """Leave the planner's connection behind."""
        return {**self.__dict__, "_opened": None}


def _span(log: Log, start: Positions) -> tuple[Positions, Positions]:
    """Return begin and end of what there is to read; a partition that is gone stays where it is."""
    end = {**start, **log.end(start)}
    return {name: start[name] if name in start else log.oldest(name) for name in end}, end


def _oldest(name: str) -> Callable[[Log], int]:
    return lambda log: log.oldest(name)
