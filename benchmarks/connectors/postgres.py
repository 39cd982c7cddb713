"""Rows a second into PostgreSQL: the sink, with its staging and its marker, beside psycopg's own COPY of the same rows.

Plain is what a program does that may lose or repeat a batch: per batch one transaction, in which `Copy.write_row` takes the rows
as Python tuples, made of the same Arrow columns. The sink stages each batch in a folder, as a task does, and publishes it, as a
driver does.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psycopg
import pyarrow as pa

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

from postgres_server import Postgres, running_postgres
from tidewheel import sinks, storage
from tidewheel.sinks.base import Publication, Sink, Staging

BATCH, ROUNDS = 50_000, 5
_COLUMNS = "id bigint, name text, amount double precision, at timestamptz"


def batches(size: int) -> list[pa.RecordBatch]:
    """Return rows of four usual columns."""
    start = 1_700_000_000_000_000
    made = []
    for first in range(0, size, BATCH):
        numbers = range(first, min(first + BATCH, size))
        made.append(
            pa.RecordBatch.from_pydict(
                {
                    "id": pa.array(numbers, pa.int64()),
                    "name": pa.array([f"customer-{number % 5_000}" for number in numbers]),
                    "amount": pa.array([number * 0.01 for number in numbers]),
                    "at": pa.array([start + number for number in numbers], pa.timestamp("us", "UTC")),
                }
            )
        )
    return made


def through(sink: Sink, rows: list[pa.RecordBatch], folder: str) -> None:
    """Stage and publish each batch, as a task and a driver do."""
    store = storage.open(folder)
    sink.start("bench")
    for sequence, batch in enumerate(rows, 1):
        partition = sink.open(Staging(store, "bench", "out", sequence, f"run-0-{sequence}"))
        partition.write(batch)
        token = partition.prepare()
        assert token is not None
        sink.publish(Publication(store, "bench", "out", sequence, (token,), None))


def compared(name: str, rows: int, plain: Callable[[int], None], ours: Callable[[int], None]) -> dict[str, float]:
    """Return ours over plain under the name, and both speeds: medians of rounds in turns, since what disturbs comes and goes."""
    times = []
    for number in range(ROUNDS):
        began = time.perf_counter()
        plain(number)
        between = time.perf_counter()
        ours(number)
        times.append((between - began, time.perf_counter() - between))
    return {
        name: statistics.median(plain_s / ours_s for plain_s, ours_s in times),
        f"{name}_rows_s": rows / statistics.median(ours_s for _, ours_s in times),
        f"{name}_plain_rows_s": rows / statistics.median(plain_s for plain_s, _ in times),
    }


def measure(size: int) -> dict[str, float]:
    """Return the ratio `postgres_write`, and the speeds that it is made of, in rows a second."""
    rows = batches(size)
    with running_postgres() as server, tempfile.TemporaryDirectory() as folder:

        def plain(number: int) -> None:
            _plain(server, f"plain_{number}", rows)

        def ours(number: int) -> None:
            server.query(f"CREATE TABLE ours_{number} ({_COLUMNS})")
            server.query("DROP TABLE IF EXISTS tidewheel_markers")
            through(sinks.postgres(server.dsn, f"ours_{number}"), rows, f"{folder}/{number}")
            assert server.query(f"SELECT count(*) FROM ours_{number}") == [(size,)]

        return compared("postgres_write", size, plain, ours)


def _plain(server: Postgres, table: str, rows: list[pa.RecordBatch]) -> None:
    with psycopg.connect(server.dsn) as connection:
        connection.execute(f"CREATE TABLE {table} ({_COLUMNS})")
        connection.commit()
        for batch in rows:
            with connection.cursor() as cursor, cursor.copy(f"COPY {table} FROM STDIN") as copy:
                for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                    copy.write_row(row)
            connection.commit()


if __name__ == "__main__":
    print(measure(200_000))
