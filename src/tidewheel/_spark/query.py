"""What offers a run its batches, one after the other: a streaming query of Spark, or the run itself."""

from __future__ import annotations

from abc import ABC, abstractmethod

from pyspark.sql.streaming.query import StreamingQuery

_STARTING = "Initializing sources"
"""What Spark says of a query that has no sources yet."""
_WAITING = "Waiting for data to arrive"
"""What Spark says of a query that has read all there is."""

Durations = dict[str, int]
"""Where the time of a batch went, in ms by Spark's names for the steps."""


class BatchQuery(ABC):
    """Looks what its sources have, and calls the run with each batch, in a thread of its own."""

    @abstractmethod
    def await_end(self, seconds: float) -> bool:
        """Wait for the end so long; tell whether it has come. What has ended it is raised."""

    @abstractmethod
    def is_starting(self) -> bool:
        """Tell whether it must not be stopped yet."""

    @abstractmethod
    def is_waiting(self) -> bool:
        """Tell whether it has read all that there is."""

    @abstractmethod
    def stop(self) -> None:
        """End it, in the middle of a batch if need be."""

    @abstractmethod
    def durations(self) -> dict[int, Durations]:
        """Return where the time of the last batches went, by their numbers."""


class SparkQuery(BatchQuery):
    """A streaming query of Spark."""

    def __init__(self, query: StreamingQuery) -> None:
        """Take a query that is started."""
        self._query = query

    def await_end(self, seconds: float) -> bool:
        return bool(self._query.awaitTermination(seconds))  # type: ignore[arg-type]  # it takes parts of a second

    def is_starting(self) -> bool:
        # A query that is stopped while a Python source of it starts leaves that process to fail on its own, loudly.
        return bool(self._query.status["message"] == _STARTING)

    def is_waiting(self) -> bool:
        return bool(self._query.status["message"] == _WAITING)

    def stop(self) -> None:
        self._query.stop()

    def durations(self) -> dict[int, Durations]:
        return {progress.batchId: dict(progress.durationMs) for progress in self._query.recentProgress}
