"""Bytewax with recovery: the same sum over the same files, in one process and in two.

It runs in its own environment (see peer_env). Bytewax has no batches, so its rate is all rows divided by the time from the first
row read until the last snapshot is written. If the run contains several windows of `WINDOW` rows, the rate of the median window
counts if it is better. The result is the faster of one and two processes. The variant `records` is the same program over whole
records of the records benchmark.
"""

import json
import socket
import statistics
import subprocess
import sys
import time
from collections import namedtuple
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import bytewax.operators as op
import pyarrow as pa
import pyarrow.parquet as pq
from benchmarks.state import measure
from bytewax.dataflow import Dataflow
from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.recovery import RecoveryConfig, init_db_dir
from bytewax.testing import cluster_main

WINDOW = 1_000_000
ROWS_PER_READ = 10_000
# A snapshot a second is what Tidewheel does: it commits each batch, and a batch takes about that long.
SNAPSHOT_INTERVAL = timedelta(seconds=1)


Messages = Callable[[pa.RecordBatch], list[tuple[str, Any]]]


def pairs(batch: pa.RecordBatch) -> list[tuple[str, Any]]:
    return list(zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True))


def flights(batch: pa.RecordBatch) -> list[tuple[str, Any]]:
    columns = (column.to_pylist() for column in batch.select(Flight._fields).columns)
    return [(row.tail, row) for row in map(Flight._make, zip(*columns, strict=True))]


# Bytewax pickles it by its name in this module for the other process; a record that cannot be pickled ends both.
Flight = namedtuple("Flight", "carrier number tail origin destination departed delay distance cancelled")


@dataclass(frozen=True)
class Share:
    """The part of a run that one process did, in the clock that all processes of a machine share."""

    rows: int
    begun: float
    ended: float
    window: int
    windows: list[float]


class Clock:
    """When the first row was read, how many were read, and when each window of rows was emitted."""

    def __init__(self, limit: float, window: int) -> None:
        self.limit = limit
        self.window = window
        self.begun: float | None = None
        self.read = 0
        self.written = 0
        self.marks: list[float] = []

    def over(self) -> bool:
        now = time.monotonic()
        if self.begun is None:
            self.begun = now
            self.marks.append(now)
        return now - self.begun > self.limit

    def wrote(self, rows: int) -> None:
        self.written += rows
        if self.written >= self.window * len(self.marks):
            self.marks.append(time.monotonic())

    def share(self) -> Share:
        ended = time.monotonic()
        begun = ended if self.begun is None else self.begun
        windows = [after - before for before, after in pairwise(self.marks)]
        return Share(self.read, begun, ended, self.window, windows)


class FilePartition(StatefulSourcePartition[Any, int]):
    def __init__(self, clock: Clock, path: str, resume: int | None, messages: Messages) -> None:
        self.clock, self.messages = clock, messages
        self.reads = resume or 0
        self.batches = pq.ParquetFile(path).iter_batches(ROWS_PER_READ)
        for _ in range(self.reads):
            next(self.batches)

    def next_batch(self) -> Iterable[tuple[str, Any]]:
        if self.clock.over():
            raise StopIteration
        batch = next(self.batches)
        self.reads += 1
        self.clock.read += batch.num_rows
        return self.messages(batch)

    def snapshot(self) -> int:
        return self.reads


class Files(FixedPartitionedSource[Any, int]):
    def __init__(self, clock: Clock, folder: Path, messages: Messages) -> None:
        self.clock, self.folder, self.messages = clock, folder, messages

    def list_parts(self) -> list[str]:
        return sorted(str(path) for path in self.folder.glob("*.parquet"))

    def build_part(self, step_id: str, for_part: str, resume_state: int | None) -> FilePartition:
        return FilePartition(self.clock, for_part, resume_state, self.messages)


class DiscardPartition(StatelessSinkPartition[Any]):
    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    def write_batch(self, items: list[Any]) -> None:
        self.clock.wrote(len(items))


class Discard(DynamicSink[Any]):
    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    def build(self, step_id: str, worker_index: int, worker_count: int) -> DiscardPartition:
        return DiscardPartition(self.clock)


def add(total: int | None, value: int) -> tuple[int, int]:
    total = (total or 0) + value
    return total, total


def add_delay(total: int | None, flight: Any) -> tuple[int, int]:
    total = (total or 0) + flight.delay
    return total, total


VARIANTS: dict[str, tuple[Messages, Callable[[int | None, Any], tuple[int, int]]]] = {
    "": (pairs, add),
    "records": (flights, add_delay),
}


def work(folder: Path, database: Path, limit: float, addresses: list[str], number: int, variant: str) -> Share:
    """Run one process of the flow until it ends."""
    messages, function = VARIANTS[variant]
    clock = Clock(limit, WINDOW // len(addresses))
    flow = Dataflow("bench")
    rows = op.input("in", flow, Files(clock, folder, messages))
    op.output("out", op.stateful_map("sum", rows, function), Discard(clock))
    recovery = RecoveryConfig(database, timedelta(seconds=0))
    cluster_main(
        flow,
        addresses if len(addresses) > 1 else [],
        number,
        epoch_interval=SNAPSHOT_INTERVAL,
        recovery_config=recovery,
    )
    return clock.share()


def rate(shares: list[Share]) -> float:
    """Return rows a second: overall, or by the median window if that is better and there are several."""
    seconds = max(s.ended for s in shares) - min(s.begun for s in shares)
    overall = sum(s.rows for s in shares) / seconds
    if min(len(s.windows) for s in shares) < 3:
        return overall
    return max(overall, sum(s.window / statistics.median(s.windows) for s in shares))


def attempt(task: measure.Task, processes: int) -> list[Share]:
    """Run the flow once, in new processes."""
    database = task.work / f"recovery-{processes}"
    database.mkdir()
    init_db_dir(database, processes)
    addresses = _free_addresses(processes)
    results = [task.work / f"share-{processes}-{n}.json" for n in range(processes)]
    started = [
        subprocess.Popen(
            [
                sys.executable,
                "-m",
                "benchmarks.state.bytewax_flow",
                "work",
                json.dumps([str(task.input), str(database), task.limit, addresses, n, task.variant, str(result)]),
            ]
        )
        for n, result in enumerate(results)
    ]
    codes = [process.wait() for process in started]
    if any(codes):
        raise RuntimeError(f"Bytewax with {processes} processes ended with {codes}")
    return [Share(**json.loads(path.read_text())) for path in results]


def _free_addresses(count: int) -> list[str]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    addresses = [f"127.0.0.1:{s.getsockname()[1]}" for s in sockets]
    for s in sockets:
        s.close()
    return addresses


def main() -> None:
    task = measure.task()
    files = len(list(task.input.glob("*.parquet")))
    expected = sum(pq.read_metadata(path).num_rows for path in task.input.glob("*.parquet"))
    best: list[Share] = []
    notes = [f"snapshot every {SNAPSHOT_INTERVAL.total_seconds():.0f} s"]
    for processes in (1, 2):
        shares = attempt(task, processes)
        rows = sum(s.rows for s in shares)
        capped = "" if rows == expected else f", stopped reading after {rows:,} rows ({task.limit:.0f} s)"
        notes.append(f"{processes} process{'es' * (processes > 1)}: {rate(shares):,.0f} rows/s{capped}")
        if not best or rate(shares) > rate(best):
            best = shares
    seconds = max(s.ended for s in best) - min(s.begun for s in best)
    rows = sum(s.rows for s in best)
    # Bytewax reads all files side by side, so a batch is a share of the whole run.
    batch = measure.Batch(rows // files, 1000 * seconds / files)
    task.finish(measure.Measurement([batch], 0, notes, rate(best)))


if __name__ == "__main__":
    if sys.argv[1:2] == ["work"]:
        folder, database, limit, addresses, number, variant, result = json.loads(sys.argv[2])
        done = work(Path(folder), Path(database), limit, addresses, number, variant)
        Path(result).write_text(json.dumps(asdict(done)))
    else:
        main()
