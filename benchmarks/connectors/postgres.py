"""Measure rows a second into PostgreSQL: the sink, with staging and its marker, compared with psycopg's COPY of the same rows.

The plain program may lose or repeat a batch: it runs one transaction per batch, in which `Copy.write_row` takes the rows as
Python tuples made from the same Arrow columns. The sink stages each batch in a folder, as a task does, and publishes it, as a
driver does.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import psycopg
import pyarrow as pa
from benchmarks.connectors.sinks import batches, compared, through

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

from servers.postgres_server import Postgres, running_postgres
from tidewheel import sinks

_COLUMNS = "id bigint, name text, amount double precision, at timestamptz"


def measure(size: int) -> dict[str, float]:
    """Return the ratio `postgres_write` and its two speeds, in rows a second."""
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
