"""Keep the clicks and the spending of each user; `make demo` kills, rescales and resumes this program.

    make demo

To run it alone, put Parquet files with the columns `user` and `cents` into the folder `in` of a folder of your choice:

    CLICKS=that/folder tidewheel run examples/clicks.py --until end --parallelism 2
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
    """The state of a user."""

    clicks: int = 0
    cents: int = 0


def add(user: str, click: Click, totals: Totals) -> tuple[Totals, Totals]:
    """Add a click to the totals of its user; they are the output and the new state."""
    new = Totals(totals.clicks + 1, totals.cents + click.cents)
    return new, new


job = Job("clicks", state=f"file:{folder}/state")
(
    job.source("clicks", files(f"{folder}/in", "parquet", max_files_per_trigger=1), type=Click)
    .key_by("by-user", "user")
    .stateful_map("totals", add)
    .sink("out", file_sink(f"{folder}/out"))
)

if __name__ == "__main__":
    job.run()
