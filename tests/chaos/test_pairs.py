"""Kafka to Kafka, PostgreSQL and Delta: the job is killed while it publishes and at random, and the servers are killed.

The sink has exactly the expected rows, and readers that look continuously never see anything but a part of them.
"""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from pathlib import Path

import pytest

from chaos import harness, readers
from servers.postgres_server import Postgres
from tidewheel import sources
from tidewheel._connectors.delta.table import TableLocation

SEED = 20261115
PROGRAM = Path(__file__).with_name("pairs_program.py")
PUBLISHING = ("commit.created", "publish.before-sink", "publish.done", "start.published")


class Pair:
    """A topic with records in it, and a job that brings them to a sink."""

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


class KafkaToKafka(Pair):
    """The server that is killed is both source and sink; aborted transactions leave nothing for readers of committed ones."""

    points = ("kafka.sent", "kafka.committed")

    def __init__(self, *arguments) -> None:
        super().__init__(*arguments)
        self.out = f"{self.topic}-out"
        self.broker.create(self.out, partitions=2)

    def target(self):
        return {"pair": "kafka", "target": self.out}

    def numbered(self):
        reader = sources.kafka(self.broker.brokers, self.out).reader()
        start = reader.start()
        parts = reader.splits(start, reader.end(start), 4)
        payloads = [value for part in parts for batch in part.read() for value in batch["value"].to_pylist()]
        reader.close()
        rows = map(json.loads, payloads)
        return [(row["user"], row["n"], row["total"]) for row in rows]

    def reader(self, expected):
        return readers.topic_reader(self.broker.brokers, self.out, 2, expected)

    @property
    def servers(self):
        return {"source": self.broker, "sink": self.broker}


class KafkaToPostgres(Pair):
    points = ("postgres.copied", "postgres.marked", "postgres.done")

    def __init__(self, server: Postgres, *arguments) -> None:
        super().__init__(*arguments)
        self.server = server
        server.query("DROP TABLE IF EXISTS numbered, totals, tidewheel_markers")

    def target(self):
        return {"pair": "postgres", "target": self.server.dsn}

    def numbered(self):
        return self.server.query('SELECT "user", n, total FROM numbered')

    def check_totals(self, counts, totals):
        found = {user: (n, total) for user, n, total in self.server.query('SELECT "user", n, total FROM totals')}
        assert found == {user: (counts[user], totals[user]) for user in counts}

    def reader(self, expected):
        return readers.table_reader(self.server.query, expected)

    @property
    def servers(self):
        return {"source": self.broker, "sink": self.server}


class KafkaToDelta(Pair):
    points = ("table.written", "delta.adding", "delta.added")

    def __init__(self, server, *arguments) -> None:
        super().__init__(*arguments)
        self.server = server
        if not server.is_running:
            server.start()
        self.url = server.url(f"delta-{self.folder.name}")

    def target(self):
        return {"pair": "delta", "target": self.url}

    def table(self):
        from deltalake import DeltaTable

        place, options = TableLocation(self.url).resolved()
        return DeltaTable(place, storage_options=options).to_pyarrow_table()

    def numbered(self):
        found = self.table()
        return list(zip(*(found[name].to_pylist() for name in ("user", "n", "total")), strict=True))

    def reader(self, expected):
        return readers.delta_reader(self.table, expected)

    @property
    def servers(self):
        return {"source": self.broker, "sink": self.server}


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


@pytest.mark.slow
def test_kafka_to_kafka_small(tmp_path, durable_kafka):
    draw = random.Random(SEED)
    pair = KafkaToKafka(tmp_path / "kafka-small", durable_kafka, 1_000, 50)
    pair.killed_at("kafka.sent", 2)
    pair.killed_at("kafka.committed", 3)
    pair.outlives("sink", draw)
    pair.ends()


@pytest.mark.slow
def test_kafka_to_postgres_small(tmp_path, kafka, postgres):
    draw = random.Random(SEED)
    pair = KafkaToPostgres(postgres, tmp_path / "postgres", kafka, 1_000, 50)
    pair.killed_at("postgres.done", 3)
    pair.outlives("sink", draw)
    pair.ends()


@pytest.mark.slow
def test_kafka_to_delta_small(tmp_path, kafka, mortal_seaweedfs):
    draw = random.Random(SEED)
    pair = KafkaToDelta(mortal_seaweedfs, tmp_path / "delta", kafka, 600, 50)
    pair.killed_at("table.written", 2)
    pair.killed_at("delta.added", 2)
    pair.outlives("sink", draw)
    pair.ends()


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_kafka_to_kafka(tmp_path, durable_kafka):
    survives_all(KafkaToKafka(tmp_path / "kafka-full", durable_kafka, 200_000, 2_000))


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_kafka_to_postgres(tmp_path, durable_kafka, postgres):
    survives_all(KafkaToPostgres(postgres, tmp_path / "postgres-full", durable_kafka, 200_000, 2_000))


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_kafka_to_delta(tmp_path, durable_kafka, mortal_seaweedfs):
    survives_all(KafkaToDelta(mortal_seaweedfs, tmp_path / "delta-full", durable_kafka, 200_000, 2_000))


def survives_all(pair: Pair) -> None:
    """Let the job be killed at every point of publishing and ten times at random, the broker twice, and the sink's server."""
    seed = SEED + 1
    print(f"seed {seed}")
    draw = random.Random(seed)
    reader = pair.reader(readers.Expected(pair.records))
    try:
        for point in (*PUBLISHING, *pair.points):
            pair.killed_at(point, 1 if point.startswith("start") else 2)
            reader.check()
        for life in range(10):
            pair.killed_at_random(draw)
            if life in (2, 5):
                pair.outlives("source", draw)
            if life == 8:
                pair.outlives("sink", draw)
            reader.check()
        pair.ends()
    finally:
        reader.close()
    print(f"{reader.looks} looks")
