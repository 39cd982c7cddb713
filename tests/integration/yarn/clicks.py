"""The program that runs on YARN. The environment, or the first arguments, name its folder and whether it ends by itself."""

from __future__ import annotations

import os
import sys

from tidewheel import Job, RunOptions, sinks, sources

FOLDER = os.environ.get("CLICKS_FOLDER") or sys.argv[1]

job = Job("clicks", state=f"{FOLDER}/state")
clicks = job.source(
    "in", sources.files(f"{FOLDER}/in", format="json", schema="user string, cents long", max_files_per_trigger=1)
)
totals = clicks.key_by("by-user", "user", value="cents").reduce("total", lambda a, b: a + b)
totals.sink("out", sinks.files(f"{FOLDER}/out", format="json"))

if __name__ == "__main__":
    job.run(options=RunOptions(shared_state=True, parallelism=2))
