"""A topic with records in it and a job that brings them to a sink, killed while it publishes and at random, with its servers."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from pathlib import Path

import pytest

from chaos import harness, readers

SEED = 20261115
PROGRAM = Path(__file__).with_name("pairs_program.py")
PUBLISHING = ("commit.created", "publish.before-sink", "publish.done", "start.published")


class Pair:
    """A topic with records in it, and a job that brings them to a sink."""

    points: tuple[str, ...] = ()
    """The fault points at which the job is killed once each."""

    def __init__(self, folder: Path, broker, records: int, batch: int) -> None:
        draw = random.Random(SEED)
        self.folder, self.broker, self.batch = folder, broker, batch
        self.records = [(f"user-{draw.randrange(200)}", draw.randrange(-50, 100)) for _ in range(records)]
        self.topic = f"pairs-{folder.name}"
        folder.mkdir()
        broker.create(self.topic, partitions=2)
        _produce(broker.brokers, self.topic, self.records)

    def target(self) -> dict[str, str]:
        raise NotImplementedError

    def numbered(self) -> list[tuple[str, int, int]]:
        """Return what a reader sees of the numbered records: user, number, total."""
        raise NotImplementedError

    def reader(self, expected: readers.Expected) -> readers.Reader:
        """Return a reader that looks at the numbered records all the while."""
        raise NotImplementedError

    sinks: tuple[str, ...] = ("sink",)
    """Which of the servers are the sink's: two of them, or one of them twice, are killed."""

    @property
    def servers(self) -> dict[str, object]:
        """The servers that may be killed: the source's and the sink's."""
        raise NotImplementedError

    def start(self, faults: str = ""):
        options = {"server": self.broker.brokers, "topic": self.topic, "max_records": str(self.batch)}
        return harness.start(self.folder, faults, PROGRAM, **options, **self.target())

    def killed_at(self, point: str, hit: int) -> None:
        """Let a life end at a fault point."""
        status, out, err = harness.finish(self.start(f"{point}=kill@{hit}"), 300)
        assert status == -9, f"{point}: the life ended with {status} instead of being killed\n{out}\n{err[-3000:]}"

    def killed_at_random(self, draw: random.Random) -> None:
        """Kill a life some time after its first commit."""
        process = self.start()
        line = process.stdout.readline()
        if line.startswith("done"):
            pytest.fail("the job ended before it could be killed often enough; give it more input")
        time.sleep(draw.random() * 1.5)
        harness.kill(process)
        harness.finish(process)

    def outlives(self, which: str, draw: random.Random) -> None:
        """Kill a server under a life, and start it again; then kill the life."""
        server = self.servers[which]
        process = self.start()
        process.stdout.readline()
        time.sleep(draw.random() * 0.5)
        server.kill()
        server.start()
        line = process.stdout.readline()
        assert line.startswith(("committed", "done")), harness.finish(process)
        harness.kill(process)
        harness.finish(process)

    def ends(self) -> None:
        """Let a last life come to the end, and compare what the sink holds with a count that knows nothing of Tidewheel."""
        status, _, err = harness.finish(self.start(), 600)
        assert status == 0, err[-3000:]
        counts, totals = Counter(), Counter()
        expected = []
        for user, amount in self.records:
            counts[user] += 1
            totals[user] += amount
            expected.append((user, counts[user], totals[user]))
        assert sorted(self.numbered()) == sorted(expected)
        self.check_totals(counts, totals)

    def check_totals(self, counts: Counter, totals: Counter) -> None:
        """Compare the second table, where there is one."""


def _produce(brokers: str, topic: str, records: list[tuple[str, int]]) -> None:
    """Write the records, those of one user to one partition in their order."""
    from confluent_kafka import Producer

    failed = []
    producer = Producer({"bootstrap.servers": brokers, "linger.ms": 50, "queue.buffering.max.messages": 1_000_000})
    for user, amount in records:
        payload = json.dumps({"user": user, "amount": amount}).encode()
        producer.produce(
            topic, payload, partition=int(user[5:]) % 2, on_delivery=lambda error, _: error and failed.append(error)
        )
        producer.poll(0)
    assert producer.flush(120) == 0
    assert not failed


def survives_all(pair: Pair) -> None:
    """Let the job be killed at its points and ten times at random, the broker twice, and the sink's servers twice."""
    seed = SEED + 1
    print(f"seed {seed}")
    draw = random.Random(seed)
    reader = pair.reader(readers.Expected(pair.records))
    try:
        for point in pair.points:
            pair.killed_at(point, 1 if point.startswith("start") else 2)
            reader.check()
        for life in range(10):
            pair.killed_at_random(draw)
            if life in (2, 5):
                pair.outlives("source", draw)
            if life >= 8:
                pair.outlives(pair.sinks[life % len(pair.sinks)], draw)
            reader.check()
        pair.ends()
    finally:
        reader.stop()
    print(f"{reader.looks} looks")
