"""The job of `test_metrics_on_spark.py`: it runs until it is stopped or killed."""

from __future__ import annotations

import sys

from tidewheel import Job, RunOptions, sinks, sources


def records(number: int) -> list[dict]:
    """Return the input: some records cannot be divided, and go to the dead letters."""
    return [{"user": f"u{place % 13}", "cents": place % 5} for place in range(number)]


def job(folder: str) -> Job:
    """Return the job over a folder."""
    job = Job("metered", state=f"file://{folder}/state")
    job.dead_letter("dead", sinks.files(f"{folder}/dead", format="json"))
    clicks = job.source("in", sources.iterable(records(400), batch_size=100))
    keyed = clicks.key_by("by-user", "user", value="cents")
    totals = keyed.stateful_map("total", lambda user, cents, n: (60 // cents, n + 1), default=0)
    totals.filter("large", lambda share: share > 15).sink("out", sinks.files(f"{folder}/out", format="json"))
    return job


if __name__ == "__main__":
    folder, port = sys.argv[1:]
    job(folder).run(parallelism=1, options=RunOptions(master="local[1]", local=f"{folder}/local", metrics=int(port)))
