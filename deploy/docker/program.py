"""Totals by user: JSON from a Kafka topic, into a PostgreSQL table."""

import msgspec

from tidewheel import Job, agg, codecs, sinks, sources


class Order(msgspec.Struct):
    """A message of the topic."""

    user: str
    cents: int


job = Job("totals")
orders = job.source("orders", sources.kafka("kafka:9092", "orders")).decode("parse", codecs.json(Order))
totals = orders.key_by("by-user", "user").aggregate("totals", orders=agg.count(), cents=agg.sum("cents"))
table = sinks.postgres("host=postgres dbname=tidewheel user=tidewheel", "totals", mode="latest", key=["user"])
totals.sink("table", table)
orders.broken.sink("broken", sinks.files("/data/broken", format="json"))
