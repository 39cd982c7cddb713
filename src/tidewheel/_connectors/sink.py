"""What a sink is: partitions that stage output in the tasks, and a publish that makes it visible, idempotently.

A batch's output goes through three steps. Tasks write and *prepare*: the output is durable and invisible, and a small
token says where it is. The commit records the tokens. The driver then *publishes* them; a crash in between leaves
committed tokens, which the next start publishes again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal

import pyarrow as pa

from tidewheel._values.type_variables import Written

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidewheel._storage import Store

Guarantee = Literal["exactly once", "effectively once", "at least once"]


@dataclass(frozen=True)
class Staging:
    """Where and as whom a task stages output: names made from it are unique to the attempt."""

    store: Store
    """The job's folder in its state store, for sinks without a place of their own to stage at."""
    job: str
    sink: str
    sequence: int
    attempt: str
    """Unique to this attempt of this task of this run."""


class SinkPartition(ABC):
    """One task's share of a batch's output."""

    @abstractmethod
    def write(self, columns: pa.RecordBatch) -> None:
        """Take rows."""

    @abstractmethod
    def prepare(self) -> bytes | None:
        """Make what was written durable, still invisible; return the token that publishes it, None if there is nothing."""


@dataclass(frozen=True)
class Publication:
    """What a driver publishes: the committed tokens of one sink and one sequence."""

    store: Store
    job: str
    sink: str
    sequence: int
    tokens: tuple[bytes, ...]
    spark: SparkSession | None
    """The session that the job runs in; None in the in-memory runtime."""


class Sink(ABC, Generic[Written]):
    """Takes the output of a stream. It travels to the tasks, so it holds settings and nothing that runs.

    `Sink[Order]` takes streams of orders. A sink without a type takes streams of anything.
    """

    guarantee: Guarantee
    retracts: ClassVar[bool] = False
    """Whether `retract` takes back what was published, so that the job can be restored to before it."""
    minds_absent_fields: ClassVar[bool] = False
    """Whether a field that a record lacks differs from one that is null: then records with other fields come apart."""

    @abstractmethod
    def open(self, staging: Staging) -> SinkPartition:
        """Begin one task's output of one batch."""

    @abstractmethod
    def publish(self, publication: Publication) -> None:
        """Make committed output visible. Called again after a crash with the same publication: it must do no harm."""

    def place(self) -> str:
        """Return the kind and the place of the output, without credentials, as a commit records it.

        Output that is committed and not published yet, or void after a restore, is expected at that place. Leave out what may
        change while the place stays the same, such as the names of servers.
        """
        return type(self).__name__.lower()

    def newest(self, job: str, sink: str) -> int | None:
        """Return the newest sequence that is published for this job and sink, 0 if none is; None if the sink cannot tell."""
        return None

    def retract(self, job: str, sink: str, after: int, before: int) -> str | None:
        """Take back what was published for the sequences above `after` and below `before`; again does no harm.

        Return what was taken back, for people. Called for sinks that say `retracts`, before the first batch after a restore:
        nothing above `after` is valid then. From then on `newest` is below the sequences that the job will use.
        """
        raise NotImplementedError(f"{self.describe()} cannot take back what it published")

    def published(self, job: str, sink: str) -> str | None:
        """Return what `remove` takes away, for people; None if there is nothing, or the sink cannot take anything away."""
        return None

    def remove(self, job: str, sink: str) -> None:
        """Take away all that was published for this job and sink, and the marks of how far that went.

        The job's state is gone: its next run counts from the beginning. Called again, it does no harm.
        """
        raise NotImplementedError(f"{self.describe()} cannot take away what it published")

    def forget(self, job: str, sink: str, runs: Sequence[int]) -> None:
        """Let go of what tells how far these runs of a fleet have published; they are over, and so are all before them.

        They publish as `job/number`. From the first of its steps on, nothing is published for them. A sink that keeps no
        marker has nothing to let go of. Called again, it does no harm.
        """

    def describe(self) -> str:
        """Return a few words for messages."""
        return type(self).__name__.lower()

    def start(self, job: str) -> None:
        """Check, before the job starts, that the sink can be written to; raise a `ConfigError` that says what to do."""

    def check(self, job: str, sink: str) -> None:
        """Refuse, before the first batch, to add to what was published for this job and sink, where that does not go together.

        Raise a `ConfigError` that says what to do. It is called before the job starts, and again where output of the run before
        was published at the start. In a fleet, `job` is `job/number`, and what any run of the job has published counts.
        """

    def stop(self, job: str) -> None:
        """Let go of what publishing for this job has opened: its run is over. Another run may follow."""

    def __getstate__(self) -> dict[str, Any]:
        return dict(self.__dict__)
