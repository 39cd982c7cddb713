"""What a lookup in a large reference table costs, as a share of the speed of the same job without it."""

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tidewheel import BatchProgress, Job, RunOptions, agg, sinks, sources

SEED = 28
BATCHES, WARM_UP, ROUNDS = 8, 3, 3


def write(folder: Path, per_batch: int, rows: int) -> None:
    """Write the table, and a file of orders for each batch; one order in twenty has no row."""
    draw = np.random.default_rng(SEED)
    (folder / "orders").mkdir()
    products = draw.permutation(rows)
    prices = pa.table({"product": products, "price": draw.integers(1, 10_000, rows), "weight": draw.random(rows)})
    pq.write_table(prices, folder / "prices.parquet")
    for number in range(BATCHES):
        orders = {
            "user": pa.array(np.char.add("user-", draw.integers(0, 1000, per_batch).astype(str))),
            "product": draw.integers(0, rows * 20 // 19, per_batch),
            "cents": draw.integers(0, 1000, per_batch),
        }
        pq.write_table(pa.table(orders), folder / "orders" / f"{number:02}.parquet")


def rate(folder: Path, *, looks_up: bool) -> float:
    """Return how many records a second one task sums by user, with or without the price of each, after the first batches."""
    batches: list[BatchProgress] = []
    with tempfile.TemporaryDirectory() as own:
        job = Job("lookup", state=f"file://{own}/state")
        orders = job.source("in", sources.files(str(folder / "orders"), "parquet", max_files_per_trigger=1))
        summed = "cents"
        if looks_up:
            prices = job.table("prices", folder / "prices.parquet", key="product")
            orders, summed = orders.lookup("price", prices, on="product", how="left", columns=["price"]), "price"
        orders.key_by("by-user", "user").aggregate("all", total=agg.sum(summed)).sink("out", sinks.discard())
        options = RunOptions(master="local[1]", local=f"{own}/local", progress=batches.append)
        job.run(until="end", parallelism=1, options=options)
    timed = [batch for batch in batches if batch.rows][WARM_UP:]
    return sum(batch.rows for batch in timed) / sum(batch.seconds for batch in timed)


def share(per_batch: int, rows: int) -> float:
    """Return the speed with a lookup as a share of that without."""
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work)
        write(folder, per_batch, rows)
        rate(folder, looks_up=False)  # The first job of a process waits for Spark.
        # Alternating, and the best of each: other work on the machine slows some rounds.
        rounds = [(rate(folder, looks_up=False), rate(folder, looks_up=True)) for _ in range(ROUNDS)]
    plain, with_lookup = (max(each) for each in zip(*rounds, strict=True))
    print(f"lookup: {with_lookup:,.0f} records/s in {rows:,} rows, {plain:,.0f} without")
    return round(with_lookup / plain, 2)
