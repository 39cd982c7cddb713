"""Run every job, each in its own process; see the package's docstring."""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
from io import BytesIO
from pathlib import Path

import benchmarks.many
from benchmarks.many import flights
from benchmarks.many.jobs import BRANCHES

ROOT = Path(__file__).parents[2]
GOALS = {"rows_s": 60_000, "sessions_s": 80_000}
FIGURES = {"three": "rows", "sessions": "sessions"}
"""The jobs whose figures have names of their own."""


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.many.run",
        description=benchmarks.many.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--batches", type=int, default=14, help="files of 28,000 records")
    parser.add_argument("--warmup", type=int, default=5, help="batches that are not counted")
    parser.add_argument("--only", choices=tuple(BRANCHES), action="append", help="run these jobs alone")
    parser.add_argument("--before", metavar="COMMIT", help="compare with the jobs and the source of this commit")
    return parser.parse_args()


def tree_of(commit: str, folder: Path) -> Path:
    """Extract the source and the benchmarks of a commit into a folder: its programs need its source."""
    command = ["git", "archive", commit, "src", "benchmarks"]
    archive = subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=BytesIO(archive)) as tar:
        tar.extractall(folder, filter="data")
    return folder


def speed(job: str, tree: Path, data: Path, work: Path, warmup: int) -> float:
    """Run a job of a tree; return the median speed of its warm batches, in records a second."""
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    environment = {**os.environ, "PYTHONPATH": f"{tree / 'src'}{os.pathsep}{tree}"}
    command = [sys.executable, "-m", "benchmarks.many.jobs", job, str(data), str(work), str(work / "result")]
    ran = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True)
    if ran.returncode:
        sys.exit(f"{job}: {ran.stderr[-2000:]}")
    batches = json.loads((work / "result").read_text())
    return statistics.median(1000 * rows / milliseconds for rows, milliseconds in batches[warmup:] or batches[-1:])


def main() -> None:
    options = arguments()
    document: dict[str, float | str] = {"benchmark": "many"}
    with tempfile.TemporaryDirectory(prefix="bench-many-") as folder:
        data, work = Path(folder, "flights"), Path(folder, "work")
        flights.write(data, options.batches)
        before = tree_of(options.before, Path(folder, "before")) if options.before else None
        for job in options.only or BRANCHES:
            name = FIGURES.get(job, job)
            now = document[f"{name}_s"] = round(speed(job, ROOT, data, work, options.warmup))
            told = f"{job:10} {now:10,} records a second"
            if before is not None:
                then = round(speed(job, before, data, work, options.warmup))
                document[f"{name}_vs_before"] = round(now / then, 2)
                told += f", {then:,} before"
            if f"{name}_s" in GOALS:
                told += f", {GOALS[f'{name}_s']:,} wanted"
            print(told, flush=True)
    print(json.dumps(document))


if __name__ == "__main__":
    main()
