"""The job that the chaos tests kill: two keyed stages, an aggregate, two exactly-once sinks.

Run as `python program.py FOLDER [option=value …]`; the folder has `in/` with JSON files and gets everything else.
"""

from __future__ import annotations

import functools
import itertools
import os
import signal
import sys
import time

from tidewheel import Job, RunOptions, count, sum_
from tidewheel.errors import TidewheelError
from tidewheel.sinks import files as file_sink
from tidewheel.sources import files


def running(user: str, record, state: list[int]) -> tuple[dict[str, int], list[int]]:
    """Number each user's records and keep a running sum of their amounts."""
    if user == os.environ.get("TEST_POISON"):
        os.kill(os.getpid(), signal.SIGKILL)
    n, total = (state or [0, 0])[0] + 1, (state or [0, 0])[1] + record.amount
    return {"n": n, "total": total, "amount": record.amount}, [n, total]


def band(key: int, value: dict[str, int], seen: int) -> tuple[dict[str, int], int]:
    return {"seen": seen + 1}, seen + 1


def build(folder: str) -> Job:
    job = Job("chaos", state=f"file://{folder}/state", n_shards=8, keep=3, collect_every=4, snapshot_every=3)
    source = files(f"{folder}/in", format="json", schema="user string, amount long", max_files_per_trigger=1)
    users = job.source("in", source).key_by("by-user", "user")
    numbered = users.stateful_map("number", running, default=list)
    numbered.sink("numbered", file_sink(f"{folder}/out/numbered", format="json"))
    bands = numbered.key_by("by-band", lambda value: value["amount"] % 5)
    bands.stateful_map("band", band, default=0).sink("bands", file_sink(f"{folder}/out/bands", format="parquet"))
    totals = users.aggregate("totals", total=sum_("amount"), n=count())
    totals.sink("totals-out", file_sink(f"{folder}/out/totals", format="json"))
    return job


def set_clock(seconds: list[int]) -> None:
    """Let the clock of this host be ahead by so many seconds, or behind; with several, it jumps from one to the next."""
    ahead, true_time_ns = itertools.cycle(seconds), time.time_ns
    time.time_ns = lambda: true_time_ns() + next(ahead) * 10**9


def report_phase(phase: str | None) -> None:
    print(f"phase {phase}", flush=True)


def accepted(found) -> bool:
    print(f"compared {found.batches} batches: {'same' if found.same else found}", flush=True)
    return found.same


def main() -> int:
    folder, options = sys.argv[1], dict(item.split("=", 1) for item in sys.argv[2:])
    os.environ["TEST_POISON"] = options.get("poison", "")
    if "clock" in options:
        set_clock([int(seconds) for seconds in options["clock"].split(",")])
    job = build(folder)
    job.state = options.get("state", job.state)
    try:
        runs = {"switch": functools.partial(job.switch, accepted), "standby": job.standby, "run": job.run}
        result = runs[options.get("as", "run")](
            parallelism=int(options.get("parallelism", 2)),
            options=RunOptions(
                master="local[2]",
                until="end" if options.get("bounded", "yes") == "yes" else None,
                lease=options.get("lease", "15 s"),
                on_phase=report_phase if options.get("as") == "standby" else None,
                local=options.get("local", f"{folder}/local"),
                take_over=options.get("take_over") == "yes",
                restarts=int(options.get("restarts", 0)),
                backoff="200 ms",
                conf={"spark.driver.memory": "1g"},
                progress=lambda batch: print(f"committed {batch.sequence} rows {batch.rows}", flush=True),
            ),
        )
    except TidewheelError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        return 3
    print(f"{'stopped' if result.stopped else 'done'} {result.sequence} events {result.event_count}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
