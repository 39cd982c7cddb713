"""Kill a job in the middle, rescale it, resume it, and compare its output and state with an independent count.

make demo
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

from tidewheel import StoredJob

FILES, PER_FILE, USERS = 24, 50_000, 20_000
FOLDER = Path(__file__).resolve().parent.parent / ".cache" / "demo"
PROGRAM = Path(__file__).with_name("clicks.py")
console = Console(highlight=False)


def main() -> int:
    """Run the demo and return its exit status."""
    generate()
    console.print("\n[bold]1.[/] start the job on 2 tasks, and kill it (SIGKILL) after 8 batches")
    killed = run(parallelism=2, kill_after=8)
    console.print("\n[bold]2.[/] start it again on 3 tasks: state moves with no byte rewritten")
    resumed = run(parallelism=3)
    console.print("\n[bold]3.[/] count the input once more, without Tidewheel, and compare")
    return compare(killed, resumed)


def generate() -> None:
    """Write the clicks as Parquet files."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    (FOLDER / "in").mkdir(parents=True)
    console.print(f"making {FILES * PER_FILE:,} clicks of {USERS:,} users in {FILES} files")
    draw = np.random.default_rng(7)
    for number in range(FILES):
        users = np.char.add("user-", draw.integers(0, USERS, PER_FILE).astype(str))
        clicks = pa.table({"user": pa.array(users, pa.string()), "cents": pa.array(draw.integers(1, 5000, PER_FILE))})
        pq.write_table(clicks, FOLDER / "in" / f"part-{number:03d}.parquet")


def run(parallelism: int, kill_after: int | None = None) -> list[dict[str, float]]:
    """Run the job in a new process, print its progress, and return its batches."""
    command = [sys.executable, "-m", "tidewheel", "run", str(PROGRAM), "--until", "end", "--json"]
    process = subprocess.Popen(
        [*command, "--parallelism", str(parallelism), "--local", str(FOLDER / "local")],
        env={**os.environ, "CLICKS": str(FOLDER)},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    batches: list[dict[str, float]] = []
    started = time.monotonic()
    assert process.stdout is not None
    for line in process.stdout:
        batch = json.loads(line)
        if not batch.get("rows"):
            continue
        batches.append(batch)
        rate = batch["rows"] / batch["seconds"]
        console.print(
            f"   sequence {batch['sequence']:>3}  {batch['rows']:>7,} rows  {rate:>9,.0f} rows/s  "
            f"{batch['keys']:>6,} keys  commit {batch['commit_ms']:.0f} ms"
        )
        if len(batches) == kill_after:
            os.killpg(process.pid, signal.SIGKILL)
            console.print(f"   [red]killed[/] after {time.monotonic() - started:.0f} s")
            break
    status = process.wait()
    if kill_after is None and status != 0:
        raise SystemExit(f"the job ended with status {status}")
    return batches


def compare(killed: list[dict[str, float]], resumed: list[dict[str, float]]) -> int:
    """Compare output and state with an independent count, and print a table and the result."""
    source = ds.dataset(FOLDER / "in").to_table()
    counted = source.group_by("user").aggregate([("cents", "count"), ("cents", "sum")])
    expected = dict(
        zip(
            counted["user"].to_pylist(),
            zip(counted["cents_count"].to_pylist(), counted["cents_sum"].to_pylist(), strict=True),
            strict=True,
        )
    )
    kept = dict(StoredJob("clicks", state=f"file:{FOLDER}/state").scan("totals", type=dict))
    state_right = {user: (one["clicks"], one["cents"]) for user, one in kept.items()} == expected
    out = ds.dataset(FOLDER / "out").to_table()
    # Each user's clicks are numbered from 1 on: a lost or doubled row would be a gap or a repetition.
    numbered = out.group_by("user").aggregate([("clicks", "count_distinct"), ("clicks", "count"), ("clicks", "max")])
    counts, distinct, last = (numbered[f"clicks_{what}"].to_pylist() for what in ("count", "count_distinct", "max"))
    once = counts == distinct == last
    exact = state_right and once and out.num_rows == source.num_rows
    table = Table(title="Tidewheel, and an independent count")
    for heading in ("", "Tidewheel", "independent"):
        table.add_column(heading, justify="right" if heading else "left")
    table.add_row("users", f"{len(kept):,}", f"{len(expected):,}")
    table.add_row("clicks counted in state", f"{sum(one['clicks'] for one in kept.values()):,}", f"{source.num_rows:,}")
    table.add_row(
        "cents summed in state",
        f"{sum(one['cents'] for one in kept.values()):,}",
        f"{pc.sum(source['cents']).as_py():,}",
    )
    table.add_row("rows in the sink", f"{out.num_rows:,}", f"{source.num_rows:,}")
    agree = sum(expected.get(user) == (one["clicks"], one["cents"]) for user, one in kept.items())
    table.add_row("users' totals that agree", f"{agree:,}", f"{len(expected):,}")
    table.add_row("batches before and after the kill", f"{len(killed)} + {len(resumed)}", f"{FILES} files")
    console.print(table)
    console.print("demo: exact" if exact else "[red]demo: NOT EXACT[/]")
    return 0 if exact else 1


if __name__ == "__main__":
    sys.exit(main())
