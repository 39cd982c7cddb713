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
    """What a partition of a source holds that a job has not read."""

    rows: int
    position: int
    """Where the job stands; it grows as the job reads."""
    end: int
    """The position behind the last record; it grows as records are appended."""
    files: int | None = None
    """How many files wait, for a source of files: how many rows these have, nobody has counted."""
    since: float | None = None
    """When the oldest of what waits came, in seconds since 1970; None: that is known only by looking again and again."""


class SourceReader(ABC):
    """Reads one source for one run, in the driver. The same two positions always give the same records."""

    schema: pa.Schema
    """The columns of the records that the splits give."""
    fixed_start: ClassVar[bool] = False
    """Whether `start` gives the same position at any time, so that it need not be committed before there is data."""

    def project(self, names: Sequence[str]) -> None:
        """Give only these columns from now on, in this order. Called once, before `splits`, with names of columns."""
        self.schema = pa.schema([self.schema.field(name) for name in names])

    @abstractmethod
    def start(self) -> Position:
        """Return where a job begins that has read nothing."""

    @abstractmethod
    def end(self, start: Position) -> Position:
        """Return where the batch ends that begins at `start`, within the source's limits.

        `start` itself means that there is nothing new.
        """

    def freeze(self) -> None:  # noqa: B027
        """Ignore everything that arrives from now on: the run ends when it has read what is there."""

    @abstractmethod
    def splits(self, start: Position, end: Position, tasks: int) -> list[Split]:
        """Return the splits between two positions, in the order of the source, enough to keep this many tasks busy."""

    def recall(self, seen: Iterable[SeenFile]) -> None:  # noqa: B027
        """Restore what the newest commit holds of the files that this source has seen. Called once, before anything else."""

    def seen(self, start: Position, end: Position) -> list[SeenFile]:
        """Return the files that a batch between these positions has seen first, for its commit. `source` may be empty."""
        return []

    def unread(self, position: Position) -> Mapping[str, Unread] | None:
        """Return what is there, by partition, and not read by a job at this position; None: ask the source. From any thread."""
        return None

    def committed(self, position: Position) -> None:  # noqa: B027
        """Release what the source keeps only for positions before this one: it is committed."""

    def close(self) -> None:  # noqa: B027
        """Release connections and other resources."""


class Source(ABC, Generic[Record]):
    """Where records come from. A source opens a reader; a streaming DataFrame of the user's is read by Spark instead.

    `Source[Order]` gives orders where the program declares no type (`Job.source(…, value=…)`). A source without a type gives
    rows.
    """

    shape: Shape = ROW
    """What its records look like where the program declares nothing."""

    kind: ClassVar[str] = ""
    """What its positions are of, such as `kafka-log`. It is recorded: a source of another kind cannot continue them."""

    def open(self) -> SourceReader:
        """Open the reader, in the driver. Raise a `ConfigError` or `ConnectorUnavailable` if the source cannot be read."""
        raise NotImplementedError(f"{type(self).__name__} has no reader of its own")

    def adopt(self, old: OldPosition, seen: Sequence[SeenFile]) -> Position | None:
        """Return the position for a job whose commits hold Spark's log; None: it has read nothing yet.

        `seen` are the files that the source has seen, numbered from 0. Raise a `StateError` if another kind of source read it.
        """
        if old.kinds != (self.kind,):
            raise other_kind(self.kind, old.kinds)
        position: Position | None = None if old.text is None else json.loads(old.text)
        return position

    @property
    def has_reader(self) -> bool:
        """Whether the run reads this source itself; otherwise a streaming query of Spark reads it."""
        return type(self).open is not Source.open

    def load(self, spark: SparkSession) -> DataFrame:
        """Return the streaming DataFrame, for a source without a reader of its own."""
        raise NotImplementedError(f"{type(self).__name__} has neither `open` nor `load`")

    def check(self) -> None:
        """Refuse, with a `ConfigError`, what can be known to fail before Spark starts."""

    def check_program(self) -> None:
        """As `check`, where the program is looked at and not run: its folders may be made later, or on another machine."""
        self.check()

    def doubts(self) -> list[str]:
        """Return what may be a mistake, and may be meant, for whoever starts the program or looks at it. `check` has passed."""
        return []

    def unread(self, offsets: Position) -> Mapping[str, Unread]:
        """Return what is there, by partition, and not read by a job that stands at these offsets; empty: it cannot tell.

        A thread of its own asks this every few seconds. It may fail: then it is asked again.
        """
        return {}

    def fields(self) -> dict[str, pa.DataType | None] | None:
        """Return the columns of its records as far as they are known before Spark starts; None: only the data can tell.

        A type of None is one that is not known.
        """
        return None

    def declared(self, shape: Shape) -> Source[Any]:
        """Return the source for a program that declares this shape of its records; most have no use for it."""
        return self

    def seen_age_ms(self) -> int | None:
        """Return for how long the files of a file source must be remembered; None: for ever.

        A file that is older than the newest one by more than that is never read, whether it was seen or not.
        """
        return None

    def describe(self) -> str:
        """Return a few words for messages."""
        return type(self).__name__.lower()

    def __getstate__(self) -> dict[str, Any]:
        """Stay in the driver: a source may hold a session or a million items, and tasks get its rows, not itself."""
        return {}


def other_kind(now: str, before: Sequence[str]) -> StateError:
    """Return the error for a source that cannot continue the positions of another kind."""
    was = before[0] if len(before) == 1 else f"{len(before)} streams ({', '.join(before)})"
    return StateError(f"it read {was} and now reads {now}: the positions of one mean nothing to the other")


class FunctionSource(Source):
    """A function from a Spark session to a streaming DataFrame, as a source."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function = function

    def load(self, spark: SparkSession) -> DataFrame:
        return self.function(spark)  # type: ignore[no-any-return]


def as_source(source: Source[Any] | Callable[[Any], Any]) -> Source[Any]:
    """Return the source, or the function dressed as one."""
    return source if isinstance(source, Source) else FunctionSource(source)
