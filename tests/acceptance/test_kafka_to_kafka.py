"""Kafka to Kafka on Spark: every payment counts once and other messages are kept, also if publishing fails."""

from __future__ import annotations

import json
import secrets
from collections import Counter
from dataclasses import dataclass

import pytest
from confluent_kafka import Producer

from servers.kafka_server import Kafka
from support.internals import faults
from tidewheel import Job, RunOptions, codecs, count, sinks, sources, sum_
from tidewheel.errors import ConfigError


@dataclass
class Payment:
    user: str
    cents: int


class Shop:
    """Topics of its own: payments in, totals and dead letters out."""

    def __init__(self, server: Kafka) -> None:
        self.server, self.run = server, secrets.token_hex(4)
        for topic in ("in", "out", "dead"):
            server.create(self.topic(topic), 2)

    def topic(self, name: str) -> str:
        return f"shop-{self.run}-{name}"

    def pay(self, first: int, last: int) -> None:
        producer = Producer({"bootstrap.servers": self.server.brokers})
        for number in range(first, last):
            payment = {"user": f"user-{number % 7}", "cents": number} if number % 10 else {"user": "nobody"}
            producer.produce(self.topic("in"), json.dumps(payment), partition=number % 2)
        assert producer.flush(30) == 0

    def job(self, state: str) -> Job:
        job = Job(f"shop-{self.run}", state=state, n_shards=4)
        messages = job.source("in", sources.kafka(self.server.brokers, self.topic("in"), max_records=150))
        payments = messages.decode("decode", codecs.json(Payment))
        dead = payments.broken
        totals = payments.key_by("by-user", "user").aggregate("totals", cents=sum_("cents"), payments=count())
        totals.sink("out", self._sink("out", key="user"))
        dead.sink("dead", self._sink("dead", codec=codecs.raw()))
        return job

    def _sink(self, name: str, **settings) -> sinks.Sink:
        return sinks.kafka(self.server.brokers, self.topic(name), marker_topic=self.topic("markers"), **settings)

    def read(self, name: str) -> list[bytes]:
        reader = sources.kafka(self.server.brokers, self.topic(name)).reader()
        start = reader.start()
        end = reader.end(start)
        found = [
            value
            for partition in reader.splits(start, end, 4)
            for batch in partition.read()
            for value in batch.column("value").to_pylist()
        ]
        reader.close()
        return found


def test_totals_are_exact_when_publishing_fails(kafka, spark, tmp_path):
    shop = Shop(kafka)
    faults.arm("kafka.committed=raise@1;publish.before-sink=raise@4")
    try:
        for first, last in ((0, 200), (200, 300)):
            shop.pay(first, last)
            shop.job(tmp_path.as_uri()).run(
                until="caught-up",
                options=RunOptions(spark=spark, restarts=3, backoff="10 ms", local=str(tmp_path / "local")),
            )
    finally:
        faults.arm("")
    good = [number for number in range(300) if number % 10]
    totals = [json.loads(value) for value in shop.read("out")]
    # A total is sent once for each batch and user; the newest has all payments.
    assert max(Counter((each["user"], each["payments"]) for each in totals).values()) == 1
    newest = {each["user"]: each for each in sorted(totals, key=lambda each: each["payments"])}
    assert {user: (each["cents"], each["payments"]) for user, each in newest.items()} == {
        f"user-{user}": (
            sum(number for number in good if number % 7 == user),
            sum(1 for number in good if number % 7 == user),
        )
        for user in range(7)
    }
    assert shop.read("dead") == [b'{"user": "nobody"}'] * 30


def test_a_topic_that_is_not_there_stops_the_job_before_it_begins(kafka, spark, tmp_path):
    job = Job("nowhere", state=tmp_path.as_uri(), n_shards=4)
    job.source("in", sources.kafka(kafka.brokers, "no-such-topic")).sink("out", sinks.discard())
    with pytest.raises(ConfigError, match="there is no topic 'no-such-topic'"):
        job.run(until="caught-up", options=RunOptions(spark=spark))
