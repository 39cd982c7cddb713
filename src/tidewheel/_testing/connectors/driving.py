"""Sources and sinks driven as a run drives them, without Spark."""

from __future__ import annotations

import itertools
import json
import secrets
import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tidewheel._connectors.sink import Publication, Sink, Staging
from tidewheel._core import pickling
from tidewheel._storage import open_store
from tidewheel._testing.connectors.harness import SinkHarness, SourceHarness

if TYPE_CHECKING:
    from tidewheel._connectors.stream_reader import ReadLimit

Offsets = dict[str, Any]

_attempts = itertools.count()


class DrivenSource:
    """One run's reader of a source: it plans batches in one place, and reads them from copies, as tasks do."""

    def __init__(self, harness: SourceHarness, *, max_records: int | None = None) -> None:
        """Make the source and its reader."""
        self._harness = harness
        self.source = harness.source(max_records=max_records)
        self.reader: Any = harness.reader(self.source)
        self._limited = max_records is not None

    def start(self) -> Offsets:
        """Return the offsets of a job that has read nothing."""
        return _recorded(self.reader.initialOffset())

    def end(self, start: Offsets) -> Offsets:
        """Return where the batch that begins at `start` ends, as it would be recorded."""
        return _recorded(self.reader.latestOffset(start, self._limit()))

    def read(self, start: Offsets, end: Offsets) -> list[bytes]:
        """Return the payloads of a recorded range."""
        payloads: list[bytes] = []
        for partition in self.reader.partitions(start, end):
            reader, mine = pickling.loads(pickling.dumps((self.reader, partition)))
            for batch in reader.read(mine):
                payloads += [self._harness.payload(row) for row in batch.to_pylist()]
        return payloads

    def batches(self, start: Offsets) -> Iterator[tuple[Offsets, list[bytes]]]:
        """Yield the end and the payloads of each batch until there is nothing new."""
        while (end := self.end(start)) != start:
            yield end, self.read(start, end)
            start = end

    def _limit(self) -> ReadLimit:
        from tidewheel._connectors.stream_reader import ReadAllAvailable

        return self.reader.getDefaultReadLimit() if self._limited else ReadAllAvailable()


def _recorded(offsets: Offsets) -> Offsets:
    """Return offsets as they come back from the record of a batch, which is JSON."""
    recorded: Offsets = json.loads(json.dumps(offsets))
    return recorded


class DrivenSink:
    """One run's use of a sink: tasks that stage through copies of it, a driver that publishes."""

    def __init__(self, harness: SinkHarness, *, job: str = "orders", name: str = "out", store: str = "") -> None:
        """Make the sink and start it; a run that follows another takes its `store`."""
        self.store = store or f"memory:conformance-{secrets.token_hex(8)}"
        self.job, self.name = job, name
        self.run = secrets.token_hex(4)
        self.sink: Sink = harness.sink()
        self.sink.start(job)
        self.sink.check(job, name)
        # A run that nobody uses any more is over.
        weakref.finalize(self, self.sink.stop, job)

    def stage(self, sequence: int, *tasks: pa.RecordBatch) -> Publication:
        """Let each task write its rows and prepare; return what the commit would record."""
        tokens = [self._task(sequence, task, rows) for task, rows in enumerate(tasks)]
        prepared = tuple(token for token in tokens if token is not None)
        return Publication(open_store(self.store), self.job, self.name, sequence, prepared, None)

    def publish(self, publication: Publication) -> None:
        """Publish as a driver does."""
        self.sink.publish(publication)

    def _task(self, sequence: int, task: int, rows: pa.RecordBatch) -> bytes | None:
        sink = pickling.loads(pickling.dumps(self.sink))
        attempt = f"{self.run}-{task}-{next(_attempts)}"
        partition = sink.open(Staging(open_store(self.store), self.job, self.name, sequence, attempt))
        partition.write(rows)
        token: bytes | None = partition.prepare()
        return token
