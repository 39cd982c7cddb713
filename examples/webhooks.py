"""Count each webhook once, although its sender repeats calls that were not acknowledged in time.

tidewheel run examples/webhooks.py --until end
"""

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from tidewheel import Job, agg, sinks, sources

DATA = Path(__file__).parent / "data"


@dataclass
class Call:
    """One call; a repeated call has the same id."""

    id: str
    user: str
    cents: int
    at: datetime


job = Job("webhooks")
calls = job.source("calls", sources.files(f"{DATA}/webhooks"), type=Call).event_time("at", max_delay="1 hour")
# The ids of the last hour are state; older ones are deleted.
once = calls.key_by("by-id", "id").deduplicate("once", "1 hour")
totals = once.key_by("by-user", "user").aggregate("totals", calls=agg.count(), cents=agg.sum("cents"))
totals.sink("out", sinks.files("out/webhooks", format="json"))
