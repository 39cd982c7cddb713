"""Kafka, running totals, PostgreSQL: one row per user, always the latest, each payment counted once.

    python examples/kafka_totals.py

starts a Kafka broker and a PostgreSQL of its own, fills a topic with payments, three of them broken, runs the job, and compares
the table with a count of its own. With KAFKA=host:port it reads the topic `payments` that is there; with
POSTGRES="host=… user=… dbname=…" (and the password in PGPASSWORD) it writes to that database. With both, start it as often as
you like: it goes on where it ended.
"""

from __future__ import annotations

import json
import os
import random
import sys
import tempfile
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from tidewheel import Job, codecs, count, sum_
from tidewheel.sinks import postgres
from tidewheel.sources import kafka

TOPIC = "payments"


@dataclass
class Payment:
    """One message of the topic."""

    user: str
    cents: int


def build(brokers: str, dsn: str, state: str) -> Job:
    """Return the job: messages become payments, payments totals, totals rows; what is no payment is kept as it came."""
    job = Job("kafka-totals", state=state)
    messages = job.source("payments", kafka(brokers, TOPIC, max_records=5_000))
    payments = messages.decode("decode", codecs.json(Payment))
    broken = payments.broken
    totals = payments.key_by("by-user", "user").aggregate("totals", cents=sum_("cents"), payments=count())
    totals.sink("totals-out", postgres(dsn, "totals", mode="latest", key="user", create=True))
    broken.sink("broken-out", postgres(dsn, "broken_payments", create=True))
    return job


def main() -> int:
    """Run the job on the servers that are given, or on its own."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        brokers, dsn = os.environ.get("KAFKA"), os.environ.get("POSTGRES")
        expected: Counter[str] | None = None
        state = f"file://{Path('.cache/kafka-totals').absolute()}"
        if brokers is None or dsn is None:
            sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
            # Another Kafka has other offsets, and another database other rows: what is known of the last ones is void.
            state = f"file://{folder}/state"
        if dsn is None:
            from postgres_server import running_postgres

            dsn = stack.enter_context(running_postgres()).dsn
            print(f"started PostgreSQL: {dsn}")
        if brokers is None:
            from kafka_server import running_kafka

            broker = stack.enter_context(running_kafka(folder / "kafka"))
            brokers = broker.brokers
            broker.create(TOPIC, partitions=2)
            expected = fill(brokers, 20_000)
            print(f"started Kafka at {brokers}, with {sum(expected.values()):,} cents in the topic {TOPIC}")
        result = build(brokers, dsn, state).run(
            trigger="available-now",
            progress=lambda batch: print(f"committed {batch.sequence}: {batch.rows:,} payments"),
        )
        print(f"{result.event_count:,} messages read")
        return show(dsn, expected)


def fill(brokers: str, number: int) -> Counter[str]:
    """Write payments to the topic, and a few messages that are none; return the cents of each user."""
    from confluent_kafka import Producer

    draw, cents = random.Random(7), Counter[str]()
    producer = Producer({"bootstrap.servers": brokers, "linger.ms": 20})
    for at in range(number):
        payment = {"user": f"user-{draw.randrange(500)}", "cents": draw.randrange(1, 5_000)}
        cents[payment["user"]] += payment["cents"]
        producer.produce(TOPIC, json.dumps(payment), key=payment["user"])
        if at % 8_000 == 0:
            producer.produce(TOPIC, b'{"user": "nobody", "cents": ')
        producer.poll(0)
    producer.flush(60)
    return cents


def show(dsn: str, expected: Counter[str] | None) -> int:
    """Print what the table holds, and compare it if we know what it must hold."""
    import psycopg

    with psycopg.connect(dsn) as connection:
        totals = connection.execute('SELECT "user", cents, payments FROM totals ORDER BY cents DESC').fetchall()
        broken = connection.execute("SELECT value, error FROM broken_payments").fetchall()
    for user, cents, payments in totals[:5]:
        print(f"{user:>10} {cents / 100:>10,.2f} in {payments} payments")
    print(f"{len(totals)} users; {len(broken)} messages were no payments")
    if expected is None:
        return 0
    exact = {user: int(cents) for user, cents, _ in totals} == dict(expected)
    print("the table holds exactly what was paid" if exact else "the table is WRONG")
    return 0 if exact else 1


if __name__ == "__main__":
    sys.exit(main())
