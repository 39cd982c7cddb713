"""Measure records a second from and to Kafka, compared with the plain client and the same records.

Reading: a plain consumer takes all values of a topic with two partitions, five times as many as are written. The job runs on
Spark with two cores, and its sink drops the records; the first of its three batches, in which Spark warms up, is not counted.
Writing: a plain producer encodes the same rows as JSON and sends them batch by batch, waiting for the brokers after each batch.
The sink stages each batch in a folder, as a task does, and publishes it in a transaction with its marker, as a driver does.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import msgspec
from benchmarks.connectors.sinks import batches, compared, through
from confluent_kafka import Consumer, Producer, TopicPartition

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

from servers.kafka_server import Kafka, running_kafka
from tidewheel import Job, RunOptions, sinks, sources
from tidewheel._spark.session import session

PARTITIONS, ROUNDS, READ = 2, 3, 5


def measure(size: int) -> dict[str, float]:
    """Return the ratios `kafka_read` and `kafka_write` and their speeds, in records a second."""
    with tempfile.TemporaryDirectory() as folder, running_kafka(Path(folder) / "server") as server:
        return {**_write(server, size, folder), **_read(server, READ * size, folder)}


def _write(server: Kafka, size: int, folder: str) -> dict[str, float]:
    rows = batches(size)
    encode = msgspec.json.Encoder().encode

    def plain(number: int) -> None:
        topic = f"plain-{number}"
        server.create(topic, PARTITIONS)
        producer = Producer({"bootstrap.servers": server.brokers, "linger.ms": 5})
        for batch in rows:
            for row in batch.to_pylist():
                _send(producer, topic, encode(row), str(row["id"]))
            producer.flush()

    def ours(number: int) -> None:
        topic = f"ours-{number}"
        server.create(topic, PARTITIONS)
        # Each round needs its own markers: it runs the same job, and would find its output already published.
        sink = sinks.kafka(server.brokers, topic, key="id", marker_topic=f"markers-{number}")
        through(sink, rows, f"{folder}/state-{number}")

    found = compared("kafka_write", size, plain, ours)
    assert _count(server, "ours-0") == size
    return found


def _send(producer: Producer, topic: str, value: bytes, key: str | None = None, partition: int = -1) -> None:
    while True:
        try:
            producer.produce(topic, value, key, partition)
            return
        except BufferError:
            producer.poll(0.05)


def _read(server: Kafka, size: int, folder: str) -> dict[str, float]:
    server.create("in", PARTITIONS)
    producer = Producer({"bootstrap.servers": server.brokers, "linger.ms": 5})
    for number in range(size):
        _send(
            producer,
            "in",
            b'{"user":"user-%06d","amount":%d,"page":"/index.html"}' % (number % 10_000, number),
            None,
            number % 2,
        )
    producer.flush()
    plain_s = min(_plain_read(server, "in", size) for _ in range(ROUNDS))
    ours = _job_speed(server, size, folder)
    return {
        "kafka_read": ours * plain_s / size,
        "kafka_read_rows_s": ours,
        "kafka_read_plain_rows_s": size / plain_s,
    }


def _plain_read(server: Kafka, topic: str, size: int) -> float:
    """Return the seconds that a plain consumer takes."""
    began = time.perf_counter()
    consumer = Consumer({"bootstrap.servers": server.brokers, "group.id": "plain", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    values: list[bytes] = []
    while len(values) < size:
        values += [message.value() for message in consumer.consume(min(10_000, size - len(values)), 0.1)]
    consumer.close()
    return time.perf_counter() - began


def _job_speed(server: Kafka, size: int, folder: str) -> float:
    """Return the records a second of all batches but the first."""
    job = Job("bench", state=f"{folder}/job", n_shards=4)
    job.source("in", sources.kafka(server.brokers, "in", max_records=size // 3 + 1)).sink("out", sinks.discard())
    spark = session("local[2]", {})
    result = job.run(until="caught-up", options=RunOptions(spark=spark, local=f"{folder}/local"))
    spark.stop()
    assert sum(batch.rows for batch in result.batches) == size
    measured = result.batches[1:]
    return sum(batch.rows for batch in measured) / sum(batch.seconds for batch in measured)


def _count(server: Kafka, topic: str) -> int:
    reader = sources.kafka(server.brokers, topic).reader()
    start = reader.start()
    end = reader.end(start)
    found = sum(batch.num_rows for part in reader.splits(start, end, 4) for batch in part.read())
    reader.close()
    return found


if __name__ == "__main__":
    began = time.perf_counter()
    print(measure(int(sys.argv[1]) if len(sys.argv) > 1 else 200_000), f"in {time.perf_counter() - began:.0f} s")
