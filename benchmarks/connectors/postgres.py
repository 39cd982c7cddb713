"""Rows a second into PostgreSQL: the sink, with its staging and its marker, beside psycopg's own COPY of the same rows.

Plain is what a program does that may lose or repeat a batch: per batch one transaction, in which `Copy.write_row` takes the rows
as Python tuples, made of the same Arrow columns. The sink stages each batch in a folder, as a task does, and publishes it, as a
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
