"""Keep a total for each user of a Kafka topic, as one row per user in PostgreSQL; each payment counts once.

    export KAFKA=localhost:9092 POSTGRES="host=localhost user=tidewheel dbname=tidewheel" PGPASSWORD=...
    python examples/kafka_totals.py
    tidewheel run examples/kafka_totals.py --until caught-up
    psql "$POSTGRES" -c 'SELECT * FROM totals ORDER BY cents DESC LIMIT 5'

The second line writes 5,000 payments to the topic `payments`, and a few messages that are not payments. These go to the
table `broken_payments`, as they came.
"""

import json
import os
import random
from collections import Counter
from dataclasses import dataclass

from tidewheel import Job, agg, codecs, sinks, sources

KAFKA = os.environ.get("KAFKA", "localhost:9092")
POSTGRES = os.environ.get("POSTGRES", "host=localhost user=tidewheel dbname=tidewheel")
TOPIC = "payments"


@dataclass
class Payment:
    """One message of the topic."""

    user: str
    cents: int


job = Job("kafka-totals")
messages = job.source("payments", sources.kafka(KAFKA, TOPIC, max_records=2_000))
payments = messages.decode("decode", codecs.json(Payment))
totals = payments.key_by("by-user", "user").aggregate("totals", cents=agg.sum("cents"), payments=agg.count())
totals.sink("totals-out", sinks.postgres(POSTGRES, "totals", mode="latest", create=True))
payments.broken.sink("broken-out", sinks.postgres(POSTGRES, "broken_payments", create=True))


def fill(number: int = 5_000) -> Counter[str]:
    """Write payments to the topic, one in a thousand of them broken; return the cents that each user paid."""
    from confluent_kafka import Producer

    draw, paid = random.Random(7), Counter[str]()
    producer = Producer({"bootstrap.servers": KAFKA, "linger.ms": 20})
    for index in range(number):
        user, cents = f"user-{draw.randrange(100)}", draw.randrange(1, 5_000)
        paid[user] += cents
        producer.produce(TOPIC, json.dumps({"user": user, "cents": cents}), key=user)
        if index % 1_000 == 0:
            producer.produce(TOPIC, b'{"user": "nobody", "cents": ')
        producer.poll(0)
    producer.flush(60)
    return paid


if __name__ == "__main__":
    print(f"{fill().total():,} cents were paid")
