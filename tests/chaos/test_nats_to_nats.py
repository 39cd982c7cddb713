"""NATS to NATS: the job is killed while it publishes and at random, and the server of both streams is killed.

The stream holds exactly the expected messages.
"""

from __future__ import annotations

import json
import random
from pathlib import Path

import pyarrow as pa
import pytest

from chaos import harness, readers
from chaos.pairs import PROGRAM, Pair, survives_all
from servers.nats_server import Nats, running_nats
from tidewheel.errors import ConnectorUnavailable

SEED = 20261116


class NatsToNats(Pair):
    """Two streams of one server."""

    points = ("nats.sending", "nats.stored")

    def __init__(self, folder: Path, server: Nats, records: int, batch: int) -> None:
        draw = random.Random(SEED)
        self.folder, self.server, self.batch = folder, server, batch
        self.records = [(f"user-{draw.randrange(200)}", draw.randrange(-50, 100)) for _ in range(records)]
        folder.mkdir()
        server.make_stream("in")
        server.make_stream("out", allow_atomic=True)
        server.send("in.payments", [json.dumps({"user": u, "amount": a}).encode() for u, a in self.records])

    def start(self, faults=""):
        options = {"pair": "nats", "server": self.server.server, "topic": "in", "target": "out.{user}"}
        return harness.start(self.folder, faults, PROGRAM, **options, max_records=str(self.batch))

    def numbered(self):
        found = [json.loads(data) for _, data in self.server.messages("out", "out.*")]
        return [(row["user"], row["n"], row["total"]) for row in found]

    def reader(self, expected):
        def look():
            columns = zip(*self.numbered(), strict=True)
            readers.check_numbered(pa.table(dict(zip(("user", "n", "total"), columns, strict=False))), expected)

        # Nothing is there before the first batch.
        return readers.Reader(look, (ConnectorUnavailable, OSError, KeyError))

    @property
    def servers(self):
        return {"source": self.server, "sink": self.server}


@pytest.fixture
def server(tmp_path):
    with running_nats(tmp_path / "nats") as running:
        yield running


@pytest.mark.slow
def test_small(tmp_path, server):
    print(f"seed {SEED}")
    pair = NatsToNats(tmp_path / "job", server, 600, 50)
    pair.killed_at("nats.sending", 3)
    pair.outlives("sink", random.Random(SEED))
    pair.ends()


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_full(tmp_path, server):
    survives_all(NatsToNats(tmp_path / "job", server, 200_000, 2_000))
