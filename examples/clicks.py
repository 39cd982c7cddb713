"""Running totals per user: the program that `make demo` kills, rescales and resumes.

    tidewheel run examples/clicks.py --bounded --parallelism 2

reads Parquet files from the folder in CLICKS (one per batch), keeps each user's clicks and spending as state, and
writes one row per click with the user's totals so far, exactly once.
"""

import os
from dataclasses import dataclass

from tidewheel import Job
from tidewheel.sinks import files as file_sink
from tidewheel.sources import files

folder = os.environ.get("CLICKS", ".cache/demo")


@dataclass
class Click:
    """One record of the source."""

    user: str
    cents: int


@dataclass
class Totals:
    """What is kept of each user."""

    clicks: int = 0
    cents: int = 0


def add(user: str, click: Click, totals: Totals) -> tuple[Totals, Totals]:
    """Add a click to its user's totals; they are both what goes out and what is kept."""
    new = Totals(totals.clicks + 1, totals.cents + click.cents)
    return new, new


job = Job("clicks", state=f"file:{folder}/state")
(
    job.source("clicks", files(f"{folder}/in", "parquet", max_files_per_trigger=1), value=Click)
    .key_by("by-user", "user")
    .stateful_map("totals", add)
    .sink("out", file_sink(f"{folder}/out"))
)

if __name__ == "__main__":
    job.run()
