"""Sum the revenue of each country and hour by the time of the order, not by the time of its arrival.

    tidewheel run examples/hourly_revenue.py --until end

Orders up to 30 minutes late count; later ones go to `out/late`.
"""

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from tidewheel import Job, agg, sinks, sources, tumbling

DATA = Path(__file__).parent / "data"


@dataclass
class Order:
    """The fields of an order that this program reads."""

    country: str
    cents: int
    at: datetime


job = Job("hourly-revenue")
orders = job.source("orders", sources.files(f"{DATA}/orders"), type=Order)
on_time = orders.event_time("at", max_delay="30 minutes")
per_hour = on_time.key_by("by-country", "country").window(
    "per-hour", tumbling("1 hour"), orders=agg.count(), cents=agg.sum("cents")
)
per_hour.sink("out", sinks.files("out/hourly-revenue", format="json"))
on_time.late.sink("late", sinks.files("out/late", format="json"))
