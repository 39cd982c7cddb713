"""DuckDB with two threads: the group-by of `aggregate` over the same files, one file per batch, with nothing durable.

This is the upper limit for aggregates: DuckDB keeps no totals between batches and writes nothing to disk.
"""

import time
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
from benchmarks.state import measure

THREADS = 2


def batch(connection: duckdb.DuckDBPyConnection, file: Path) -> measure.Batch:
    """Sum the values of each key of a file; return the time until all sums are Arrow columns."""
    rows = pq.read_metadata(file).num_rows
    begun = time.perf_counter()
    query = f"SELECT key, count(value), sum(value)::BIGINT FROM read_parquet('{file}') GROUP BY key"
    connection.sql(query).to_arrow_table()
    return measure.Batch(rows, 1000 * (time.perf_counter() - begun))


def main() -> None:
    task = measure.task()
    with duckdb.connect(config={"threads": THREADS}) as connection:
        batches = [batch(connection, file) for file in sorted(task.input.glob("*.parquet"))]
    task.finish(measure.Measurement(batches, task.warmup))


if __name__ == "__main__":
    main()
