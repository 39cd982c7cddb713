"""Run every program over the same records, each in its own process; see the package's docstring."""

import argparse
import json
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.records import generate
from benchmarks.state import measure, peer_env
from benchmarks.state.cases import Case
from benchmarks.state.run import ROOT, CaseFailed, run_case
from rich.console import Console
from rich.table import Table

PROGRAMS = ("column", "row", "dict", "record", "struct", "row_filter", "dict_map")
MODULES = {
    **{name: ("records.ours", name) for name in PROGRAMS},
    "bytewax": ("state.bytewax_flow", "records"),
    "transform_with_state": ("records.native", ""),
}
KEYS = 5_000
ROWS = 250_000

RATIOS = {
    "row_vs_column": ("row", "column", 0.7),
    "dict_vs_column": ("dict", "column", None),
    "record_vs_column": ("record", "column", 0.6),
    "struct_vs_column": ("struct", "column", None),
    "row_filter_vs_column": ("row_filter", "column", 0.6),
    "dict_map_vs_column": ("dict_map", "column", 0.4),
    "row_vs_bytewax": ("row", "bytewax", 2),
    "row_vs_tws": ("row", "transform_with_state", 10),
}
"""Each ratio of rows a second: whose, over whose, and its goal."""


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.records.run", description=__doc__)
    parser.add_argument("--only", help="contenders to run, by name, separated by commas")
    parser.add_argument("--batches", type=int, default=8, help="batches of each, the first two to warm up")
    parser.add_argument("--rows", type=int, default=ROWS, help="rows a batch")
    parser.add_argument("--cache", type=Path, default=ROOT / ".cache" / "bench")
    return parser.parse_args()


def case(contender: str, rows: int, batches: int) -> Case:
    if contender == "bytewax":
        return Case(contender, KEYS, rows, batches, 0, limit=15)
    return Case(contender, KEYS, rows, batches, 2, limit=120, patience=400)


def ratios(done: dict[str, measure.Measurement]) -> dict[str, float | None]:
    """Return every ratio by name; None if one of the two was not measured."""
    return {
        name: round(done[ours].rows_per_second / done[theirs].rows_per_second, 3)
        if ours in done and theirs in done
        else None
        for name, (ours, theirs, _) in RATIOS.items()
    }


def main() -> int:
    options = arguments()
    chosen = options.only.split(",") if options.only else list(MODULES)
    if unknown := set(chosen) - set(MODULES):
        sys.exit(f"no contender named {', '.join(sorted(unknown))}; there are {', '.join(MODULES)}")
    begun = time.monotonic()
    work = options.cache / f"work-{os.getpid()}"
    data = generate.dataset(options.cache / "data", KEYS, options.rows, options.batches)
    done: dict[str, measure.Measurement] = {}
    failed: dict[str, str] = {}
    try:
        for contender in chosen:
            print(f"[{time.monotonic() - begun:4.0f} s] {contender}", flush=True)
            python = peer_env.python(ROOT, "bytewax") if contender == "bytewax" else Path(sys.executable)
            try:
                each = case(contender, options.rows, options.batches)
                done[contender] = run_case(each, python, data, work / contender, MODULES)
            except CaseFailed as problem:
                failed[contender] = str(problem)
                print(f"    failed: {problem}", flush=True)
            else:
                print(f"    {done[contender].rows_per_second:,.0f} rows/s", flush=True)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    _show(done)
    document: dict[str, Any] = {
        "benchmark": "records",
        "seconds": round(time.monotonic() - begun),
        **ratios(done),
        "rows_per_second": {name: round(m.rows_per_second) for name, m in done.items()},
        "durations_ms": {name: {n: round(v) for n, v in m.durations.items()} for name, m in done.items()},
        "failed": failed,
    }
    print(json.dumps(document), flush=True)
    return 1 if failed else 0


def _show(done: dict[str, measure.Measurement]) -> None:
    console = Console(width=None if sys.stdout.isatty() else 160)
    figures = Table(title="minutes of delay by aircraft, nine columns, local\\[2]")
    for name in ("program", "rows/s", "median ms", "each batch, ms"):
        figures.add_column(name, justify="left" if name == "program" else "right")
    for contender, m in done.items():
        each = " ".join(f"{b.milliseconds:.0f}" for b in m.batches)
        figures.add_row(contender, f"{m.rows_per_second:,.0f}", f"{m.batch_milliseconds:,.0f}", each)
    console.print(figures)
    table = Table(title="ratios")
    for name in ("ratio", "value", "goal", "met"):
        table.add_column(name, justify="left" if name == "ratio" else "right")
    for name, value in ratios(done).items():
        goal = RATIOS[name][2]
        met = "" if value is None or goal is None else "yes" if value >= goal else "no"
        table.add_row(name, "" if value is None else f"{value:.2f}", "" if goal is None else f">= {goal:g}", met)
    console.print(table)


if __name__ == "__main__":
    sys.exit(main())
