"""Memory and disk do not grow with the number of batches when the number of keys does not."""

from __future__ import annotations

import gc
import multiprocessing
import os
import tracemalloc
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from tidewheel import Job, RunOptions
from tidewheel.sinks import files as file_sink
from tidewheel.sources import iterable
from tidewheel.testing import MemoryRun

BATCHES = 500


def used(folder: Path) -> tuple[int, int]:
    """Return the number of files below a folder and their bytes on disk."""
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return len(paths), sum(path.stat().st_blocks * 512 for path in paths)


def counting(tmp_path: Path, **settings) -> Job:
    job = Job("growth", state=f"file://{tmp_path}/state", n_shards=8, keep=5, collect_every=10, grace="0 s", **settings)
    numbers = job.source("in", iterable([]), type=int)
    numbers.key_by("by", lambda number: number).stateful_map("count", lambda k, v, n: (n + 1, n + 1), default=0).sink(
        "out", file_sink(str(tmp_path / "out"))
    )
    return job


def many_batches(tmp_path: Path) -> dict[int, tuple[int, tuple[int, int]]]:
    """Run the batches; return the memory in use and the room that the state takes, after 200 of them and after all."""
    seen = {}
    with MemoryRun(counting(tmp_path), parallelism=2) as run:
        tracemalloc.start()
        for number in range(BATCHES):
            run.batch({"in": [number % 7, number % 5, 3]})
            if number + 1 in (200, BATCHES):
                gc.collect()
                seen[number + 1] = (tracemalloc.get_traced_memory()[0], used(tmp_path / "state"))
        tracemalloc.stop()
    return seen


def test_500_batches_over_the_same_keys_take_no_more_room_than_200(tmp_path):
    # In a process of its own: what other tests left running, or in caches, would be traced too.
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
        seen = process.submit(many_batches, tmp_path).result()
    (memory, state), (memory_after, state_after) = seen[200], seen[BATCHES]
    print(f"after 200 and {BATCHES} batches: {seen}")
    assert memory_after < memory + 200_000
    assert state_after[0] <= state[0] + 20
    assert state_after[1] <= state[1] * 1.2


@pytest.mark.slow
def test_five_hundred_batches_on_spark_take_no_more_room_than_two_hundred(tmp_path, spark):
    def workers() -> int:
        """Return the memory of the largest Python worker, of Spark or beside its driver, in kB."""
        modules = (b"tidewheel._spark.daemon", b"tidewheel._spark.worker_pool")
        sizes = [0]
        for entry in Path("/proc").iterdir():
            try:
                command = (entry / "cmdline").read_bytes()
                if any(module in command for module in modules):
                    status = (entry / "status").read_text()
                    sizes.append(int(status.split("RssAnon:")[1].split()[0]))
            except (OSError, IndexError):
                continue
        return max(sizes)

    job = Job("growth", state=f"file://{tmp_path}/state", n_shards=8, keep=5, collect_every=10, grace="0 s")
    numbers = job.source("in", iterable([n % 11 for n in range(BATCHES * 5)], batch_size=5))
    numbers.key_by("by", lambda number: number).stateful_map("count", lambda k, v, n: (n + 1, n + 1), default=0).sink(
        "out", file_sink(str(tmp_path / "out"))
    )
    seen = {}

    def note(batch) -> None:
        if batch.batch in (200, BATCHES - 1):
            seen[batch.batch] = (workers(), used(tmp_path / "state"), used(tmp_path / "local"))

    result = job.run(
        until="end", parallelism=2, options=RunOptions(spark=spark, local=str(tmp_path / "local"), progress=note)
    )
    print(f"after 200 and {BATCHES} batches: {seen}, this process {os.getpid()}")
    assert result.event_count == BATCHES * 5
    (memory, state, local), (memory_after, state_after, local_after) = seen[200], seen[BATCHES - 1]
    assert memory_after < memory * 1.2
    assert state_after[0] <= state[0] + 20
    assert state_after[1] <= state[1] * 1.2
    assert local_after[1] <= local[1] * 1.2
