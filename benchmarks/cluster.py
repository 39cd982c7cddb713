"""A job on a cluster: three one-core workers of a standalone Spark, each with local copies of its own.

    PYTHONPATH=tests python -m benchmarks.cluster [--keys 10000] [--rows 250000] [--batches 10] [--anywhere]

The benchmark starts the cluster on this machine. A file is one batch. The floor is a streaming query that shuffles by the key
and passes its rows through `mapInArrow`, on the same cluster with as many partitions. A file is small, so each of our tasks
reads the whole file; the shuffled variant divides it instead, as it would be with a larger file. `--anywhere` lets Spark choose
the host of each task, to see what keeping shards on their hosts is worth. The last line is one JSON object:

- `stateful_map_vs_floor`, `aggregate_vs_floor`: rows a second, the medians over the batches after warm-up; two tasks
- `stateful_map_vs_floor_8`, `aggregate_vs_floor_8`: the same with eight tasks
- `stateful_map_vs_floor_8_shuffled`, `aggregate_vs_floor_8_shuffled`: the same if messages are shuffled
- `home_share`: the share of visits of a task to a shard for which the host had a fresh copy, after the two batches that make
  state and copies
- `catchup_bytes_share`: of the bytes that local copies took in, the share that went into copies which were not fresh
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from benchmarks.state import generate, measure, ours, session
from benchmarks.state.generate import SCHEMA
from pyspark.sql import SparkSession

from tidewheel import RunOptions
from tidewheel._connectors import split
from tidewheel._observe.history import History
from tidewheel._spark.placement import Placement
from tidewheel._storage import open_store

CACHE = Path(".cache/bench-cluster")
WORKERS = 3
TASKS = (2, 8)
WARMUP = 5
PROGRAMS = {"stateful_map": ours.running_sum, "aggregate": ours.aggregate}


def passed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def child(given: argparse.Namespace) -> None:
    """Run one contender, and write its batches, and how its visits of shards went."""
    work: Path = given.work
    conf = json.loads(given.conf)
    visits: dict[str, int] = {}
    if given.contender == "floor":
        os.environ["PYSPARK_PYTHON"] = sys.executable
        builder = SparkSession.builder.master(given.master)
        shared = {
            name: value for name, value in session.SETTINGS.items() if name.startswith(("spark.sql.", "spark.ui."))
        }
        for name, value in {**shared, **conf, "spark.sql.shuffle.partitions": str(given.tasks)}.items():
            builder = builder.config(name, value)
        spark = builder.getOrCreate()
        mapped = session.read(spark, given.input).repartition(given.tasks, "key").mapInArrow(passed, SCHEMA)
        task = measure.Task(given.input, work, work / "result.json", WARMUP, 300, "")
        batches = session.run(task, mapped.writeStream.format("noop").outputMode("append")).batches
    else:
        if given.anywhere:
            Placement.hosts = lambda self, tasks: None
        if given.shuffled:
            split._MOST_READERS = split._MOST_BYTES = 0
        job = PROGRAMS[given.contender](given.input.absolute(), (work / "state").absolute())
        options = RunOptions(master=given.master, conf=conf, shared_state=True)
        result = job.run(until="end", parallelism=given.tasks, options=options)
        batches = [measure.Batch(batch.rows, 1000 * batch.seconds) for batch in result.batches if batch.rows]
        records = History(open_store((work / "state").absolute().as_uri())).records(job.name)
        later = sorted((record for record in records if record.rows), key=lambda record: record.sequence)[2:]
        names = ("visits", "stale_visits", "caught_up_bytes", "stale_bytes")
        visits = {name: sum(getattr(record, name) for record in later) for name in names}
    measured = measure.Measurement(batches, WARMUP)
    found = {"rate": measured.rows_per_second, "ms": measured.batch_milliseconds, "visits": visits}
    (work / "found.json").write_text(json.dumps(found))


def run(cluster: Any, data: Path, contender: str, tasks: int, more: list[str]) -> dict[str, Any]:
    """Run a contender in a process of its own."""
    work = CACHE / "work" / "-".join([contender, str(tasks), *more])
    work.mkdir(parents=True)
    command = [sys.executable, "-m", "benchmarks.cluster", "--child", "--contender", contender, "--tasks", str(tasks)]
    command += [
        "--master",
        cluster.url,
        "--conf",
        json.dumps(cluster.conf()),
        "--input",
        str(data),
        "--work",
        str(work),
    ]
    with (work / "log.txt").open("w") as log:
        if subprocess.run([*command, *more], stdout=log, stderr=log, timeout=400).returncode != 0:
            raise SystemExit(f"{contender} with {tasks} tasks failed\n{(work / 'log.txt').read_text()[-4000:]}")
    found: dict[str, Any] = json.loads((work / "found.json").read_text())
    variant = " ".join([f"{contender}, {tasks} tasks", *more])
    print(
        f"{variant}: {found['rate']:,.0f} rows/s, {found['ms']:,.0f} ms a batch {found['visits']}",
        flush=True,
    )
    return found


def main() -> None:
    """Print the figures, and one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=10_000)
    parser.add_argument("--rows", type=int, default=250_000)
    parser.add_argument("--batches", type=int, default=10, help="measured batches, after a warm-up")
    parser.add_argument("--tasks", type=int, help="only with so many tasks")
    parser.add_argument("--anywhere", action="store_true")
    parser.add_argument("--shuffled", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--child", action="store_true")
    parser.add_argument("--contender")
    parser.add_argument("--master")
    parser.add_argument("--conf")
    parser.add_argument("--input", type=Path)
    parser.add_argument("--work", type=Path)
    given = parser.parse_args()
    if given.child:
        child(given)
        return
    from servers.spark_cluster import running_cluster

    data = generate.dataset(Path(".cache/bench/data"), given.keys, given.rows, WARMUP + given.batches)
    shutil.rmtree(CACHE, ignore_errors=True)
    more = ["--anywhere"] if given.anywhere else []
    result: dict[str, float] = {}
    visits = dict.fromkeys(("visits", "stale_visits", "caught_up_bytes", "stale_bytes"), 0)
    with running_cluster(CACHE.absolute() / "cluster") as cluster:
        for _ in range(WORKERS):
            cluster.add_worker()
        cluster.wait_for_workers()
        for tasks in [given.tasks] if given.tasks else TASKS:
            floor = run(cluster, data, "floor", tasks, [])
            suffix = "" if tasks == TASKS[0] else f"_{tasks}"
            variants = (
                {suffix: more} if tasks == TASKS[0] else {suffix: more, f"{suffix}_shuffled": [*more, "--shuffled"]}
            )
            for (variant, chosen), contender in itertools.product(variants.items(), PROGRAMS):
                found = run(cluster, data, contender, tasks, chosen)
                result[f"{contender}_vs_floor{variant}"] = round(found["rate"] / floor["rate"], 3)
                visits = {name: number + found["visits"][name] for name, number in visits.items()}
    result["home_share"] = round(1 - visits["stale_visits"] / visits["visits"], 3)
    result["catchup_bytes_share"] = round(visits["stale_bytes"] / max(1, visits["caught_up_bytes"]), 3)
    shutil.rmtree(CACHE)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
