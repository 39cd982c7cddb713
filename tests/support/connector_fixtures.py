"""Sinks without Spark, staged like in a task and published like in a driver; streams read to their end, batch by batch."""

from __future__ import annotations

import contextlib
import gc
import itertools
import pickle
import socket
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from support.internals import open_store
from tidewheel._connectors import staging
from tidewheel._core import pickling
from tidewheel._testing.connectors.driving import recorded
from tidewheel.connectors import Publication, Sink, Staging

_attempts = itertools.count()


class Harness:
    """One sink of a job, its tasks and its driver."""

    def __init__(self, sink: Sink, url: str, *, job: str = "orders", name: str = "out", spark=None) -> None:
        self.sink, self.job, self.name, self.spark = sink, job, name, spark
        self.store = open_store(url)
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


class ArrowPeak:
    """How many bytes Arrow had more than at the beginning, at most, whenever a staged batch had been read."""

    def __init__(self) -> None:
        # What other tests left to be collected must not go meanwhile.
        gc.collect()
        self.before, self.bytes = pa.total_allocated_bytes(), 0

    def look(self) -> None:
        self.bytes = max(self.bytes, pa.total_allocated_bytes() - self.before)


@pytest.fixture
def arrow_peak(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Look at Arrow's memory while a block publishes."""

    @contextlib.contextmanager
    def looking() -> Any:
        peak, read = ArrowPeak(), staging.from_arrow

        def from_arrow(data: bytes) -> Any:
            for batch in read(data):
                peak.look()
                yield batch

        with monkeypatch.context() as patch:
            patch.setattr(staging, "from_arrow", from_arrow)
            yield peak

    return looking


class Reading:
    """A query over a source that keeps what each batch had; a second run goes on from its checkpoint."""

    def __init__(self, session: Any, folder: Path) -> None:
        self.session, self.folder = session, folder
        self.batches: dict[int, list[dict[str, Any]]] = {}
        self.partitions: dict[int, int] = {}
        self.positions: list[Any] = []

    def run(self, source: Any) -> list[list[dict[str, Any]]]:
        """Read all there is; return the batches of this run."""
        before = len(self.batches)
        if source.has_reader:
            self._read(source.open())
            return [self.batches[number] for number in sorted(self.batches)[before:]]
        from pyspark.sql.functions import spark_partition_id

        frame = source.load(self.session)

        def on_batch(rows: Any, number: int) -> None:
            found = [row.asDict(recursive=True) for row in rows.withColumn("task", spark_partition_id()).collect()]
            self.partitions[number] = len({row.pop("task") for row in found})
            self.batches[number] = found

        query = frame.writeStream.foreachBatch(on_batch).option("checkpointLocation", str(self.folder / "checkpoint"))
        query.trigger(availableNow=True).start().awaitTermination()
        return [self.batches[number] for number in sorted(self.batches)[before:]]

    def _read(self, reader: Any) -> None:
        """Read all there is as a run does: positions are recorded, splits travel to tasks."""
        reader.freeze()
        position = self.positions[-1] if self.positions else recorded(reader.start())
        while (end := recorded(reader.end(position))) != position:
            splits = [pickle.loads(pickling.dumps(split)) for split in reader.splits(position, end, 2)]
            self.partitions[len(self.positions)] = len(splits)
            rows = [row for split in splits for batch in split.read() for row in batch.to_pylist()]
            self.batches[len(self.positions)] = rows
            self.positions.append(end)
            position = end
        reader.close()

    def forget_commit(self, batch: int) -> None:
        """Make the next run repeat a batch, as if the process had died before the commit."""
        del self.positions[batch:]
        for name in (f"{batch}", f".{batch}.crc"):
            (self.folder / "checkpoint" / "commits" / name).unlink(missing_ok=True)


@pytest.fixture
def reading(spark: Any, tmp_path: Path) -> Reading:
    return Reading(spark, tmp_path)


@pytest.fixture
def given_up_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give a NATS server that is not there no longer than a test says."""
    monkeypatch.setattr("tidewheel._connectors.nats.client._LEAST_TO_CONNECT_S", 0.0)


@pytest.fixture(scope="module")
def rude():
    """A port that says something that is not NATS, and hangs up."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve():
        while True:
            try:
                client, _ = listening.accept()
            except OSError:
                return
            with client:
                client.sendall(b"go away\r\n")

    serving = threading.Thread(target=serve, daemon=True)
    serving.start()
    yield listening.getsockname()[1]
    listening.shutdown(socket.SHUT_RDWR)
    listening.close()
    serving.join()
