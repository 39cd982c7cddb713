"""Run every contender in its own process, one after the other; see the package's docstring."""

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from benchmarks.state import generate, measure, peer_env, report
from benchmarks.state.cases import FULL, QUICK, SMOKE, Case, Plan, cases, within
from rich.console import Console

ROOT = Path(__file__).parents[2]
PLANS = {"quick": QUICK, "full": FULL, "smoke": SMOKE}
MODULES = {
    "floor": ("state.floor", ""),
    "stateful_map": ("state.ours", "stateful_map"),
    "aggregate": ("state.ours", "aggregate"),
    "stateful_map_csv": ("state.ours", "stateful_map"),
    "aggregate_csv": ("state.ours", "aggregate"),
    "duckdb": ("state.duckdb_query", ""),
    "transform_with_state": ("state.native", ""),
    "bytewax": ("state.bytewax_flow", ""),
    "pathway_stateful": ("state.pathway_flow", "stateful"),
    "pathway_sum": ("state.pathway_flow", "sum"),
    "foreach_batch_nothing": ("state.empty", "nothing"),
    "foreach_batch_same_query": ("state.empty", "same-query"),
}
PEERS = {"bytewax": "bytewax", "pathway_stateful": "pathway", "pathway_sum": "pathway"}
"""The environment of each peer that has its own."""
# Peers have no batches, and a foreachBatch that does nothing reads no rows.
UNCOUNTED = (*PEERS, "foreach_batch_nothing")
HEARTBEAT_SECONDS = 15


class CaseFailed(Exception):
    """A contender ended without a measurement; the text gives the reason."""


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.state.run", description=__doc__)
    mode = parser.add_mutually_exclusive_group()
    for name in PLANS:
        mode.add_argument(f"--{name}", dest="mode", action="store_const", const=name)
    parser.set_defaults(mode="quick")
    parser.add_argument("--only", help="contenders to run, by name, separated by commas")
    parser.add_argument("--keys", type=int, help="only the cases with this many keys")
    parser.add_argument("--rows", type=int, help="only the cases with this many rows a batch")
    parser.add_argument("--cache", type=Path, default=ROOT / ".cache" / "bench")
    parser.add_argument("--keep", action="store_true", help="keep the contenders' folders and logs")
    return parser.parse_args()


def chosen(options: argparse.Namespace, plan: Plan) -> list[Case]:
    only = set(options.only.split(",")) if options.only else set(MODULES)
    if unknown := only - set(MODULES):
        sys.exit(f"no contender named {', '.join(sorted(unknown))}; there are {', '.join(MODULES)}")
    return [
        c
        for c in cases(plan)
        if c.contender in only and options.keys in (None, c.keys) and options.rows in (None, c.rows)
    ]


def interpreter(case: Case) -> Path:
    peer = PEERS.get(case.contender)
    return Path(sys.executable) if peer is None else peer_env.python(ROOT, peer)


def run_case(
    case: Case, python: Path, data: Path, work: Path, modules: Mapping[str, tuple[str, str]] = MODULES
) -> measure.Measurement:
    """Run one case in its own process and wait until it ends; `modules` maps contenders to modules and variants."""
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    module, variant = modules[case.contender]
    task = {
        "input": generate.first(data, case.files, work / "input"),
        "work": work,
        "result": work / "result.json",
        "warmup": case.warmup,
        "limit": case.limit,
        "variant": variant,
    }
    command = [str(python), "-m", f"benchmarks.{module}"]
    command += [f"--{name}={value}" for name, value in task.items()]
    with (work / "log.txt").open("w") as log:
        # It gets its own process session, so that all its processes can be ended together.
        process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            code = _wait(process, case.patience)
        finally:
            _end_group(process)
    if not (work / "result.json").exists():
        why = f"gave no result in {case.patience:.0f} s" if code is None else f"ended with code {code}"
        raise CaseFailed(f"{why}; the end of {work / 'log.txt'}:\n{_tail(work / 'log.txt')}")
    measurement = measure.read(work / "result.json")
    if not measurement.batches:
        raise CaseFailed(f"did not finish one batch in {case.limit:.0f} s")
    if case.contender not in UNCOUNTED and any(b.rows != case.rows for b in measurement.batches):
        taken = [b.rows for b in measurement.batches]
        raise CaseFailed(f"batches of {case.rows:,} rows were given, and batches of {taken} rows taken")
    return measurement


def _wait(process: "subprocess.Popen[bytes]", patience: float) -> int | None:
    begun = time.monotonic()
    while (passed := time.monotonic() - begun) < patience:
        try:
            return process.wait(timeout=min(HEARTBEAT_SECONDS, patience - passed))
        except subprocess.TimeoutExpired:
            print(f"    … {time.monotonic() - begun:.0f} s", flush=True)
    return None


def _end_group(process: "subprocess.Popen[bytes]") -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _tail(path: Path, lines: int = 15) -> str:
    return "\n".join(path.read_text(errors="replace").splitlines()[-lines:])


def main() -> int:
    options = arguments()
    plan = PLANS[options.mode]
    todo = chosen(options, plan)
    begun = time.monotonic()
    work = options.cache / f"work-{os.getpid()}"
    done: dict[Case, measure.Measurement] = {}
    failed: dict[Case, str] = {}
    try:
        for number, case in enumerate(todo, 1):
            print(f"[{time.monotonic() - begun:4.0f} s] {number}/{len(todo)} {case.name}", flush=True)
            data = generate.dataset(options.cache / "data", case.keys, case.rows, case.files, case.format)
            try:
                left = plan.budget - (time.monotonic() - begun)
                done[case] = run_case(within(case, left), interpreter(case), data, work / f"{number:02d}")
            except CaseFailed as problem:
                failed[case] = str(problem)
                print(f"    failed: {problem}", flush=True)
            else:
                found = done[case]
                figures = f"{found.rows_per_second:,.0f} rows/s, {found.batch_milliseconds:,.0f} ms a batch"
                print(f"    {figures}, {len(found.measured)} measured batches", flush=True)
    finally:
        if not options.keep:
            shutil.rmtree(work, ignore_errors=True)
    console = Console(width=None if sys.stdout.isatty() else 160)
    report.show(console, done, plan.divisor)
    seconds = time.monotonic() - begun
    print(json.dumps(report.document(options.mode, done, failed, seconds, plan.divisor)), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
