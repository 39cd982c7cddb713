"""Measure checkpoints, recovery, rescaling, forks and savepoints at several sizes of state, on a loopback S3 server.

    PYTHONPATH=tests python -m benchmarks.recovery [--sizes 0.1 1] [--full] [--without-spark]

A job keeps a kilobyte of random bytes for each key, so 1 GB is a million keys. Its state is on a SeaweedFS server on this
machine. A file with 10,000 random keys arrives twice a second. The last line is one JSON object, with each figure by size in GB
(`--full` adds 10):

- `checkpoint_ms`: the median time of a commit, after its tasks have written the deltas
- `recover_warm_s`, `recover_cold_s`: from SIGKILL of the driver to the next commit of a driver that is started at once, with the
  local copies of the killed driver and without them; both include the start of Spark
- `rescale_s`: from the command to the first commit with the new number of tasks
- `savepoint_s`, `fork_s`: a savepoint of the running job, and a new job from it
- `spark_checkpoint_ms`, `spark_recover_s`, `spark_rescale_s`: the same of a query of Spark, up to 1 GB, with its checkpoint in a
  local folder. Spark has no local copies after a kill, repartitions the state of a stopped query, and has no forks or savepoints
"""

from __future__ import annotations

import argparse
import contextlib
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
from collections.abc import Callable, Iterator
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
_LOADED_AT_ONCE = 2_500_000
"""How many keys the input files have that are on the disk at the same time."""
_CHANGED = 10_000
_COMMITS, _UNREAD = 10, 20
_SPARK_GB = 1.0
"""The largest state of the query of Spark."""


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
    """A job or a query over one size of state, and its input."""

    def __init__(self, folder: Path, keys: int) -> None:
        """Take an empty folder, and how many keys there are."""
        self.folder, self.keys = folder, keys
        self.random, self.files, self.done = np.random.default_rng(7), count(), threading.Event()
        (folder / "in").mkdir(parents=True)
        self.log = folder / "driver.log"

    def write(self, keys: np.ndarray) -> None:
        """Write an input file."""
        values = self.random.bytes(_VALUE * len(keys))
        column = pa.FixedSizeBinaryArray.from_buffers(pa.binary(_VALUE), len(keys), [None, pa.py_buffer(values)])
        table = pa.table({"key": pa.array(keys, pa.int64()), "value": column.cast(pa.binary())})
        unready = self.folder / "in" / f"_{next(self.files):06}.parquet"
        pq.write_table(table, unready, compression="none")
        unready.rename(unready.with_name(unready.name[1:]))

    def produce(self) -> None:
        """Write a file twice a second, unless many are unread."""
        while not self.done.wait(0.5):
            if self.unread() < _UNREAD:
                self.write(self.random.integers(0, self.keys, _CHANGED))

    def unread(self) -> int:
        """Return about how many files are unread."""
        return 0

    def command(self, *more: str) -> list[str]:
        """Return the command of a driver."""
        raise NotImplementedError

    def committed_at(self, number: int) -> int:
        """Return when a commit was made, in ns."""
        raise NotImplementedError

    def start(self, *more: str) -> subprocess.Popen[str]:
        """Start a driver in its own process group."""
        with self.log.open("w") as log:
            return subprocess.Popen(
                self.command(*more), stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True
            )

    def finish(self, *more: str) -> None:
        """Run a driver to its end."""
        driver = self.start(*more)
        driver.communicate()
        if driver.returncode:
            raise SystemExit(f"failed: {' '.join(self.command(*more))}\n{self.log.read_text()[-2000:]}")

    def load(self, *more: str) -> None:
        """Fill the state in parts, and delete the input files of each part, so that the disk has room for the next."""
        for first in range(0, self.keys, _LOADED_AT_ONCE):
            keys = np.arange(first, min(first + _LOADED_AT_ONCE, self.keys))
            for low in range(0, len(keys), _LOADED):
                self.write(keys[low : low + _LOADED])
            self.finish("--until", "caught-up", *more)
            shutil.rmtree(self.folder / "in")
            (self.folder / "in").mkdir()

    @contextlib.contextmanager
    def running(self, *more: str) -> Iterator[None]:
        """Run a driver as `self.driver`, which may be replaced, while files are written."""
        producer = threading.Thread(target=self.produce, daemon=True)
        producer.start()
        self.driver = self.start(*more)
        try:
            yield
        finally:
            self.done.set()
            producer.join()
            self.kill()

    def kill(self) -> int:
        """Kill the driver; return when, in ns."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.driver.pid, signal.SIGKILL)
        killed = time.time_ns()
        self.driver.communicate()
        return killed

    def commits(self, number: int) -> list[tuple[int, float]]:
        """Wait for this number of commits of the driver; return their numbers and durations in ms."""
        assert self.driver.stdout is not None
        found = []
        while len(found) < number:
            line = self.driver.stdout.readline()
            if not line:
                raise SystemExit("a driver ended too early")
            if line.startswith("committed"):
                found.append((int(line.split()[1]), float(line.split()[2])))
        return found

    def commit_ms(self) -> float:
        """Return the median duration of a commit, after the first ones."""
        self.commits(3)
        return statistics.median(ms for _, ms in self.commits(_COMMITS))

    def next_commit(self, since: int) -> float:
        """Return the seconds from a time in ns to the next commit of the driver."""
        return (self.committed_at(self.commits(1)[0][0]) - since) / 1e9

    def recover(self, *more: str) -> float:
        """Kill the driver and start another one; return the seconds to its first commit."""
        killed = self.kill()
        self.driver = self.start(*more)
        return self.next_commit(killed)


class TidewheelBench(Bench):
    """A job of Tidewheel, with its state at a URL."""

    def __init__(self, folder: Path, keys: int, state: str) -> None:
        """Take the state URL too."""
        super().__init__(folder, keys)
        self.state = state

    def command(self, *more: str) -> list[str]:
        command = [sys.executable, "-m", "benchmarks.recovery", "--child", "--folder", str(self.folder)]
        return [*command, "--state", self.state, *more]

    def committed_at(self, number: int) -> int:
        return self.job.show(number).id.created_at

    @property
    def job(self) -> StoredJob:
        """Return the job at the state URL."""
        return StoredJob("recovery", state=self.state)

    def rescale(self, tasks: int) -> float:
        """Return the seconds from the command to the first commit with another number of tasks."""
        ordered = time.time_ns()
        build(self.folder, self.state).rescale(tasks)
        while True:
            found: Manifest = self.job.show(self.commits(1)[0][0])
            if found.parallelism == tasks:
                return (found.id.created_at - ordered) / 1e9

    def measure(self) -> dict[str, float]:
        """Return all figures of this size."""
        first, second = (("--local", f"{self.folder}/local-{number}") for number in range(2))
        self.load(*first)
        size = sum(file.size for file in self.job.show().files())
        with self.running(*first):
            checkpoint = self.commit_ms()
            savepoint = timed(lambda: self.job.savepoint("measured"))
            fork = timed(lambda: self.job.fork("measured", "forked"))
            rescale = self.rescale(3)
            warm = self.recover(*first)
            self.commits(3)
            cold = self.recover(*second)
        return {
            "state_gb": size / 1e9,
            "checkpoint_ms": checkpoint,
            "recover_warm_s": warm,
            "recover_cold_s": cold,
            "rescale_s": rescale,
            "fork_s": fork,
            "savepoint_s": savepoint,
        }


class SparkBench(Bench):
    """A query of Spark, with its checkpoint in a local folder."""

    def command(self, *more: str) -> list[str]:
        return [sys.executable, "-m", "benchmarks.recovery_spark", str(self.folder), *more]

    def unread(self) -> int:
        batches = max((int(path.name) for path in (self.folder / "checkpoint/offsets").glob("[0-9]*")), default=0)
        return len(list((self.folder / "in").iterdir())) - batches

    def committed_at(self, number: int) -> int:
        return (self.folder / "checkpoint" / "commits" / str(number)).stat().st_mtime_ns

    def measure(self) -> dict[str, float]:
        """Return all figures of this size."""
        self.load()
        with self.running():
            checkpoint = self.commit_ms()
            recover = self.recover()
            self.commits(3)
            stopped = self.kill()
            self.finish("--repartition", "3")
            self.driver = self.start()
            rescale = self.next_commit(stopped)
        return {"spark_checkpoint_ms": checkpoint, "spark_recover_s": recover, "spark_rescale_s": rescale}


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
    parser.add_argument("--without-spark", action="store_true")
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
        keys = round(size * 1e9 / _VALUE)
        with (
            tempfile.TemporaryDirectory(prefix="tidewheel-recovery-") as name,
            running_seaweedfs(Path(name) / "server") as server,
        ):
            found = TidewheelBench(Path(name) / "job", keys, server.url("recovery")).measure()
        if size <= _SPARK_GB and not given.without_spark:
            with tempfile.TemporaryDirectory(prefix="tidewheel-recovery-") as name:
                found |= SparkBench(Path(name) / "query", keys).measure()
        results[f"{size:g}"] = {key: round(value, 3) for key, value in found.items()}
        print(f"{size:g} GB: {results[f'{size:g}']}", flush=True)
    first, last = next(iter(results.values())), list(results.values())[-1]
    growth = {key: round(last[key] / first[key], 2) for key in ("recover_cold_s", "rescale_s", "fork_s")}
    print(json.dumps({"by_gb": results, "growth": growth}))


if __name__ == "__main__":
    main()
