"""Keep a running total for each user; the totals survive restarts and crashes.

    tidewheel run examples/totals.py --until caught-up
    tidewheel state get totals total ada

Run the first command twice: the second run has nothing to do. Add a file to `examples/data/orders`, and a third run
reads only that file.
"""

from pathlib import Path

from tidewheel import Job, sinks, sources

DATA = Path(__file__).parent / "data"


def add(user: str, cents: int, total: int) -> tuple[int, int]:
    """Return the output and the new state of a user: both are the total so far."""
    return total + cents, total + cents


job = Job("totals")
orders = job.source("orders", sources.files(f"{DATA}/orders", schema="user string, cents long"))
totals = orders.key_by("by-user", "user", value="cents").stateful_map("total", add, default=0)
totals.sink("out", sinks.files("out/totals", format="json"))
