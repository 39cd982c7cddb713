"""Rescale a running job over many keys, 2 -> 4 -> 1 -> 3, and compare with Spark's offline repartition of as many keys.

    python -m benchmarks.rescale [--keys 1000000] [--rows 250000] [--batches 7]

The last line is one JSON object. `bytes_rewritten` counts the state that the batches after a change wrote, without the keys that
they changed and without snapshots that were due anyway. `after_vs_normal` is the slowest first batch after a change, divided by
the median of the other batches with the same number of tasks, which have as many rows per task. `spark_repartition_s` and
`spark_repartition_bytes` are the time and the written bytes of Spark's repartition of a stopped query from 2 to 4 partitions.
"""

import argparse
import json
import shutil
import sys
import time
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from benchmarks.state import session
from benchmarks.state.generate import SCHEMA
from benchmarks.state.native import SETTINGS
from pyspark.sql import SparkSession

from tidewheel import Job, RunOptions
from tidewheel._checkpoint.manifest import Manifest
from tidewheel._checkpoint.store import StreamCheckpoints
from tidewheel._engine.stopped_job import states
from tidewheel._spark.progress import BatchProgress
from tidewheel._state.codec import msgpack_codec
from tidewheel._state.compaction import merge_due
from tidewheel._state.references import ShardParts
from tidewheel._storage import open_store
from tidewheel.sinks import discard
from tidewheel.sources import files

CACHE = Path(".cache/bench-rescale")
TASKS = (2, 4, 1, 3)


def generate(folder: Path, keys: int, rows: int, batches: int) -> np.ndarray:
    """Write every key once, then `batches` files of rows that draw from all keys; return the sum of each key."""
    folder.mkdir(parents=True)
    random = np.random.default_rng(7)
    sums = np.zeros(keys, np.int64)
    parts = [random.permutation(np.arange(low, min(low + rows, keys))) for low in range(0, keys, rows)]
    parts += [random.integers(0, keys, rows) for _ in range(batches)]
    for number, part in enumerate(parts):
        values = random.integers(0, 100, len(part))
        np.add.at(sums, part, values)
        table = pa.table({"key": pc.cast(pa.array(part), pa.string()), "value": pa.array(values, pa.int64())})
        pq.write_table(table, folder / f"part-{number:05d}.parquet")
    return sums


def ours(work: Path, loading: int, batches: int) -> tuple[list[BatchProgress], list[Manifest]]:
    """Run the job over all files and rescale it after each group of batches; return batches and commits."""
    job = Job("rescale", state=f"file:{work.absolute()}/state", keep=10_000, collect_every=10_000)
    source = files(work / "input", schema=SCHEMA, max_files_per_trigger=1)
    keyed = job.source("in", source).key_by("by-key", "key", value="value")
    keyed.stateful_map("sum", lambda key, value, total: (total + value, total + value), default=0).sink(
        "out", discard()
    )
    seen: list[BatchProgress] = []

    def progress(batch: BatchProgress) -> None:
        if batch.batch is None:
            return
        seen.append(batch)
        print(f"    {batch.parallelism} tasks, {batch.rows:,} rows, {batch.seconds:.2f} s", flush=True)
        done = len(seen) - loading
        if done > 0 and done % batches == 0 and done < batches * len(TASKS):
            job.rescale(TASKS[done // batches])

    job.run(
        until="caught-up",
        parallelism=TASKS[0],
        options=RunOptions(local=str(work.absolute() / "local-copies"), progress=progress),
    )
    return seen[loading:], StreamCheckpoints(open_store(job.state), "rescale").list()


def exact(work: Path, newest: Manifest, sums: np.ndarray) -> bool:
    """Return whether the state equals an independent sum."""
    held = states(open_store(f"file:{work.absolute()}/state"), newest)["sum"]
    decode = msgpack_codec().decode
    return len(held) == len(sums) and all(decode(raw) == sums[int(key)] for key, raw in held.items())


def rewritten(before: Manifest, after: Manifest, changed: int) -> int:
    """Return the bytes of state that a commit wrote in addition to the changed keys and the due merges."""
    expected = {shard for shard, parts in before.shards.items() if merge_due(parts) is not None}
    extra = keys = size = 0
    for shard, parts in after.shards.items():
        old = before.shards.get(shard, ShardParts())
        if parts.snapshot is not None and parts.snapshot != old.snapshot and shard not in expected:
            extra += parts.snapshot.bytes
        for delta in parts.deltas:
            if delta.sequence == after.sequence:
                keys, size = keys + delta.keys, size + delta.bytes
    return extra + (0 if keys == changed else size)


def after_changes(batches: list[BatchProgress]) -> list[tuple[int, float, float]]:
    """Return for each change (tasks, seconds of the first batch after the change, median of the others)."""
    found = []
    starts = [at for at in range(1, len(batches)) if batches[at].parallelism != batches[at - 1].parallelism]
    for start, end in zip(starts, [*starts[1:], len(batches)], strict=True):
        found.append(
            (batches[start].parallelism, batches[start].seconds, median(b.seconds for b in batches[start + 1 : end]))
        )
    return found


def native(spark: SparkSession, work: Path, keys: int) -> tuple[float, int]:
    """Return seconds and bytes of Spark's repartition of a stopped query's state, from 2 to 4 partitions."""
    checkpoint = work / "spark-checkpoint"
    for name, value in SETTINGS.items():
        spark.conf.set(name, value)
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    rows = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 4).parquet(str(work / "input"))
    counted = rows.groupBy("key").sum("value")
    writer = counted.writeStream.format("noop").outputMode("update").option("checkpointLocation", str(checkpoint))
    writer.trigger(availableNow=True).start().awaitTermination()
    before = {path for path in checkpoint.rglob("*") if path.is_file()}
    begun = time.perf_counter()
    spark._streamingCheckpointManager.repartition(str(checkpoint), 4)
    seconds = time.perf_counter() - begun
    state = [path for path in (checkpoint / "state").rglob("*") if path.is_file() and path not in before]
    return seconds, sum(path.stat().st_size for path in state)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--rows", type=int, default=250_000, help="rows of a batch; above 10,000, or one task takes it")
    parser.add_argument("--batches", type=int, default=7, help="batches with each number of tasks")
    options = parser.parse_args()
    shutil.rmtree(CACHE, ignore_errors=True)
    sums = generate(CACHE / "input", options.keys, options.rows, options.batches * len(TASKS))
    session.prepare(CACHE.absolute())
    print(f"{options.keys:,} keys, batches of {options.rows:,} rows, {' -> '.join(map(str, TASKS))} tasks", flush=True)
    batches, commits = ours(CACHE, -(-options.keys // options.rows), options.batches)
    by_sequence = {commit.sequence: commit for commit in commits}
    first = {
        batch.sequence for at, batch in enumerate(batches) if at and batch.parallelism != batches[at - 1].parallelism
    }
    written = sum(
        rewritten(by_sequence[b.sequence - 1], by_sequence[b.sequence], b.keys) for b in batches if b.sequence in first
    )
    changes = after_changes(batches)
    for tasks, after, normal in changes:
        print(f"    first batch with {tasks} tasks: {after:.2f} s, its others: {normal:.2f} s", flush=True)
    running = SparkSession.getActiveSession()
    assert running is not None
    seconds, size = native(running.newSession(), CACHE, options.keys)
    right = exact(CACHE, commits[-1], sums)
    result = {
        "keys": options.keys,
        "rows": options.rows,
        "tasks": [TASKS[0], *(tasks for tasks, _, _ in changes)],
        "exact": right,
        "bytes_rewritten": written,
        "after_vs_normal": round(max(after / normal for _, after, normal in changes), 3),
        "each_after_vs_normal": [round(after / normal, 3) for _, after, normal in changes],
        "spark_repartition_s": round(seconds, 2),
        "spark_repartition_bytes": size,
    }
    shutil.rmtree(CACHE, ignore_errors=True)
    print(json.dumps(result))
    return 0 if right and result["tasks"] == list(TASKS) else 1


if __name__ == "__main__":
    sys.exit(main())
