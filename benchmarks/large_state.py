"""Measure state larger than memory: many keys, and the memory of each Python worker.

    python -m benchmarks.large_state [--keys 20000000] [--rows 1000000] [--again 4]

Every key occurs once. Then `--again` batches of rows draw from all keys, so state is read as well as written. The size of a
worker is the kernel's peak of its resident memory (VmHWM), which includes the pages of local state that it has mapped; its
anonymous memory, which belongs to the worker alone, is shown next to it. The last line is one JSON object.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from benchmarks.state import measure

ROOT = Path(__file__).parents[1]
SAMPLE_SECONDS = 0.2
REPORT_SECONDS = 15


@dataclass
class Worker:
    """The largest sizes of one Python worker so far, in KiB."""

    peak: int = 0
    anonymous: int = 0


def generate(folder: Path, keys: int, rows: int, again: int) -> int:
    """Write the input; return its number of rows."""
    folder.mkdir(parents=True)
    random = np.random.default_rng(7)
    parts = [random.permutation(np.arange(low, min(low + rows, keys))) for low in range(0, keys, rows)]
    parts += [random.integers(0, keys, rows) for _ in range(again)]
    for number, part in enumerate(parts):
        values = pa.array(random.integers(0, 100, len(part)), pa.int64())
        table = pa.table({"key": pc.cast(pa.array(part), pa.string()), "value": values})
        pq.write_table(table, folder / f"part-{number:05d}.parquet")
    return sum(len(part) for part in parts)


WORKERS = (b"tidewheel._spark.daemon", b"tidewheel._spark.worker_pool")


def python_workers(of: int) -> Iterator[int]:
    """Return the Python workers among the descendants of a process: Spark's, and those next to the driver."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except OSError:
                continue
            # The name in parentheses may itself hold spaces and parentheses.
            parents.setdefault(int(stat.rpartition(")")[2].split()[1]), []).append(int(entry.name))
    waiting = [of]
    while waiting:
        for child in parents.get(waiting.pop(), []):
            waiting.append(child)
            try:
                # The JVM's arguments name the daemon too.
                command = Path(f"/proc/{child}/cmdline").read_bytes()
                if any(b"-m\0" + module + b"\0" in command for module in WORKERS):
                    yield child
            except OSError:
                continue


def sample(of: int, workers: dict[int, Worker]) -> None:
    """Update the largest sizes of each worker."""
    for pid in python_workers(of):
        try:
            lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        except OSError:
            continue
        sizes = {name: value.split() for name, _, value in (line.partition(":") for line in lines)}
        # A process that is ending has no memory left to report.
        if "VmHWM" in sizes:
            worker = workers.setdefault(pid, Worker())
            worker.peak = max(worker.peak, int(sizes["VmHWM"][0]))
            worker.anonymous = max(worker.anonymous, int(sizes["RssAnon"][0]))


def run(work: Path) -> tuple[measure.Measurement, dict[int, Worker], float]:
    """Run the job in its own process and watch its workers until it ends."""
    result = work / "result.json"
    command = [sys.executable, "-m", "benchmarks.state.ours", f"--input={work / 'input'}", f"--work={work}"]
    workers: dict[int, Worker] = {}
    begun = reported = time.monotonic()
    with (work / "log.txt").open("w") as log:
        process = subprocess.Popen(
            [*command, f"--result={result}"],
            cwd=ROOT,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            while process.poll() is None:
                sample(process.pid, workers)
                if time.monotonic() - reported > REPORT_SECONDS:
                    reported = time.monotonic()
                    print(
                        f"    … {reported - begun:.0f} s, largest worker {largest(workers):,.0f} MiB",
                        flush=True,
                    )
                time.sleep(SAMPLE_SECONDS)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    seconds = time.monotonic() - begun
    if not result.exists():
        end = "\n".join((work / "log.txt").read_text(errors="replace").splitlines()[-20:])
        sys.exit(f"the job ended with code {process.returncode} and no result; the end of its log:\n{end}")
    return measure.read(result), workers, seconds


def largest(workers: dict[int, Worker]) -> float:
    return max((w.peak for w in workers.values()), default=0) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.large_state")
    parser.add_argument("--keys", type=int, default=20_000_000)
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows a batch")
    parser.add_argument("--again", type=int, default=4, help="batches over all keys after each came once")
    parser.add_argument("--cache", type=Path, default=ROOT / ".cache" / "bench")
    options = parser.parse_args()
    work = options.cache / f"large-{os.getpid()}"
    try:
        print(f"generating {options.keys:,} keys", flush=True)
        rows = generate(work / "input", options.keys, options.rows, options.again)
        print(f"running {rows:,} rows through Tidewheel", flush=True)
        measurement, workers, seconds = run(work)
        done = sum(b.rows for b in measurement.batches)
        if done != rows:
            sys.exit(f"the job took {done:,} rows of {rows:,}")
        state = sum(p.stat().st_size for p in (work / "state").rglob("*") if p.is_file())
    finally:
        shutil.rmtree(work, ignore_errors=True)
    figures = {
        "benchmark": "large_state",
        "keys": options.keys,
        "seconds": round(seconds, 1),
        "max_worker_rss_mib": round(largest(workers), 1),
        "state_bytes": state,
        "max_worker_anonymous_mib": round(max((w.anonymous for w in workers.values()), default=0) / 1024, 1),
        "workers": len(workers),
        "rows": rows,
        "batches_ms": [round(b.milliseconds) for b in measurement.batches],
    }
    print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    main()
