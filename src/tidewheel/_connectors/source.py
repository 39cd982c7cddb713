"""The interface of a source: positions, the splits between two positions, and a reader that lists them.

A run owns the positions. It asks each source's reader for its newest position within the limits of a batch, reads the splits
between two positions in its tasks, and commits the new position under the source's name with the batch's results.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple

import pyarrow as pa

from tidewheel._checkpoint.manifest import Position, SeenFile
from tidewheel._checkpoint.spark_log import OldPosition
from tidewheel._connectors.split import Split
from tidewheel._values import ROW, Shape
from tidewheel._values.type_variables import Record
from tidewheel.errors import StateError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Unread(NamedTuple):
    """The backlog of one partition of a source."""

    rows: int
    position: int
    """The position of the job, which grows as the job reads."""
    end: int
    """The position after the last record, which grows as records are appended."""
    files: int | None = None
    """The number of waiting files of a file source, whose number of rows is unknown."""
    since: float | None = None
    """The arrival time of the oldest waiting record, in seconds since 1970; None if only repeated checks can show it."""


class SourceReader(ABC):
    """Plans the reading of one source for one run, in the driver. The same two positions always have the same records."""

    schema: pa.Schema
    """The columns of the records in the splits."""
    fixed_start: ClassVar[bool] = False
    """Whether `start` always returns the same position, so that it need not be committed before there is data."""
    limit: int | None = None
    """How much the next batch may have, as `amount` counts it. `end` respects it as well as the limits of the source."""

    def project(self, names: Sequence[str]) -> None:
        """Read only these columns, in this order. Called once, before `splits`."""
        self.schema = pa.schema([self.schema.field(name) for name in names])

    @abstractmethod
    def start(self) -> Position:
        """Return the start position of a new job."""

    @abstractmethod
    def end(self, start: Position) -> Position:
        """Return the end of the batch that begins at `start`, within the limits of the source.

        If there is nothing new, return `start`.
        """

    def amount(self, start: Position, end: Position) -> int:
        """Return how much lies between two positions, by which batches are made as long as wanted: records, or bytes of files.

        0: that is not known, and `limit` has no effect. Called before the batch is committed.
        """
        return 0

    def freeze(self) -> None:  # noqa: B027
        """Ignore records that arrive from now on: the run ends when it has read the existing ones."""

    @abstractmethod
    def splits(self, start: Position, end: Position, tasks: int) -> list[Split]:
        """Return the splits between two positions, in the order of the source, enough to keep this many tasks busy."""

    def check(self, position: Position, last: SeenFile | None) -> None:  # noqa: B027
        """Raise an error if the source cannot continue at a committed position, before the run changes any state.

        `last` is the file that it took last, for a source of files. A `StateError` begins with "it", the source.
        """

    def missing(self, start: Position, end: Position) -> str | None:
        """Return which records between the positions of a committed batch are no longer retained, if the reader knows it."""
        return None

    def receive_nothing(self) -> None:  # noqa: B027
        """Read only records that are stored already: batches run again, and a running job may have the connection.

        Called before other methods.
        """

    def recall(self, seen: Iterable[SeenFile]) -> None:  # noqa: B027
        """Restore the files that this source has seen, from the newest commit. Called once, before other methods."""

    def reread(self, seen: Iterable[SeenFile]) -> None:  # noqa: B027
        """Make `splits` work for committed batches, whose files are among these. Called instead of `recall`."""

    def seen(self, start: Position, end: Position) -> list[SeenFile]:
        """Return the new files of a batch between these positions, for its commit. `source` may be empty."""
        return []

    def unread(self, position: Position) -> Mapping[str, Unread] | None:
        """Return the backlog at this position, by partition; None to ask the source instead. Can be called from any thread."""
        return None

    def committed(self, position: Position) -> None:  # noqa: B027
        """Release resources for positions before this one, which is committed."""

    def close(self) -> None:  # noqa: B027
        """Release connections and other resources."""


class Source(ABC, Generic[Record]):
    """A source of records. It opens a reader; for a streaming DataFrame of the user, Spark reads instead.

    `Source[Order]` has orders as records if the program declares no type (`Job.source(…, type=…)`). The records of a source
    without a type are rows.
    """

    shape: Shape = ROW
    """The shape of its records if the program declares none."""

    kind: ClassVar[str] = ""
    """The kind of its positions, such as `kafka-log`. Commits record it: a source of another kind cannot continue them."""

    def open(self) -> SourceReader:
        """Open the reader, in the driver. Raise a `ConfigError` or `ConnectorUnavailable` if the source cannot be read."""
        raise NotImplementedError(f"{type(self).__name__} has no reader")

    def adopt(self, old: OldPosition, seen: Sequence[SeenFile]) -> Position | None:
        """Return the position for a job whose commits contain Spark's log; None if it has read nothing yet.

        `seen` has the files that the source has seen, numbered from 0. Raise a `StateError` if another kind of source wrote
        the log.
        """
        if old.kinds != (self.kind,):
            raise other_kind(self.kind, old.kinds)
        position: Position | None = None if old.text is None else json.loads(old.text)
        return position

    @property
    def has_reader(self) -> bool:
        """Whether the run reads this source itself; otherwise a streaming query of Spark reads it."""
        return type(self).open is not Source.open

    @property
    def keeps_order(self) -> bool:
        """Whether messages of one key are processed in the order of the source; by default, if the source has a reader.

        Override it for a reader whose splits are in no order.
        """
        return self.has_reader

    def load(self, spark: SparkSession) -> DataFrame:
        """Return the streaming DataFrame, for a source without a reader."""
        raise NotImplementedError(f"{type(self).__name__} has neither `open` nor `load`")

    def check(self) -> None:
        """Raise a `ConfigError` for mistakes that can be found before Spark starts."""

    def check_program(self) -> None:
        """Like `check`, for a program that is only inspected: its folders may be created later, or on another machine."""
        self.check()

    def warnings(self) -> list[str]:
        """Return warnings about possible mistakes, for the start of the program and for `tidewheel graph`."""
        return []

    def unread(self, offsets: Position) -> Mapping[str, Unread]:
        """Return the backlog at this position, by partition; empty if it is unknown.

        A background thread calls this every few seconds. If it fails, it is called again.
        """
        return {}

    def fields(self) -> dict[str, pa.DataType | None] | None:
        """Return the known columns of its records before Spark starts; None if only the data has them.

        A type of None is unknown.
        """
        return None

    def declared(self, shape: Shape) -> Source[Any]:
        """Return the source for a program that declares this shape of its records. Most sources ignore it."""
        return self

    def seen_age_ms(self) -> int | None:
        """Return how long the files of a file source must be remembered; None for forever.

        A file that is older than the newest file by more than that is never read.
        """
        return None

    def describe(self) -> str:
        """Return a short description for messages."""
        return type(self).__name__.lower()

    def __getstate__(self) -> dict[str, Any]:
        """Refuse to be pickled: a source may hold a session or a million items, and tasks receive only its rows."""
        return {}


def smaller(one: int | None, other: int | None) -> int | None:
    """Return the smaller of two limits; either may be None.

    >>> smaller(None, 3), smaller(2, 3), smaller(None, None)
    (3, 2, None)
    """
    limits = [limit for limit in (one, other) if limit is not None]
    return min(limits) if limits else None


def other_kind(now: str, before: Sequence[str]) -> StateError:
    """Return the error for a source that cannot continue the positions of another kind."""
    was = before[0] if len(before) == 1 else f"{len(before)} streams ({', '.join(before)})"
    return StateError(f"it read {was} and now reads {now}, whose positions are not compatible")


class FunctionSource(Source):
    """A function from a Spark session to a streaming DataFrame, as a source."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function = function

    def load(self, spark: SparkSession) -> DataFrame:
        return self.function(spark)  # type: ignore[no-any-return]


def as_source(source: Source[Any] | Callable[[Any], Any]) -> Source[Any]:
    """Return the source, or a source that wraps the function."""
    return source if isinstance(source, Source) else FunctionSource(source)
