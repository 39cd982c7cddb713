"""Measure the throughput of each query, compared with Spark's streaming where Spark can express the query.

    python -m benchmarks.nexmark.run [--events 1000000] [--per-batch 100000] [--queries q0,q5]

The throughput is in events a second over all batches but the first two. Results are checked against Spark SQL, over the first
events. The last line is one JSON object.
"""

import argparse
import json
import shutil
import tempfile
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from benchmarks.nexmark.check import expected, normal
from benchmarks.nexmark.generator import write
from benchmarks.nexmark.native import NATIVE, ROCKSDB, UPDATED
from benchmarks.nexmark.queries import QUERIES, chosen
from benchmarks.state import session
from pyspark.sql import SparkSession

from tidewheel import Job, RunOptions
from tidewheel.sinks import collect, discard
from tidewheel.sources import files

_ANEW = get_context("spawn")
WARM_UP = 2
CHECKED = 20_000


def ours(query: str, work: Path, own: Path, per_batch: int) -> float:
    """Return the events a second of a query as a Tidewheel program; refuse wrong results. `own` is the folder for its files."""
    check(query, work, own)
    job = Job(f"nexmark-{query}", state=f"file://{own}/state")
    events = job.source("events", files(str(work / "events"), max_files_per_trigger=1))
    QUERIES[query](chosen(events, query)).sink("results", discard())
    result = job.run(until="end", parallelism=2, options=RunOptions(master="local[2]", local=f"{own}/local"))
    # The flush at the end has no events, but is part of the work.
    timed = result.batches[WARM_UP:]
    # All events of a file count, also those that a query does not read, as in Spark's queries.
    return per_batch * sum(batch.rows > 0 for batch in timed) / sum(batch.seconds for batch in timed)


def native(query: str, work: Path, own: Path, per_batch: int) -> float:
    """Return the events a second of a query as a streaming query of Spark."""
    spark = session.start(work, {"spark.sql.streaming.stateStore.providerClass": ROCKSDB})
    folder = str(work / "events")
    schema = spark.read.parquet(folder).schema
    events = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(folder)
    writer = NATIVE[query](events).writeStream.format("noop").option("checkpointLocation", f"{own}/native")
    writer = writer.outputMode("update" if query in UPDATED else "append")
    running = writer.trigger(availableNow=True).start()
    running.awaitTermination()
    timed = [progress for progress in running.recentProgress if progress.numInputRows > 0][WARM_UP:]
    return per_batch * len(timed) / (sum(p.durationMs["triggerExecution"] for p in timed) / 1000)


def check(query: str, work: Path, own: Path) -> None:
    """Refuse results that differ from those of Spark SQL."""
    job, out = Job(f"check-{query}", state=f"file://{own}/checked"), collect()
    folder = str(work / "few")
    QUERIES[query](chosen(job.source("events", files(folder)), query)).sink("results", out)
    job.run(until="end", parallelism=2, options=RunOptions(master="local[2]", local=f"{own}/local"))
    spark = SparkSession.active()
    if normal(out.records, query) != expected(spark, spark.read.parquet(folder), query):
        raise ValueError(f"{query}: the results are not those of Spark SQL")


def main() -> None:
    """Print a line for each query."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--per-batch", type=int, default=100_000)
    parser.add_argument("--queries", default=",".join(QUERIES))
    arguments = parser.parse_args()
    work = Path(tempfile.mkdtemp(prefix="tidewheel-nexmark-"))
    figures: dict[str, float] = {}
    # Each runs in its own process: Tidewheel with the Spark that it starts, and Spark with its default settings.
    with ProcessPoolExecutor(1, _ANEW, session.prepare, (work,)) as us, ProcessPoolExecutor(1, _ANEW) as spark:
        try:
            write(work / "events", arguments.events, arguments.per_batch)
            write(work / "few", CHECKED, CHECKED // 2)
            # A JVM's first query is several times as slow as its second.
            us.submit(ours, "q0", work, work / "first", arguments.per_batch).result()
            spark.submit(native, "q0", work, work / "first", arguments.per_batch).result()
            print(f"{'query':<6} {'events/s':>10} {'Spark':>10} {'ratio':>6}")
            for query in arguments.queries.split(","):
                rate = us.submit(ours, query, work, work / query, arguments.per_batch).result()
                figures[query] = round(rate)
                line = f"{query:<6} {rate:>10,.0f}"
                if query in NATIVE:
                    other = spark.submit(native, query, work, work / query, arguments.per_batch).result()
                    figures[f"{query}_vs_spark"] = round(rate / other, 2)
                    line += f" {other:>10,.0f} {figures[f'{query}_vs_spark']:>6.2f}"
                print(line, flush=True)
        finally:
            shutil.rmtree(work, ignore_errors=True)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
