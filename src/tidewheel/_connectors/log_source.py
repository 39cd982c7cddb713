"""Sources that are logs: partitions of numbered records, read by ranges of numbers.

Kafka topics, JetStream streams and spool files are such logs. A connector implements `Log`: where a partition begins and
ends, and how to read a range of it. This module plans batches, limits, restarts and tasks for all of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from typing import TYPE_CHECKING

import pyarrow as pa

from tidewheel._checkpoint.manifest import Position
from tidewheel._connectors.source import Source, Unread
from tidewheel._core import pickling
from tidewheel.errors import ConfigError

if TYPE_CHECKING:
    from tidewheel._connectors.log_stream import LogReader

Positions = dict[str, int]
"""The number of the next record to read, by partition."""


class Log(ABC):
    """An open connection to a log. It raises errors of `tidewheel.errors`; after an error it is closed and opened again."""

    @abstractmethod
    def start(self) -> Positions:
        """Return the start position of a new job. Raise an error if the log does not exist."""

    @abstractmethod
    def end(self, start: Positions) -> Positions:
        """Return the position after the last record of each partition, for a job at the position `start`.

        Include everything that was durable before the call. A partition that is missing in `start` is new; the caller reads
        it from the position that `oldest` returns. `start` is empty if the position of the job is unknown.
        """

    def oldest(self, partition: str) -> int:
        """Return the first position of a partition that was added while the job ran."""
        return 0

    def check(self, recorded: Positions) -> None:  # noqa: B027
        """Raise an error if positions belong to another log. `end` checks this too, but repeated batches do not call it."""

    @abstractmethod
    def read(self, partition: str, first: int, last: int) -> Iterator[pa.RecordBatch]:
        """Yield the records of a partition from `first` to before `last`, in order. Repeated calls yield the same records."""

    def close(self) -> None:  # noqa: B027
        """Close the connection."""


Opener = Callable[[], Log]
"""Opens a log, in the planner and in each task. It is pickled, so it holds settings and no open resources."""


class PartitionedSource(Source):
    """A source that is a log. Its position is a number per partition. One task, or a few in slices, read a partition."""

    def __init_subclass__(cls) -> None:
        """Set the kind of log, unless the class does. A source of another kind cannot continue its positions."""
        super().__init_subclass__()
        if "kind" not in cls.__dict__:
            cls.kind = f"{cls.__name__.removesuffix('Source').lower()}-log"

    def __init__(self, opener: Opener, schema: pa.Schema, max_records: int | None, tasks: int = 1) -> None:
        """Take a function that opens the log, its columns, the size of a batch, and the number of tasks per partition."""
        if tasks < 1:
            raise ConfigError(f"tasks, the number of tasks that read, must be at least 1, not {tasks}")
        if max_records is not None and max_records < 1:
            raise ConfigError(f"max_records, the number of records in a batch, must be at least 1, not {max_records}")
        self.opener, self.schema, self.max_records, self.tasks = opener, schema, max_records, tasks

    def open(self) -> LogReader:
        """Check that the log exists, and return the reader."""
        with closing(self.opener()) as log:
            log.start()
        pickling.send_by_value(self.opener)
        return self.reader()

    def reader(self) -> LogReader:
        """Return the reader, without connecting."""
        from tidewheel._connectors.log_stream import LogReader

        return LogReader(self.opener, self.schema, self.max_records, self.tasks)

    def fields(self) -> dict[str, pa.DataType | None] | None:
        return {field.name: field.type for field in self.schema}

    def unread(self, position: Position) -> Mapping[str, Unread]:
        from tidewheel._connectors.log_stream import positions_of

        positions = positions_of(position)
        with closing(self.opener()) as log:
            end = log.end(positions)
        spans = {name: (positions[name], end[name]) for name in positions if name in end}
        return {name: Unread(max(0, last - first), first, last) for name, (first, last) in spans.items()}


def limited(start: Mapping[str, int], end: Mapping[str, int], most: int) -> Positions:
    """Return an end at most `most` records after `start`; each partition gets a share in proportion to its backlog.

    >>> limited({"0": 0, "1": 0}, {"0": 100, "1": 300}, 40)
    {'0': 10, '1': 30}
    >>> limited({"0": 0, "1": 0, "2": 0}, {"0": 1, "1": 1, "2": 1}, 2)
    {'0': 1, '1': 1, '2': 0}
    """
    backlog = {partition: last - start[partition] for partition, last in end.items()}
    total = sum(backlog.values())
    if total <= most:
        return dict(end)
    shares = {partition: most * size // total for partition, size in backlog.items()}
    spare = most - sum(shares.values())
    # The remainder goes to the partitions with the lowest positions, so that a small limit cannot starve a partition.
    for partition in sorted(backlog, key=lambda each: (shares[each] - backlog[each], start[each]))[:spare]:
        shares[partition] += 1
    return {partition: start[partition] + share for partition, share in shares.items()}
