"""Sinks without Spark: stage as a task would, publish as a driver would."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pytest

from tidewheel import storage
from tidewheel.sinks.base import Publication, Sink, Staging

_attempts = itertools.count()


class Harness:
    """One sink of a job, its tasks and its driver."""

    def __init__(self, sink: Sink, url: str, *, job: str = "orders", name: str = "out", spark=None) -> None:
        self.sink, self.job, self.name, self.spark = sink, job, name, spark
        self.store = storage.open(url)
        sink.start(job)

    def stage(self, sequence: int, *batches: object, task: int = 0, run: str = "r1") -> bytes | None:
        """Write batches (RecordBatches or lists of dicts) in one task; return its token."""
        staging = Staging(self.store, self.job, self.name, sequence, f"{run}-{task}-{next(_attempts)}")
        partition = self.sink.open(staging)
        for batch in batches:
            partition.write(batch if isinstance(batch, pa.RecordBatch) else pa.RecordBatch.from_pylist(batch))
        return partition.prepare()

    def publish(self, sequence: int, *tokens: bytes | None) -> None:
        found = tuple(token for token in tokens if token is not None)
        self.sink.publish(Publication(self.store, self.job, self.name, sequence, found, self.spark))


@pytest.fixture(scope="session")
def harnessed() -> type[Harness]:
    """Put a sink between a task and a driver."""
    return Harness
