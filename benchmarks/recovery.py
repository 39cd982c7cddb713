"""Measure checkpoints, recovery, rescaling, forks and savepoints at several sizes of state, on a loopback S3 server.

    PYTHONPATH=tests python -m benchmarks.recovery [--sizes 0.1 1] [--full]

A job keeps a kilobyte of random bytes for each key, so 1 GB is a million keys. Its state is on a SeaweedFS server on this
machine. A file with 10,000 random keys arrives twice a second. The last line is one JSON object, with each figure by size in GB
(`--full` adds 10):

- `checkpoint_ms`: the median time of a commit, after its tasks have written the deltas
- `recover_warm_s`, `recover_cold_s`: from SIGKILL of the driver to the next commit of a driver that is started at once, with the
  local copies of the killed driver and without them; both include the start of Spark
- `rescale_s`: from the command to the first commit with the new number of tasks
- `savepoint_s`, `fork_s`: a savepoint of the running job, and a new job from it
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tidewheel import Job, RunOptions, StoredJob
from tidewheel.checkpoints import Manifest
from tidewheel.sinks import discard
from tidewheel.sources import files

_VALUE = 1000
_LOADED = 50_000
"""How many keys a file of the first load has."""
_CHANGED = 10_000
_COMMITS = 10


def keep(key: int, record: Any, old: bytes | None) -> tuple[int, bytes]:
    """Replace the state of a key."""
    return key, record.value


def build(folder: Path, state: str) -> Job:
    """Return the job."""
    job = Job("recovery", state=state, keep=10_000, collect_every=10_000)
    source = files(f"{folder}/in", schema="key long, value binary", max_files_per_trigger=1)
    job.source("in", source).key_by("by-key", "key").stateful_map("keep", keep, default=None).sink("out", discard())
    return job


def child(given: argparse.Namespace) -> None:
    """Run the job and print each commit."""
    options = RunOptions(
        master="local[2]",
        local=given.local,
        until=given.until,
        progress=lambda batch: print(f"committed {batch.sequence} {batch.commit_ms}", flush=True),
    )
    build(given.folder, given.state).run(parallelism=2, options=options)


class Bench:
    """One size of state."""

    def __init__(self, folder: Path, state: str, keys: int) -> None:
        """Take an empty folder, the state URL, and how many keys there are."""
        self.folder, self.state, self.keys = folder, state, keys
        self.random, self.files, self.done = np.random.default_rng(7), count(), threading.Event()
        (folder / "in").mkdir(parents=True)

    def write(self, keys: np.ndarray) -> None:
        """Write an input file."""
        values = self.random.bytes(_VALUE * len(keys))
        column = pa.FixedSizeBinaryArray.from_buffers(pa.binary(_VALUE), len(keys), [None, pa.py_buffer(values)])
        table = pa.table({"key": pa.array(keys, pa.int64()), "value": column.cast(pa.binary())})
        unready = self.folder / "in" / f"_{next(self.files):06}.parquet"
        pq.write_table(table, unready, compression="none")
        unready.rename(unready.with_name(unready.name[1:]))

    def produce(self) -> None:
        """Write a file twice a second."""
        while not self.done.wait(0.5):
            self.write(self.random.integers(0, self.keys, _CHANGED))

    def start(self, local: str, *more: str) -> subprocess.Popen[str]:
        """Start a driver in its own process group."""
        command = [sys.executable, "-m", "benchmarks.recovery", "--child", "--folder", str(self.folder)]
        return subprocess.Popen(
            [*command, "--state", self.state, "--local", f"{self.folder}/{local}", *more],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )

    def commits(self, driver: subprocess.Popen[str], number: int) -> list[tuple[int, float]]:
        """Wait for this number of commits of a driver; return their sequences and durations in ms."""
        assert driver.stdout is not None
        found = []
        while len(found) < number:
            line = driver.stdout.readline()
            if not line:
                raise SystemExit("a driver ended too early")
            if line.startswith("committed"):
                found.append((int(line.split()[1]), float(line.split()[2])))
        return found

    def recover(self, driver: subprocess.Popen[str], local: str) -> tuple[subprocess.Popen[str], float]:
        """Kill a driver and start another one; return the new driver and the seconds to its first commit."""
        os.killpg(driver.pid, signal.SIGKILL)
        killed = time.time_ns()
        driver.communicate()
        another = self.start(local)
        sequence, _ = self.commits(another, 1)[0]
        return another, (self.job.show(sequence).id.created_at - killed) / 1e9

    def rescale(self, driver: subprocess.Popen[str], tasks: int) -> float:
        """Return the seconds from the command to the first commit with another number of tasks."""
        ordered = time.time_ns()
        build(self.folder, self.state).rescale(tasks)
        while True:
            found: Manifest = self.job.show(self.commits(driver, 1)[0][0])
            if found.parallelism == tasks:
                return (found.id.created_at - ordered) / 1e9

    @property
    def job(self) -> StoredJob:
        """Return the job at the state URL."""
        return StoredJob("recovery", state=self.state)

    def measure(self) -> dict[str, float]:
        """Return all figures of this size."""
        for low in range(0, self.keys, _LOADED):
            self.write(np.arange(low, min(low + _LOADED, self.keys)))
        loading = self.start("local-0", "--until", "caught-up")
        if loading.communicate() and loading.returncode:
            raise SystemExit("the state could not be loaded")
        shutil.rmtree(self.folder / "in")
        (self.folder / "in").mkdir()
        size = sum(file.size for file in self.job.show().files())
        producer = threading.Thread(target=self.produce, daemon=True)
        producer.start()
        driver = self.start("local-0")
        try:
            self.commits(driver, 3)
            checkpoint = statistics.median(ms for _, ms in self.commits(driver, _COMMITS))
            savepoint = timed(lambda: self.job.savepoint("measured"))
            fork = timed(lambda: self.job.fork("measured", "forked"))
            rescale = self.rescale(driver, 3)
            driver, warm = self.recover(driver, "local-0")
            self.commits(driver, 3)
            driver, cold = self.recover(driver, "local-1")
        finally:
            self.done.set()
            producer.join()
            os.killpg(driver.pid, signal.SIGKILL)
            driver.communicate()
        return {
            "state_gb": size / 1e9,
            "checkpoint_ms": checkpoint,
            "recover_warm_s": warm,
            "recover_cold_s": cold,
            "rescale_s": rescale,
            "fork_s": fork,
            "savepoint_s": savepoint,
        }


def timed(action: Callable[[], object]) -> float:
    """Return the seconds that an action takes."""
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def main() -> None:
    """Print a table, and one line of JSON."""
    from servers.stores import running_seaweedfs

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=float, nargs="+", default=[0.1, 1.0])
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--child", action="store_true")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--state")
    parser.add_argument("--local")
    parser.add_argument("--until")
    given = parser.parse_args()
    if given.child:
        child(given)
        return
    results: dict[str, dict[str, float]] = {}
    for size in [*given.sizes, *([10.0] if given.full else [])]:
        with (
            tempfile.TemporaryDirectory(prefix="tidewheel-recovery-") as name,
            running_seaweedfs(Path(name) / "server") as server,
        ):
            bench = Bench(Path(name) / "job", server.url("recovery"), round(size * 1e9 / _VALUE))
            found = results[f"{size:g}"] = {key: round(value, 3) for key, value in bench.measure().items()}
            print(f"{size:g} GB: {found}", flush=True)
    first, last = next(iter(results.values())), list(results.values())[-1]
    growth = {key: round(last[key] / first[key], 2) for key in ("recover_cold_s", "rescale_s", "fork_s")}
    print(json.dumps({"by_gb": results, "growth": growth}))


if __name__ == "__main__":
    main()
