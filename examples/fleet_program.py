"""Count and sum the events of each user in a fleet: several nodes share the shards of one job.

    make fleet-demo

To run one node alone, with its inbox and cells in folders:

    tidewheel node --job examples/fleet_program.py --inbox file:inbox --cells file:cells --state file:state --name a
"""

import os
from dataclasses import dataclass

from tidewheel import Job, count, sinks, sum_
from tidewheel.sources import inbox


@dataclass
class Event:
    """An event that a producer sends."""

    user: str
    amount: int


job = Job("fleet-demo", n_shards=16, snapshot_every=8, collect_every=10, grace="5 s")
(
    job.source("events", inbox("the inbox that --inbox names", max_events=50_000), type=Event)
    .key_by("by-user", "user")
    .aggregate("totals", n=count(), total=sum_("amount"))
    .sink("out", sinks.files(os.environ.get("FLEET_OUT", "fleet-out"), format="json"))
)
