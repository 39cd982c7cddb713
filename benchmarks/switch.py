"""Measure how long records wait while `tidewheel switch` replaces the program of a running job under load.

A job reads files, one for each batch. They arrive at intervals of twice the duration of a batch, so the job is busy and not
behind. A second program follows the job on a fork, takes over, and continues. The pause is the time that the first file of the
second program waited for its commit, or the time since the last commit of the first program, whichever is shorter. It is
compared with the median duration of the first program's batches while it ran alone. The output is compared with a plain count.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tidewheel import Job, RunOptions
from tidewheel._storage import open_store
from tidewheel.checkpoints import Manifest, StreamCheckpoints
from tidewheel.sinks import files as file_sink
from tidewheel.sources import files

_ALONE = 12
"""How many batches the first program runs alone."""


def build(folder: Path) -> Job:
    """Return the job: a running total for each user."""
    job = Job("switched", state=f"file://{folder}/state", n_shards=8, keep=1000)
    source = files(f"{folder}/in", format="json", schema="user long, cents long", max_files_per_trigger=1)
    totals = job.source("in", source).key_by("by-user", "user")
    totals.stateful_map("total", lambda user, order, total: (total + order.cents, total + order.cents), default=0).sink(
        "out", file_sink(f"{folder}/out", format="json")
    )
    return job


def child(folder: Path, *, switch: bool) -> None:
    """Run the job, or take it over, and print each commit."""
    options = RunOptions(
        master="local[2]",
        local=f"{folder}/local-{os.getpid()}",
        progress=lambda batch: print(f"committed {batch.sequence} {batch.seconds}", flush=True),
    )
    job = build(folder)
    if switch:
        job.switch(lambda found: found.same, parallelism=2, options=options)
    else:
        job.run(parallelism=2, options=options)


def start(folder: Path, kind: str) -> subprocess.Popen[str]:
    """Start a child."""
    command = [sys.executable, "-m", "benchmarks.switch", "--child", kind, "--folder", str(folder)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def until(process: subprocess.Popen[str], commits: int) -> list[float]:
    """Wait until a child has made this many commits; return the durations of their batches in seconds."""
    assert process.stdout is not None
    durations = []
    for _ in range(commits):
        line = process.stdout.readline()
        if not line:
            raise SystemExit("a program ended too early")
        durations.append(float(line.split()[2]))
    return durations


def write_input(folder: Path, numbers: Sequence[int], rows: int, keys: int) -> None:
    """Write the input files."""
    (folder / "in").mkdir(exist_ok=True)
    for number in numbers:
        lines = (f'{{"user": {(number * rows + n) % keys}, "cents": {n % 100}}}\n' for n in range(rows))
        unready = folder / "in" / f"_{number:05}.json"
        unready.write_text("".join(lines))
        unready.rename(folder / "in" / f"{number:05}.json")


def produce(folder: Path, given: argparse.Namespace, interval: float, done: threading.Event) -> None:
    """Write a file at each interval."""
    for number in itertools.count(_ALONE):
        write_input(folder, [number], given.rows, given.keys)
        if done.wait(interval):
            return


def pause_of(folder: Path) -> float:
    """Return the pause in seconds."""
    commits = commits_of(folder)
    taken = next(state.sequence for state in commits if state.kind == "upgrade")
    batches = [state for state in commits if state.kind == "batch"]
    before = [state for state in batches if state.sequence < taken]
    first = next(state for state in batches if state.sequence > taken)
    number = before[-1].source_offsets["in"]
    assert isinstance(number, int)
    arrived = (folder / "in" / f"{number:05}.json").stat().st_mtime_ns
    return (first.id.created_at - max(arrived, before[-1].id.created_at)) / 1e9


def commits_of(folder: Path) -> list[Manifest]:
    """Return the kept commits of the job."""
    return StreamCheckpoints(open_store(f"file://{folder}/state"), "switched").list()


def check(folder: Path, rows: int, keys: int) -> None:
    """Compare the output with a plain count of the files that were read."""
    written = [json.loads(line) for path in (folder / "out").glob("*.json") for line in path.read_text().splitlines()]
    if len(written) % rows:
        raise SystemExit(f"the output has {len(written)} rows, which is no whole number of files")
    totals: Counter[int] = Counter()
    expected: Counter[tuple[int, int]] = Counter()
    for number in range(len(written) // rows):
        for n in range(rows):
            user = (number * rows + n) % keys
            totals[user] += n % 100
            expected[user, totals[user]] += 1
    if Counter((row["user"], row["value"]) for row in written) != expected:
        raise SystemExit("the output differs from a plain count")


def stop(process: subprocess.Popen[str]) -> None:
    """Stop a child gracefully."""
    process.send_signal(signal.SIGINT)
    process.communicate()


def main() -> None:
    """Print a table, and one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--child", choices=["run", "switch"])
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--keys", type=int, default=50_000)
    given = parser.parse_args()
    if given.child:
        child(given.folder, switch=given.child == "switch")
        return
    with tempfile.TemporaryDirectory(prefix="tidewheel-switch-") as name:
        folder = Path(name)
        write_input(folder, range(_ALONE), given.rows, given.keys)
        first = start(folder, "run")
        batch = statistics.median(until(first, _ALONE)[2:])
        done = threading.Event()
        producer = threading.Thread(target=produce, args=(folder, given, 2 * batch, done))
        producer.start()
        second = start(folder, "switch")
        until(second, 4)
        done.set()
        producer.join()
        stop(second)
        first.communicate()
        pause = pause_of(folder)
        check(folder, given.rows, given.keys)
    print(f"a batch of the first program alone   {batch:8.3f} s")
    print(f"pause at the switch                  {pause:8.3f} s")
    print("output: each row once, as in a plain count")
    print(
        json.dumps({"batch_s": round(batch, 3), "pause_s": round(pause, 3), "pause_vs_batch": round(pause / batch, 2)})
    )


if __name__ == "__main__":
    main()
