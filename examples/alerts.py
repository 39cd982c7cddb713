"""Report orders above a limit that you can change while the job runs.

    tidewheel run examples/alerts.py
    tidewheel cells set limit 500 --job alerts

The second command works from another terminal; orders that arrive after it are compared with the new limit.
"""

from dataclasses import dataclass
from pathlib import Path

from tidewheel import Job, sinks, sources

DATA = Path(__file__).parent / "data"


@dataclass
class Order:
    """The fields of an order that this program reads."""

    id: int
    user: str
    cents: int


job = Job("alerts")
limit = job.cell("limit", int, default=1_000)
orders = job.source("orders", sources.files(f"{DATA}/orders"), type=Order)
orders.filter("large", lambda order: order.cents > limit.value).sink("out", sinks.console())
