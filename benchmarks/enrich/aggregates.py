"""What aggregates and early results cost, as a share of the speed of a plain sum over the same records."""

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tidewheel import BatchProgress, Job, KeyedStream, RunOptions, Stream, agg, sinks, sources, tumbling

SEED = 28
BATCHES, WARM_UP, ROUNDS = 8, 3, 3
VALUES = 1000
"""How many different values there are, for each key."""
SECOND = 1_000_000_000
PER_SECOND = 1000
"""How many records there are for each second of the records' times."""
AGGREGATES = {
    "sum": agg.sum("value"),
    "distinct": agg.count_distinct("value"),
    "quantile": agg.approx_quantile("value", 0.95),
    "top": agg.top(10, by="value"),
}


def write(folder: Path, per_batch: int, keys: int) -> None:
    """Write a file of random records for each batch."""
    draw = np.random.default_rng(SEED)
    folder.mkdir()
    for number in range(BATCHES):
        key = pa.array(np.char.add("key-", draw.integers(0, keys, per_batch).astype(str)))
        times = (number * per_batch + np.arange(per_batch)) * (SECOND // PER_SECOND)
        table = pa.table({"key": key, "value": draw.integers(0, VALUES, per_batch), "time": times})
        pq.write_table(table, folder / f"{number:02}.parquet")


def aggregated(records: Stream, name: str) -> KeyedStream:
    """Return an aggregate of each key."""
    return records.key_by("by-key", "key").aggregate("all", result=AGGREGATES[name])


def windowed(records: Stream, early: str | None) -> KeyedStream:
    """Return windows of an hour with a sum, with or without early results."""
    timed = records.event_time("time", unit="ns", max_delay="1 s").key_by("by-key", "key")
    return timed.window("hours", tumbling("1 hour"), result=agg.sum("value"), early=early)


def rate(folder: Path, build: Callable[[Stream], KeyedStream]) -> float:
    """Return how many records a second a program takes in one task, after the first batches."""
    batches: list[BatchProgress] = []
    with tempfile.TemporaryDirectory() as own:
        job = Job("measured", state=f"file://{own}/state")
        build(job.source("in", sources.files(str(folder), "parquet", max_files_per_trigger=1))).sink(
            "out", sinks.discard()
        )
        options = RunOptions(master="local[1]", local=f"{own}/local", progress=batches.append)
        job.run(until="end", parallelism=1, options=options)
    timed = [batch for batch in batches if batch.rows][WARM_UP:]
    return sum(batch.rows for batch in timed) / sum(batch.seconds for batch in timed)


def shares(per_batch: int, keys: int) -> dict[str, float]:
    """Return the speed of each aggregate as a share of that of a sum, and of early results as a share of windows without."""
    programs: dict[str, Callable[[Stream], KeyedStream]] = {
        **{name: partial(aggregated, name=name) for name in AGGREGATES},
        "none": partial(windowed, early=None),
        "early": partial(windowed, early="1 minute"),
    }
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work) / "records"
        write(folder, per_batch, keys)
        rate(folder, programs["sum"])  # The first job of a process waits for Spark.
        # Alternating, and the best of each: other work on the machine slows some rounds.
        rounds = [{name: rate(folder, build) for name, build in programs.items()} for _ in range(ROUNDS)]
        rates = {name: max(each[name] for each in rounds) for name in programs}
    print("aggregates: " + ", ".join(f"{name} {each:,.0f} records/s" for name, each in rates.items()))
    figures = {f"{name}_vs_sum": round(rates[name] / rates["sum"], 2) for name in AGGREGATES if name != "sum"}
    return {**figures, "early_vs_none": round(rates["early"] / rates["none"], 2)}
