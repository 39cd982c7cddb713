"""Measure records a second from and to NATS JetStream, compared with the plain client and the same records.

Reading: the plain client takes all messages of a stream with a pull consumer, in fetches of a thousand. The job runs on Spark
with two cores, and its sink drops the records; its first batch, in which Spark warms up, is not counted. Writing: the plain
client encodes the same rows as JSON and publishes them with a thousand messages in flight, waiting for all messages of a batch.
The sink stages each batch in a folder, as a task does, and publishes it in atomic batches with their markers, as a driver does.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec
from benchmarks.connectors.sinks import batches, compared, through
from nats.js.api import AckPolicy, ConsumerConfig

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

from servers.nats_server import Nats, running_nats
from tidewheel import Job, RunOptions, sinks, sources
from tidewheel._connectors.nats.client import NatsConnection
from tidewheel._spark.session import session

IN_FLIGHT, FETCH, ROUNDS = 1000, 1000, 3


def measure(size: int) -> dict[str, float]:
    """Return the ratios `nats_read` and `nats_write` and their speeds, in records a second."""
    with tempfile.TemporaryDirectory() as folder, running_nats(Path(folder) / "server", sync="2m") as server:
        return {**_write(server, size, folder), **_read(server, size, folder)}


def _write(server: Nats, size: int, folder: str) -> dict[str, float]:
    rows = batches(size)
    encode = msgspec.json.Encoder().encode

    async def published(stream: Any, subject: str) -> None:
        for batch in rows:
            encoded = [encode(row) for row in batch.to_pylist()]
            for at in range(0, len(encoded), IN_FLIGHT):
                sent = [await stream.publish_async(subject, data) for data in encoded[at : at + IN_FLIGHT]]
                await asyncio.gather(*sent)

    def plain(number: int) -> None:
        server.make_stream(f"plain-{number}")
        with NatsConnection(server.server, timeout=600) as connection:
            connection.call(published(connection.jetstream, f"plain-{number}.out"))

    def ours(number: int) -> None:
        server.make_stream(f"ours-{number}", allow_atomic=True)
        through(sinks.nats(server.server, f"ours-{number}.out"), rows, f"{folder}/state-{number}")

    found = compared("nats_write", size, plain, ours)
    assert len(server.messages("ours-0", "ours-0.out")) == size
    return found


def _read(server: Nats, size: int, folder: str) -> dict[str, float]:
    server.make_stream("in")
    server.send("in.a", [b'{"user":"user-%06d","amount":%d,"page":"/"}' % (n % 10_000, n) for n in range(size)])
    plain_s = min(_plain_read(server, size) for _ in range(ROUNDS))
    ours = _job_speed(server, size, folder)
    return {"nats_read": ours * plain_s / size, "nats_read_rows_s": ours, "nats_read_plain_rows_s": size / plain_s}


def _plain_read(server: Nats, size: int) -> float:
    """Return the seconds that a plain client takes."""

    async def fetched(stream: Any) -> None:
        # Without acknowledgements: otherwise the server would hold back all but the first thousand.
        reading = ConsumerConfig(ack_policy=AckPolicy.NONE)
        subscription = await stream.pull_subscribe("in.a", stream="in", config=reading)
        values: list[bytes] = []
        while len(values) < size:
            values += [message.data for message in await subscription.fetch(min(FETCH, size - len(values)), 60)]

    with NatsConnection(server.server, timeout=600) as connection:
        began = time.perf_counter()
        connection.call(fetched(connection.jetstream))
        return time.perf_counter() - began


def _job_speed(server: Nats, size: int, folder: str) -> float:
    """Return the records a second of all batches but the first."""
    job = Job("bench", state=f"{folder}/job", n_shards=4)
    source = sources.nats(server.server, "in", max_records=size // 4, tasks=2)
    job.source("in", source).sink("out", sinks.discard())
    spark = session("local[2]", {})
    result = job.run(until="caught-up", options=RunOptions(spark=spark, local=f"{folder}/local"))
    spark.stop()
    assert sum(batch.rows for batch in result.batches) == size
    measured = result.batches[1:]
    return sum(batch.rows for batch in measured) / sum(batch.seconds for batch in measured)


if __name__ == "__main__":
    print(measure(100_000))
