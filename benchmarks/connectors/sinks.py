"""Common parts of the benchmarks of sinks: the rows, the path through a sink, and the comparison."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import pyarrow as pa

from tidewheel._connectors.sink import Publication, Sink, Staging
from tidewheel._storage import open_store

BATCH, ROUNDS = 50_000, 5


def batches(size: int) -> list[pa.RecordBatch]:
    """Return rows with four typical columns."""
    start = 1_700_000_000_000_000
    made = []
    for first in range(0, size, BATCH):
        numbers = range(first, min(first + BATCH, size))
        made.append(
            pa.RecordBatch.from_pydict(
                {
                    "id": pa.array(numbers, pa.int64()),
                    "name": pa.array([f"customer-{number % 5_000}" for number in numbers]),
                    "amount": pa.array([number * 0.01 for number in numbers]),
                    "at": pa.array([start + number for number in numbers], pa.timestamp("us", "UTC")),
                }
            )
        )
    return made


def through(sink: Sink, rows: list[pa.RecordBatch], folder: str) -> None:
    """Stage and publish each batch, as a task and a driver do."""
    store = open_store(folder)
    sink.start("bench")
    for sequence, batch in enumerate(rows, 1):
        partition = sink.open(Staging(store, "bench", "out", sequence, f"run-0-{sequence}"))
        partition.write(batch)
        token = partition.prepare()
        assert token is not None
        sink.publish(Publication(store, "bench", "out", sequence, (token,), None))


def compared(name: str, rows: int, plain: Callable[[int], None], ours: Callable[[int], None]) -> dict[str, float]:
    """Return the ratio under the name, and both speeds: medians of alternating rounds, because other load comes and goes."""
    times = []
    for number in range(ROUNDS):
        began = time.perf_counter()
        plain(number)
        between = time.perf_counter()
        ours(number)
        times.append((between - began, time.perf_counter() - between))
    return {
        name: statistics.median(plain_s / ours_s for plain_s, ours_s in times),
        f"{name}_rows_s": rows / statistics.median(ours_s for _, ours_s in times),
        f"{name}_plain_rows_s": rows / statistics.median(plain_s for plain_s, _ in times),
    }
