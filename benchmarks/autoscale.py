"""Measure `parallelism="auto"`: the number of tasks of a job whose load rises tenfold and falls again.

    python -m benchmarks.autoscale [--low 30] [--high 300] [--seconds 30]

The job's function waits 10 ms for each record, like a request to a service, so a task handles at most 100 records a second on
any machine. Every half second a file with half a second's records arrives: first at the low rate, then at the high rate for
twice as long, then at the low rate for twice as long. The table has a row for every few seconds. The last line is one JSON
object: `peak_tasks`, `end_tasks`, how often the number changed, and whether every record was counted.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import threading
import time
from itertools import pairwise
from pathlib import Path

from tidewheel import Job, RunOptions, StoredJob
from tidewheel._spark.progress import BatchProgress
from tidewheel.sinks import discard
from tidewheel.sources import files

_EVERY_S = 0.5
_KEYS = 64
_CALL_S = 0.01
_PAD = "x" * 20_000
"""A batch of few bytes would run in one task."""


def ask(key: int, record: object, seen: int) -> tuple[int, int]:
    """Count the records of a key, as slowly as a service would."""
    time.sleep(_CALL_S)
    return seen + 1, seen + 1


def build(folder: Path) -> Job:
    """Return the job."""
    job = Job("autoscaled", state=f"file://{folder}/state", n_shards=16)
    source = files(f"{folder}/in", format="json", schema="key long, pad string")
    keyed = job.source("in", source).key_by("by-key", "key")
    keyed.stateful_map("seen", ask, default=0).sink("out", discard())
    return job


class Producer(threading.Thread):
    """Write a file twice a second."""

    def __init__(self, folder: Path, rates: list[tuple[int, float]]) -> None:
        """Take pairs of records a second and seconds."""
        super().__init__(daemon=True)
        self.folder, self.rates = folder, rates
        self.rate = self.written = 0
        folder.mkdir()

    def run(self) -> None:
        number, due = 0, time.monotonic()
        for rate, seconds in self.rates:
            self.rate = rate
            for _ in range(round(seconds / _EVERY_S)):
                rows = round(rate * _EVERY_S)
                lines = (f'{{"key": {(self.written + n) % _KEYS}, "pad": "{_PAD}"}}\n' for n in range(rows))
                unready = self.folder / f"_{number:05}.json"
                unready.write_text("".join(lines))
                unready.rename(self.folder / f"{number:05}.json")
                self.written, number, due = self.written + rows, number + 1, due + _EVERY_S
                time.sleep(max(0.0, due - time.monotonic()))


def main() -> None:
    """Print a table, and one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--low", type=int, default=30)
    parser.add_argument("--high", type=int, default=300)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--line-every", type=float, default=5.0)
    given = parser.parse_args()
    rates = [(given.low, given.seconds), (given.high, 2 * given.seconds), (given.low, 2 * given.seconds)]
    with tempfile.TemporaryDirectory(prefix="tidewheel-autoscale-") as name:
        folder = Path(name)
        producer, job = Producer(folder / "in", rates), build(folder)
        begun, lines, tasks, read = time.monotonic(), [-given.line_every], [1], -1
        print("| second | records a second | tasks | waiting records | batch, s |\n|---|---|---|---|---|")

        def progress(batch: BatchProgress) -> None:
            nonlocal read, begun
            if not producer.is_alive() and not producer.written:
                begun = time.monotonic()
                producer.start()
            read += batch.rows
            tasks.append(batch.parallelism)
            second = time.monotonic() - begun
            if second >= lines[-1] + given.line_every:
                lines.append(second)
                waiting = producer.written - read
                print(
                    f"| {second:.0f} | {producer.rate:,} | {batch.parallelism} | {waiting:,} | {batch.seconds:.1f} |",
                    flush=True,
                )

        # The first batch includes the start of the job.
        (folder / "in" / "00000-first.json").write_text(f'{{"key": 0, "pad": "{_PAD}"}}\n')
        options = RunOptions(master="local[8]", max_batch="2 seconds", local=f"{folder}/local", progress=progress)
        with job.start(parallelism="auto", options=options) as run:
            while not producer.written:
                time.sleep(0.1)
            producer.join()
            while read < producer.written:
                time.sleep(0.1)
            run.stop()
            run.wait()
        counted = sum(int(value) for _, value in StoredJob("autoscaled", state=job.state).scan("seen"))
    changes = sum(was != now for was, now in pairwise(tasks[1:]))
    result = {"peak_tasks": max(tasks), "end_tasks": tasks[-1], "changes": changes, "exact": int(counted == read + 1)}
    print(json.dumps(result))


if __name__ == "__main__":
    main()
