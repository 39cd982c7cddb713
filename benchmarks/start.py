"""Measure the time from the command to the first commit of 100 rows, compared with a bare PySpark program.

The bare program starts Spark, reads the same file as a stream, and in `foreachBatch` passes it through a `mapInArrow` and
collects it: no keys, no state, no commit, no output. Both start from nothing and alternate; medians are compared. The last line
is one JSON object: start_s, bare_s, start_vs_bare, version_s, and the phases of a start.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROWS = 100
_PHASES = re.compile(r"^started in ([\d.]+) s: ([^;]*)")

PROGRAM = """
from tidewheel import Job, sinks, sources

job = Job("start", state="file:{folder}/state-{number}")
orders = job.source("in", sources.files("{folder}/orders", schema="user string, cents long"))
totals = orders.key_by("by-user", "user", value="cents").stateful_map(
    "total", lambda user, cents, total: (total + cents, total + cents), default=0)
totals.sink("out", sinks.files("{folder}/totals-{number}", format="json"))
"""

BARE = """
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[*]").config("spark.ui.enabled", "false").getOrCreate()

def batch(frame, number):
    rows = frame.mapInArrow(lambda batches: batches, frame.schema).collect()
    print("first", len(rows), flush=True)

frame = spark.readStream.schema("user string, cents long").json("{folder}/orders")
frame.writeStream.foreachBatch(batch).option("checkpointLocation", "{folder}/bare-{number}").trigger(
    availableNow=True).start().awaitTermination()
"""


def main() -> None:
    """Measure, print a table, and as the last line one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="How often each is started.")
    rounds = parser.parse_args().rounds
    ours, bare, phases = [], [], []
    with tempfile.TemporaryDirectory(prefix="tidewheel-start-") as name:
        folder = Path(name)
        make_orders(folder / "orders")
        for number in range(rounds):
            seconds, spent = start(folder, number)
            ours.append(seconds)
            phases.append(spent)
            bare.append(start_bare(folder, number))
            print(f"round {number + 1}: Tidewheel {ours[-1]:.2f} s, bare PySpark {bare[-1]:.2f} s", flush=True)
    figures = {
        "start_s": statistics.median(ours),
        "bare_s": statistics.median(bare),
        "start_vs_bare": statistics.median(mine / theirs for mine, theirs in zip(ours, bare, strict=True)),
        "version_s": min(version() for _ in range(rounds)),
    }
    spent = {phase: round(statistics.median(run[phase] for run in phases), 2) for phase in phases[0]}
    for phase, seconds in spent.items():
        print(f"{phase:<14} {seconds:6.2f} s")
    print(json.dumps({name: round(value, 3) for name, value in figures.items()} | {"phases_s": spent}))


def make_orders(folder: Path) -> None:
    """Write 100 rows of ten users."""
    folder.mkdir()
    lines = [json.dumps({"user": f"user-{number % 10}", "cents": number}) for number in range(ROWS)]
    (folder / "orders.json").write_text("\n".join(lines))


def start(folder: Path, number: int) -> tuple[float, dict[str, float]]:
    """Return the seconds from the command to the first commit, and the seconds of each phase."""
    program = folder / f"program_{number}.py"
    program.write_text(PROGRAM.format(folder=folder, number=number))
    began = time.perf_counter()
    command = [sys.executable, "-m", "tidewheel", "run", str(program), "--until", "caught-up"]
    with _process(command) as process:
        spent: dict[str, float] = {}
        seconds = None
        for line in process.stdout:  # type: ignore[union-attr]
            if line.startswith("batch 0"):
                seconds = time.perf_counter() - began
                assert f" {ROWS} rows" in line, line
            elif match := _PHASES.match(line):
                pairs = (item.rsplit(" ", 1) for item in match[2].split(", "))
                spent = {phase: float(text) for phase, text in pairs}
                spent = {"before it": time.perf_counter() - began - float(match[1]), **spent}
    if seconds is None or process.returncode:
        raise SystemExit(f"the job has not run; run it by hand: {' '.join(command)}")
    return seconds, spent


def start_bare(folder: Path, number: int) -> float:
    """Return the seconds from the start of the bare program to the end of its first batch."""
    program = folder / f"bare_{number}.py"
    program.write_text(BARE.format(folder=folder, number=number))
    began = time.perf_counter()
    with _process([sys.executable, str(program)]) as process:
        for line in process.stdout:  # type: ignore[union-attr]
            if line == f"first {ROWS}\n":
                return time.perf_counter() - began
    raise SystemExit("the bare PySpark program has not run")


def _process(command: list[str]) -> subprocess.Popen[str]:
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment,
        cwd=tempfile.gettempdir(),
    )


def version() -> float:
    """Return the seconds that `tidewheel --version` takes."""
    began = time.perf_counter()
    subprocess.run([sys.executable, "-m", "tidewheel", "--version"], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
