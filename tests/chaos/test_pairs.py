"""Kafka to Kafka, PostgreSQL and Delta: the job is killed while it publishes and at random, and the servers are killed.

The sink has exactly the expected rows, and readers that look continuously never see anything but a part of them.
"""

from __future__ import annotations

import json
import random

import pytest

from chaos import readers
from chaos.pairs import PUBLISHING, SEED, Pair, survives_all
from servers.postgres_server import Postgres
from tidewheel import sources
from tidewheel._connectors.delta.table import TableLocation


class KafkaToKafka(Pair):
    """The server that is killed is both source and sink; aborted transactions leave nothing for readers of committed ones."""

    points = (*PUBLISHING, "kafka.sent", "kafka.committed")

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
    points = (*PUBLISHING, "postgres.copied", "postgres.marked", "postgres.done")

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
    points = (*PUBLISHING, "table.written", "delta.adding", "delta.added")

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
