"""Compare checkpoints with those of Spark's `transformWithState` on RocksDB.

    python -m benchmarks.checkpoints [--keys 1000000] [--rows 250000]

Tidewheel and `transformWithState` both process every key once, in batches of rows. Then the benchmark reads all state as a
DataFrame, forks the job, looks up one key from a new process, writes a snapshot, and restarts in a new process until the first
commit. The last line is one JSON object.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from benchmarks.state import native, session
from benchmarks.state.generate import SCHEMA
from benchmarks.state.ours import running_sum
from pyspark.sql import DataFrame, SparkSession

from tidewheel import RunOptions, StoredJob, read_state
from tidewheel._checkpoint.state_files import opener
from tidewheel._state.local_copies import LocalCopies
from tidewheel._state.state_file import StateFileWriter
from tidewheel._storage.file import FileStore

ROOT = Path(__file__).parents[1]
JOB, OPERATOR = "bench", "sum"
TURNS = 3


def generate(folder: Path, keys: int, rows: int) -> None:
    """Write every key once, in files with `rows` rows each."""
    folder.mkdir(parents=True)
    order = np.random.default_rng(7).permutation(keys)
    for number, low in enumerate(range(0, keys, rows)):
        _write(folder, number, order[low : low + rows])


def _write(folder: Path, number: int, keys: Any) -> None:
    table = pa.table({"key": pc.cast(pa.array(keys), pa.string()), "value": pa.array(keys % 100, pa.int64())})
    pq.write_table(table, folder / f"part-{number:05d}.parquet")


def timed(function: Callable[[], Any]) -> float:
    begun = time.perf_counter()
    function()
    return time.perf_counter() - begun


def fill_ours(spark: SparkSession, work: Path) -> None:
    running_sum(work / "in", work / "state").run(
        until="caught-up", parallelism=2, options=RunOptions(spark=spark, local=str(work / "copies"))
    )


def fill_native(spark: SparkSession, work: Path) -> None:
    rows = session.read(spark, work / "in")
    summed = rows.groupBy("key").transformWithState(native.RunningSum(), SCHEMA, "Update", "None")
    writer = summed.writeStream.format("noop").outputMode("update")
    query = writer.option("checkpointLocation", str(work / "native")).trigger(availableNow=True).start()
    query.awaitTermination()


def drained(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def reading(frame: Callable[[], DataFrame], keys: int) -> float:
    """Return the seconds to read all state as a DataFrame: the median of several rounds."""
    assert frame().count() == keys
    return statistics.median(timed(lambda: drained(frame())) for _ in range(TURNS))


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def forking(stored: StoredJob, state: Path) -> int:
    before = size_of(state)
    stored.savepoint("bench-fork")
    stored.fork("bench-fork", "bench-forked")
    return size_of(state) - before


def cold_get(state: str, key: str) -> float:
    """Return the milliseconds from the start of a Python process with one look-up until its end: the median of several rounds."""
    look_up = f"StoredJob({JOB!r}, state={state!r}).get({OPERATOR!r}, {key!r}).value"
    program = f"from tidewheel._program.stored_job import StoredJob; print({look_up})"
    times = []
    for _ in range(9):
        begun = time.perf_counter()
        done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
        times.append((time.perf_counter() - begun) * 1000)
        assert done.stdout.strip() == str(int(key) % 100), done
    return statistics.median(times)


class _Counting(FileStore):
    """A store that counts the bytes it reads."""

    count = 0

    def read(self, path: str) -> bytes:
        data = super().read(path)
        _Counting.count += len(data)
        return data

    def read_range(self, path: str, start: int, length: int) -> bytes:
        _Counting.count += length
        return super().read_range(path, start, length)


def read_bytes(state: str, keys: list[str]) -> tuple[int, int]:
    """Return the bytes that a look-up reads, manifest included (the maximum over several keys), and the bytes of all state."""
    stored = StoredJob(JOB, state=state)
    total = sum(file.size for file in stored.show().files())
    most = 0
    for key in keys:
        _Counting.count = 0
        looking = StoredJob.__new__(StoredJob)
        looking.name, looking.store = JOB, _Counting.from_url(state)
        from tidewheel._checkpoint.tools.savepoint import job_at

        looking.checkpoints = job_at(looking.store, JOB)
        assert looking.get(OPERATOR, key).found
        most = max(most, _Counting.count)
    return most, total


def delta_bytes_per_key(stored: StoredJob) -> float:
    deltas = {part for found in stored.list() for parts in found.shards.values() for part in parts.deltas}
    files = {part.file for part in deltas}
    return sum(file.size for file in files) / max(1, sum(part.keys for part in deltas))


def snapshot(stored: StoredJob, work: Path) -> float:
    """Return the seconds to write all state as one snapshot file, in one process, from local copies that are up to date."""
    manifest = stored.show()
    copies = LocalCopies.at(str(work / "snapshot-copies"))
    fetch = opener(stored.store, JOB)
    readers = {}
    for shard, parts in manifest.shards.items():
        copy = copies.shard(shard)
        copy.catch_up(parts, manifest.sequence, fetch)
        readers[shard] = copy.begin()

    def write() -> None:
        writer = StateFileWriter()
        for shard in sorted(readers):
            for table in readers[shard].tables():
                writer.add(shard, table, list(readers[shard].items(table)))
        data, _ = writer.finish()
        stored.store.create("bench-snapshot", data)

    seconds = timed(write)
    for reader in readers.values():
        reader.close()
    copies.close()
    return seconds


def in_process(work: Path, phase: str, keys: int = 0) -> list[float]:
    """Run a phase in its own process, as Spark's contender requires, and return the numbers that it prints."""
    command = [
        sys.executable,
        "-m",
        "benchmarks.checkpoints",
        "--phase",
        phase,
        "--work",
        str(work),
        "--keys",
        str(keys),
    ]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    found: list[float] = json.loads(done.stdout.splitlines()[-1])
    return found


def fill(work: Path, phase: str, keys: int) -> list[float]:
    """Fill the state and read all of it; return the seconds of both."""
    spark = session.start(work / "spark", native.SETTINGS)
    if phase == "fill-ours":
        filled = timed(lambda: fill_ours(spark, work))
        return [filled, reading(lambda: read_state(spark, (work / "state").as_uri(), OPERATOR), keys)]
    filled = timed(lambda: fill_native(spark, work))
    stored = spark.read.format("statestore").option("stateVarName", "sum")
    return [filled, reading(lambda: stored.load(str(work / "native")), keys)]


def restart(work: Path, phase: str) -> list[float]:
    """Process one more file without local copies; return the seconds from a warm session to the first commit."""
    spark = session.start(work / "spark", native.SETTINGS)
    spark.range(1000).repartition(2).mapInArrow(lambda batches: batches, "id long").count()
    if phase == "restart-native":
        return [timed(lambda: fill_native(spark, work))]
    begun = time.perf_counter()
    first: list[float] = []
    running_sum(work / "in", work / "state").run(
        until="caught-up",
        parallelism=2,
        options=RunOptions(
            spark=spark,
            local=str(work / "copies-elsewhere"),
            progress=lambda batch: first.append(time.perf_counter() - begun),
        ),
    )
    return first[:1]


def bench(work: Path, keys: int, rows: int) -> dict[str, float]:
    generate(work / "in", keys, rows)
    state = (work / "state").as_uri()
    print(f"{keys} keys in batches of {rows} rows", flush=True)
    filled, ours = in_process(work, "fill-ours", keys)
    print(f"Tidewheel: filled in {filled:.1f} s, read_state {ours:.2f} s", flush=True)
    filled, theirs = in_process(work, "fill-native", keys)
    print(f"transformWithState: filled in {filled:.1f} s, statestore reader {theirs:.2f} s", flush=True)
    stored = StoredJob(JOB, state=state)
    looked_up = [str(number) for number in range(0, keys, max(1, keys // 20))]
    most, total = read_bytes(state, looked_up)
    get_ms = cold_get(state, looked_up[len(looked_up) // 2])
    print(f"one key: {get_ms:.0f} ms from a cold start, at most {most} of {total} bytes read", flush=True)
    result = {
        "read_state_vs_statestore": round(theirs / ours, 2),
        "fork_bytes": forking(stored, work / "state"),
        "get_ms": round(get_ms, 1),
        "get_bytes_share": round(most / total, 5),
        "delta_bytes_per_key": round(delta_bytes_per_key(stored), 2),
        "snapshot_s": round(snapshot(stored, work), 3),
    }
    _write(work / "in", 99999, np.arange(min(keys, 1000)))
    (again,) = in_process(work, "restart-ours")
    (native_again,) = in_process(work, "restart-native")
    print(f"restart to first commit: {again:.2f} s, transformWithState {native_again:.2f} s", flush=True)
    return result | {"restart_vs_tws": round(again / native_again, 3), "keys": keys}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--rows", type=int, default=250_000)
    parser.add_argument("--phase", help=argparse.SUPPRESS)
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    # Spark's own Python workers import the processor of `transformWithState` from here.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    if options.phase:
        found = fill(options.work, options.phase, options.keys) if "fill" in options.phase else None
        print(json.dumps(found or restart(options.work, options.phase)))
        return
    work = Path(tempfile.mkdtemp(prefix="tidewheel-bench-", dir=os.environ.get("TIDEWHEEL_BENCH_DIR")))
    try:
        print(json.dumps(bench(work, options.keys, options.rows)))
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
