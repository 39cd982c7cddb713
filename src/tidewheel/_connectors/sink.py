"""The interface of a sink: tasks stage output, and an idempotent `publish` in the driver makes it visible.

A batch's output goes through three steps. Tasks write and *prepare*: the output is durable and invisible, and a small
token says where it is. The commit records the tokens. The driver then *publishes* them; a crash in between leaves
committed tokens, which the next start publishes again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
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
    """The store and the identity with which a task stages output. Names derived from it are unique to the attempt."""

    store: Store
    """The job's folder in its state store, for sinks that cannot stage output in their own system."""
    job: str
    sink: str
    sequence: int
    attempt: str
    """Unique to this attempt of the task."""
    known: bytes | None = None
    """What the `known` of the sink returned in the driver before this batch."""


class SinkPartition(ABC):
    """One task's share of a batch's output."""

    @abstractmethod
    def write(self, columns: pa.RecordBatch) -> None:
        """Take rows."""

    @abstractmethod
    def prepare(self) -> bytes | None:
        """Make the output durable but not visible; return the token that `publish` needs, or None without output."""


@dataclass(frozen=True)
class Publication:
    """The committed tokens of one sink and one sequence, which the driver publishes."""

    store: Store
    job: str
    sink: str
    sequence: int
    tokens: tuple[bytes, ...]
    spark: SparkSession | None
    """The Spark session of the job; None in the in-memory runtime."""


class Sink(ABC, Generic[Written]):
    """Writes the output of a stream. It is sent to the tasks, so it holds settings and no open resources.

    `Sink[Order]` accepts streams of orders. A sink without a type accepts any stream.
    """

    guarantee: Guarantee
    retracts: bool = False
    """Whether `retract` can remove published output, so that the job can be restored to an earlier checkpoint."""
    distinguishes_absent_fields: ClassVar[bool] = False
    """Whether a missing field differs from a null field: then records with different fields are written separately."""

    def keyed_by(self, column: str | None) -> Sink[Written]:
        """Return this sink for a stream whose keys are in a column; None if the key is not written.

        A sink that writes a key uses this column unless it was given a key of its own. By default the sink is unchanged.
        """
        return self

    @abstractmethod
    def open(self, staging: Staging) -> SinkPartition:
        """Start the output of one task for one batch."""

    def known(self) -> bytes | None:
        """Return what the driver has learnt since the tasks got the sink, for all tasks of the next batch."""
        return None

    def before_commit(self, publication: Publication) -> None:
        """Raise an error if this output, which is about to be committed, could never be published.

        It is called in the driver, again if the commit fails and the batch is repeated.
        """

    @abstractmethod
    def publish(self, publication: Publication) -> None:
        """Make committed output visible. After a crash it is called again with the same publication, so it must be idempotent."""

    def place(self) -> str:
        """Return the kind and the place of the output, without credentials, as a commit records it.

        Pending output and output to retract after a restore are expected at that place. Omit details that can change while
        the place stays the same, such as the names of servers.
        """
        return type(self).__name__.lower()

    def newest(self, job: str, sink: str) -> int | None:
        """Return the newest published sequence of this job and sink: 0 if there is none, None if the sink does not know."""
        return None

    def retract(self, job: str, sink: str, after: int, before: int) -> str | None:
        """Remove the output of the sequences after `after` and before `before`. This must be idempotent.

        Return a text that says what was removed. It is called if `retracts` is set, before the first batch after a restore,
        when nothing after `after` is valid. Afterwards, `newest` must be below the sequences that the job will use. A run that
        was overtaken may publish one of the removed sequences later: the sink must ignore or reject it.
        """
        raise NotImplementedError(f"{self.describe()} cannot remove published output")

    def published(self, job: str, sink: str) -> str | None:
        """Return a text that says what `remove` would delete; None if there is nothing, or the sink cannot delete output."""
        return None

    def remove(self, job: str, sink: str) -> None:
        """Delete all output of this job and sink, and its markers.

        The state of the job is deleted too, so its next run starts from the beginning. This must be idempotent.
        """
        raise NotImplementedError(f"{self.describe()} cannot delete its output")

    def forget(self, job: str, sink: str, runs: Sequence[int]) -> None:
        """Delete the markers of finished runs of a fleet. All earlier runs are finished too.

        Runs publish under the name `job/number`. Reject their publications before deleting the first marker. A sink without
        markers has nothing to do. This must be idempotent.
        """

    def collect(self, job: str, sink: str, *, unpublished: Collection[int] = (), dry_run: bool = False) -> list[str]:
        """Delete the files that failed attempts of this job and sink left in the sink's place; return their paths.

        Only files that no reader can need, and not those of the sequences `unpublished`, whose output the job has
        committed and may still publish. With `dry_run`, delete nothing. A sink that leaves none has nothing to do.
        """
        return []

    def describe(self) -> str:
        """Return a short description for messages."""
        return type(self).__name__.lower()

    def start(self, job: str) -> None:
        """Check before the job starts that the sink is writable; raise a `ConfigError` that says what to do."""

    def check(self, job: str, sink: str) -> None:
        """Check before the first batch that new output does not conflict with the published output of this job and sink.

        Raise a `ConfigError` that says what to do. It is called before the job starts, and again after the start has
        published output of the previous run. In a fleet, `job` is `job/number`, and the output of all runs counts.
        """

    def stop(self, job: str) -> None:
        """Close the resources of publishing at the end of a run. Another run may follow."""

    def __getstate__(self) -> dict[str, Any]:
        return dict(self.__dict__)
