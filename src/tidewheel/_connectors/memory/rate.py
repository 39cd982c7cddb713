"""rate: numbered rows at a steady pace."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tidewheel._checkpoint.manifest import Position, SeenFile
from tidewheel._checkpoint.spark_log import OldPosition
from tidewheel._connectors.memory.iterable_stream import cuts
from tidewheel._connectors.source import Source, SourceReader
from tidewheel._connectors.split import Split, fitted
from tidewheel._time.duration import Duration, nanoseconds
from tidewheel.errors import ConfigError

_SCHEMA = pa.schema([("timestamp", pa.timestamp("us", "UTC")), ("value", pa.int64())])
_ROW_BYTES = 16
_AT_ONCE = 100_000


def rate(rows_per_second: int, *, partitions: int | None = None, ramp_up: Duration | None = None) -> Source:
    """Generate rows `timestamp`, `value` with the values 0, 1, 2, … at this rate, for tests and load tests.

    On replay a batch has the same values and timestamps again. The first batch after a pause has everything that was due
    meanwhile, and so has the one batch of a run with until="caught-up". `ramp_up`, such as "10s", is the time until the pace
    is reached. A batch is read by up to `partitions` tasks (None: as many as the job has).
    """
    if rows_per_second < 1:
        raise ConfigError(f"rate needs at least one row per second, not {rows_per_second}")
    if partitions is not None and partitions < 1:
        raise ConfigError(f"partitions, the number of tasks that read, must be at least 1, not {partitions}")
    seconds = 0 if ramp_up is None else nanoseconds(ramp_up, "ramp_up of the source rate") // 10**9
    return Rate(rows_per_second, partitions, seconds)


class Rate(Source):
    """Numbered rows. The position has the start time of the job, and for how many seconds it has read rows."""

    kind = "rate"

    def __init__(self, rows_per_second: int, partitions: int | None, ramp_up: int) -> None:
        """Take the rate, the number of tasks, and the seconds until the rate is reached."""
        self.rows_per_second, self.partitions, self.ramp_up = rows_per_second, partitions, ramp_up

    def open(self) -> RateReader:
        return RateReader(self.rows_per_second, self.partitions, self.ramp_up)

    def fields(self) -> dict[str, pa.DataType | None] | None:
        return {field.name: field.type for field in _SCHEMA}

    def adopt(self, old: OldPosition, seen: Sequence[SeenFile]) -> Position | None:
        seconds = super().adopt(old, seen)
        # Spark stored the start time of the stream in a small file.
        began = [text.split("\n")[-1] for _, text in sorted(old.files.items())]
        return {"began_ms": int(began[-1]), "seconds": seconds} if seconds is not None and began else None


class RateReader(SourceReader):
    """Count the seconds since the job started."""

    def __init__(
        self, rows_per_second: int, partitions: int | None, ramp_up: int, clock: Callable[[], float] = time.time
    ) -> None:
        """Take the rate; `clock` returns seconds since 1970."""
        self.schema = _SCHEMA
        self._pace, self._partitions, self._ramp_up, self._clock = rows_per_second, partitions, ramp_up, clock
        self._now: float | None = None

    def start(self) -> Position:
        return {"began_ms": int(self._clock() * 1000), "seconds": 0}

    def freeze(self) -> None:
        self._now = self._clock()

    def end(self, start: Position) -> Position:
        began, seconds = _parts(start)
        now = self._clock() if self._now is None else self._now
        # If the clock was set back, there are no rows until it has caught up.
        end = max(seconds, int(now * 1000 - began) // 1000)
        if self.limit is not None:
            end = min(end, seconds + max(1, self.limit // self._pace))
        return {"began_ms": began, "seconds": end}

    def amount(self, start: Position, end: Position) -> int:
        first, last = (value_at(_parts(position)[1], self._pace, self._ramp_up) for position in (start, end))
        return last - first

    def splits(self, start: Position, end: Position, tasks: int) -> list[Split]:
        began, first = _parts(start)
        _, last = _parts(end)
        low, high = (value_at(second, self._pace, self._ramp_up) for second in (first, last))
        span = RateSpan(began + first * 1000, (last - first) * 1000 / max(1, high - low), low, self.schema)
        return [
            RateSplit(span, low + at, size, size * _ROW_BYTES)
            for at, size in cuts(high - low, self._partitions or tasks)
        ]


@dataclass(frozen=True)
class RateSpan:
    """The common settings of the rows of a batch."""

    from_ms: int
    ms_per_row: float
    first: int
    columns: pa.Schema


@dataclass(frozen=True)
class RateSplit(Split):
    """Some rows of a batch."""

    span: RateSpan
    first: int
    rows: int
    size: int

    def read(self) -> Iterator[pa.RecordBatch]:
        for first in range(self.first, self.first + self.rows, _AT_ONCE):
            values = np.arange(first, min(first + _AT_ONCE, self.first + self.rows), dtype=np.int64)
            times = self.span.from_ms + np.round((values - self.span.first) * self.span.ms_per_row).astype(np.int64)
            stamps = pa.array(times * 1000, pa.int64()).cast(_SCHEMA.field("timestamp").type)
            yield fitted(pa.RecordBatch.from_arrays([stamps, pa.array(values)], schema=_SCHEMA), self.span.columns)


def value_at(second: int, pace: int, ramp_up: int) -> int:
    """Return the number of rows before a second. During the ramp-up, the rate grows by the same number each second.

    >>> [value_at(second, 10, 4) for second in range(7)]
    [0, 2, 6, 12, 20, 30, 40]
    """
    growth = pace // (ramp_up + 1)
    if second <= ramp_up:
        return second * (second + 1) // 2 * growth
    return ramp_up * (ramp_up + 1) // 2 * growth + (second - ramp_up) * pace


def _parts(position: Position) -> tuple[int, int]:
    assert isinstance(position, dict)
    return position["began_ms"], position["seconds"]
