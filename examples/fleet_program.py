"""The job of the fleet demo: how many events each user had, and what they add up to."""

import os
from dataclasses import dataclass

from tidewheel import Job, count, sinks, sum_
from tidewheel.sources import inbox


@dataclass
class Event:
    """What producers send."""

    user: str
    amount: int


job = Job("fleet-demo", n_shards=16, snapshot_every=8, collect_every=10, grace="5 s")
(
    job.source("events", inbox("the inbox that --inbox names", max_events=50_000), value=Event)
    .key_by("by-user", "user")
    .aggregate("totals", n=count(), total=sum_("amount"))
    .sink("out", sinks.files(os.environ.get("FLEET_OUT", "fleet-out"), format="json"))
)
