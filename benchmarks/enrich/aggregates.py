"""What aggregates with states of their own cost, as a share of the speed of a sum over the same records."""

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tidewheel import BatchProgress, Job, RunOptions, agg, sinks, sources

SEED = 28
BATCHES, WARM_UP, ROUNDS = 8, 3, 3
VALUES = 1000
"""How many different values there are, for each key."""
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
        table = pa.table({"key": key, "value": draw.integers(0, VALUES, per_batch)})
        pq.write_table(table, folder / f"{number:02}.parquet")


def rate(folder: Path, name: str) -> float:
    """Return how many records a second an aggregate takes in one task, after the first batches."""
    batches: list[BatchProgress] = []
    with tempfile.TemporaryDirectory() as own:
        job = Job(f"aggregate-{name}", state=f"file://{own}/state")
        records = job.source("in", sources.files(str(folder), "parquet", max_files_per_trigger=1))
        records.key_by("by-key", "key").aggregate("all", result=AGGREGATES[name]).sink("out", sinks.discard())
        options = RunOptions(master="local[1]", local=f"{own}/local", progress=batches.append)
        job.run(until="end", parallelism=1, options=options)
    timed = [batch for batch in batches if batch.rows][WARM_UP:]
    return sum(batch.rows for batch in timed) / sum(batch.seconds for batch in timed)


def shares(per_batch: int, keys: int) -> dict[str, float]:
    """Return the speed of each aggregate as a share of that of a sum."""
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work) / "records"
        write(folder, per_batch, keys)
        rate(folder, "sum")  # The first job of a process waits for Spark.
        # In turns, and the best of each: other work on the machine slows some of them.
        rounds = [{name: rate(folder, name) for name in AGGREGATES} for _ in range(ROUNDS)]
        rates = {name: max(each[name] for each in rounds) for name in AGGREGATES}
    print("aggregates: " + ", ".join(f"{name} {each:,.0f} records/s" for name, each in rates.items()))
    return {f"{name}_vs_sum": round(each / rates["sum"], 2) for name, each in rates.items() if name != "sum"}
