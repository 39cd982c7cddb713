"""Drive sources and sinks like a run, without Spark."""

from __future__ import annotations

import itertools
import secrets
import weakref
from collections.abc import Iterator

import msgspec
import pyarrow as pa

from tidewheel._checkpoint.manifest import Position
from tidewheel._connectors.sink import Publication, Sink, Staging
from tidewheel._core import pickling
from tidewheel._storage import open_store
from tidewheel._testing.connectors.harness import SinkHarness, SourceHarness

_attempts = itertools.count()
_TASKS = 4


class DrivenSource:
    """The reader of a source in one run: it plans batches, and reads copies of its splits like tasks."""

    def __init__(self, harness: SourceHarness, *, max_records: int | None = None) -> None:
        """Create the source and open its reader."""
        self._harness = harness
        self.source = harness.source(max_records=max_records)
        self.reader = harness.reader(self.source)

    def start(self) -> Position:
        """Return the start position of a new job."""
        return recorded(self.reader.start())

    def end(self, start: Position) -> Position:
        """Return the end of the batch that begins at `start`, in its recorded form."""
        return recorded(self.reader.end(start))

    def read(self, start: Position, end: Position) -> list[bytes]:
        """Return the payloads between two recorded positions."""
        payloads: list[bytes] = []
        for split in self.reader.splits(start, end, _TASKS):
            for batch in pickling.loads(pickling.dumps(split)).read():
                payloads += [self._harness.payload(row) for row in batch.to_pylist()]
        return payloads

    def batches(self, start: Position) -> Iterator[tuple[Position, list[bytes]]]:
        """Yield the end and the payloads of each batch until there is nothing new."""
        while (end := self.end(start)) != start:
            yield end, self.read(start, end)
            start = end


def recorded(position: Position) -> Position:
    """Return a position after encoding and decoding it like a manifest."""
    decoded: Position = msgspec.msgpack.decode(msgspec.msgpack.encode(position))
    return decoded


class DrivenSink:
    """A sink in one run: tasks stage through copies of it, and a driver publishes."""

    def __init__(self, harness: SinkHarness, *, job: str = "orders", name: str = "out", store: str = "") -> None:
        """Create the sink and start it; a later run uses the `store` of the earlier one."""
        self.store = store or f"memory:conformance-{secrets.token_hex(8)}"
        self.job, self.name = job, name
        self.run = secrets.token_hex(4)
        self.sink: Sink = harness.sink()
        self.sink.start(job)
        self.sink.check(job, name)
        # A run without references has ended.
        weakref.finalize(self, self.sink.stop, job)

    def stage(self, sequence: int, *tasks: pa.RecordBatch) -> Publication:
        """Write and prepare the rows of each task; return the tokens that the commit would record."""
        tokens = [self._task(sequence, task, rows) for task, rows in enumerate(tasks)]
        prepared = tuple(token for token in tokens if token is not None)
        return Publication(open_store(self.store), self.job, self.name, sequence, prepared, None)

    def publish(self, publication: Publication) -> None:
        """Publish like a driver."""
        self.sink.publish(publication)

    def _task(self, sequence: int, task: int, rows: pa.RecordBatch) -> bytes | None:
        sink = pickling.loads(pickling.dumps(self.sink))
        attempt = f"{self.run}-{task}-{next(_attempts)}"
        partition = sink.open(Staging(open_store(self.store), self.job, self.name, sequence, attempt))
        partition.write(rows)
        token: bytes | None = partition.prepare()
        return token
