"""The job of the pictures: a shop's orders, added up by user and by the minute."""

import os

from tidewheel import Job, count, sinks, sources, sum_, tumbling

where = os.environ.get("PICTURES", ".")
job = Job("orders", state=f"{where}/state", n_shards=256)
job.dead_letter("dead", sinks.files(f"{where}/dead", format="json"))
large = job.cell("large", int, default=5_000)


def spend(user, order, cents):
    """Add up what a user has spent."""
    if order.cents < 0:
        raise ValueError(f"an order of {order.cents} cents")
    return {"user": user, "cents": cents + order.cents}, cents + order.cents


schema = "user string, cents long, at timestamp"
orders = job.source("orders", sources.files(f"{where}/in", format="json", schema=schema))
on_time = orders.assign_timestamps("at", "at").limit_out_of_orderness("bound", "5 s")
late = on_time.late
by_user = on_time.key_by("by-user", "user")
totals = by_user.stateful_map("spent", spend, default=0)
totals.filter("large", lambda row: row["cents"] > large.value).sink("customers", sinks.discard())
by_user.window("by-minute", tumbling("1 minute"), cents=sum_("cents"), orders=count()).sink("revenue", sinks.discard())
late.sink("late", sinks.discard())
