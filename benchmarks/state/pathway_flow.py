"""Pathway with persistence, two threads: the same sum over the same CSV files.

It runs in its own environment (see peer_env). Pathway has no batches, so its rate is the rows divided by the time of its run,
minus the time of the same run over one row, which is its start. It reads all files, emits each key's sum once, and writes what
it read to its folder once a second. This is the persistence that needs no licence key: after a crash it computes everything
again from there, so it stores its input and not its state.

The variant `sum` is Pathway's own reducer, `stateful` a Python function of state and value.
"""

import csv
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pathway as pw
from benchmarks.state import measure

THREADS = 2
SNAPSHOT_MILLISECONDS = 1000


class Message(pw.Schema):
    key: str
    value: int


@pw.reducers.stateful_single
def running_sum(total: int | None, value: int) -> int:
    return (total or 0) + value


REDUCERS = {"sum": pw.reducers.sum, "stateful": running_sum}


def run(folder: Path, state: Path, variant: str) -> float:
    """Run the flow in this process until it ends; return the seconds."""
    rows = pw.io.csv.read(folder, schema=Message, mode="static", name="in")
    total = REDUCERS[variant](pw.this.value)
    pw.io.null.write(rows.groupby(pw.this.key).reduce(pw.this.key, total=total))
    backend = pw.persistence.Backend.filesystem(state)
    persistence = pw.persistence.Config(backend, snapshot_interval_ms=SNAPSHOT_MILLISECONDS)
    begun = time.monotonic()
    pw.run(monitoring_level=pw.MonitoringLevel.NONE, persistence_config=persistence)
    return time.monotonic() - begun


def attempt(folder: Path, task: measure.Task, name: str) -> float:
    """Run the flow once, in its own process with its number of threads."""
    result = task.work / f"{name}.json"
    work = json.dumps([str(folder), str(task.work / f"persistence-{name}"), task.variant, str(result)])
    command = [sys.executable, "-m", "benchmarks.state.pathway_flow", "work", work]
    subprocess.run(command, check=True, env={**os.environ, "PATHWAY_THREADS": str(THREADS)})
    return float(json.loads(result.read_text()))


def one_row(task: measure.Task) -> Path:
    folder = task.work / "one-row"
    folder.mkdir()
    with (folder / "part.csv").open("w") as file:
        csv.writer(file).writerows([("key", "value"), ("0", 1)])
    return folder


def main() -> None:
    task = measure.task()
    files = sorted(task.input.glob("*.csv"))
    rows = sum(path.read_bytes().count(b"\n") - 1 for path in files)
    start = attempt(one_row(task), task, "start")
    seconds = attempt(task.input, task, "whole") - start
    batch = measure.Batch(rows // len(files), 1000 * seconds / len(files))
    notes = [f"{THREADS} threads, input persisted every {SNAPSHOT_MILLISECONDS} ms, a start of {start:.1f} s left out"]
    task.finish(measure.Measurement([batch], 0, notes))


if __name__ == "__main__":
    if sys.argv[1:2] == ["work"]:
        folder, state, variant, result = json.loads(sys.argv[2])
        Path(result).write_text(json.dumps(run(Path(folder), Path(state), variant)))
    else:
        main()
