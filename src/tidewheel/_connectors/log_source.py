"""Sources that are logs: partitions of numbered records, read by ranges of numbers.

Kafka's topics, JetStream's streams and spools on a disk are all this. A connector says, as a `Log`, where a partition
begins and ends and how a range of it is read; planning batches, limits, restarts and tasks are here, once.
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
"""By partition, the number of the record that is read next."""


class Log(ABC):
    """An open connection to a log. It fails with errors of ours, and is then closed and opened anew."""

    @abstractmethod
    def start(self) -> Positions:
        """Return where a job begins that has read nothing; check that there is something to read from."""

    @abstractmethod
    def end(self, start: Positions) -> Positions:
        """Return the position behind the last record of each partition now, for a job that stands at `start`.

        It includes whatever was durable before the call. A partition that `start` lacks is new, and is read from its
        first record, which `start` of the result's caller takes from `oldest`. It may be empty: then nothing is known of the job.
        """

    def oldest(self, partition: str) -> int:
        """Return where a partition begins that was added while the job ran."""
        return 0

    def check(self, recorded: Positions) -> None:  # noqa: B027
        """Raise if positions are not of what is there now. `end` does so too; a batch that is read again has its end already."""

    @abstractmethod
    def read(self, partition: str, first: int, last: int) -> Iterator[pa.RecordBatch]:
        """Give the records of a partition from number `first` on and before `last`, in order; again, the same."""

    def close(self) -> None:  # noqa: B027
        """Let go of the connection."""


Opener = Callable[[], Log]
"""Opens a log, in the planner and in each task; it travels there, so it holds settings and nothing that runs."""


class PartitionedSource(Source):
    """A source that is a log. Its position is a number by partition; a partition is read by one task, or by a few, in slices."""

    def __init_subclass__(cls) -> None:
        """Name the kind of log, unless the class does: a source of another kind cannot take over its positions."""
        super().__init_subclass__()
        if "kind" not in cls.__dict__:
            cls.kind = f"{cls.__name__.removesuffix('Source').lower()}-log"

    def __init__(self, opener: Opener, schema: pa.Schema, max_records: int | None, tasks: int = 1) -> None:
        """Take how to open the log, its columns, how many records a batch may have, and how many tasks read a partition."""
        if tasks < 1:
            raise ConfigError(f"tasks is the number of tasks that read, at least 1, not {tasks}")
        if max_records is not None and max_records < 1:
            raise ConfigError(f"max_records is the number of records in a batch, at least 1, not {max_records}")
        self.opener, self.schema, self.max_records, self.tasks = opener, schema, max_records, tasks

    def open(self) -> LogReader:
        """Return the reader. Check first that the log is there."""
        with closing(self.opener()) as log:
            log.start()
        pickling.send_by_value(self.opener)
        return self.reader()

    def reader(self) -> LogReader:
        """Return the reader; nothing is contacted yet."""
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
    """Return an end with at most `most` records behind `start`: each partition has its share of what there is.

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
    # What rounding left over goes to those who stand furthest back, so that a small limit cannot starve anybody for ever.
    for partition in sorted(backlog, key=lambda each: (shares[each] - backlog[each], start[each]))[:spare]:
        shares[partition] += 1
    return {partition: start[partition] + share for partition, share in shares.items()}
