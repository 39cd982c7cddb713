"""postgres: rows in a table of PostgreSQL, exactly once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
from pyarrow import compute

from tidewheel._connectors.keyed_rows import DELETE, KeyedRows, RowKey, deletions, last_of_each
from tidewheel._connectors.postgres.columns import TableColumn, check, check_key, created, grouped, writable
from tidewheel._connectors.postgres.connection import Server
from tidewheel._connectors.postgres.table import Mode, Table
from tidewheel._connectors.sink import Publication, SinkPartition, Staging
from tidewheel._connectors.staging import PublishedRows, StagedBatches, common_schema, together, typed
from tidewheel._time.duration import Duration, seconds
from tidewheel._values.columns import check_readable
from tidewheel._values.expressions import Expression
from tidewheel.errors import ConfigError, Retry, StepError

if TYPE_CHECKING:
    from tidewheel._connectors.postgres.connection import Connection


def postgres(
    dsn: str,
    table: str,
    mode: Mode = "insert",
    *,
    key: str | Sequence[str] | None = None,
    by: str | None = None,
    delete: str | Expression | None = None,
    create: bool = False,
    password_env: str | None = None,
    patience: Duration = "1 min",
) -> Postgres:
    """Write records to a table of PostgreSQL. Exactly once: the records of a commit and its marker are one transaction.

    - `dsn`: the connection, without a password. The password comes from `PGPASSWORD`, `~/.pgpass`, a service file, or the
      environment variable that `password_env` names. Only the driver connects.
    - `mode`: `insert` adds a row for each record. `upsert` adds a row, or updates the columns that the record has in the row
      with the same `key`. `latest` keeps one row per `key`, the latest record: columns that the record does not have get their
      defaults.
    - `by`: for `latest`, a column such as the time of the event. The record with the highest value is the latest, in any order
      of arrival; without `by` it is the last record of the stream.
    - `key`: the columns of the key; by default the key of the stream.
    - `delete`: for `upsert` and `latest` without `by`, a boolean column or an expression of `pyarrow.compute`. Where it is
      true, the row of the key is deleted. The column is not stored.
    - `create`: create the table with the first batch, from the types of the records, which you declare with `returns=…` (lists,
      structs and maps become `jsonb`). Otherwise the table must exist, with a unique constraint over the key.
    - `patience`: how long to retry if the server is unavailable; then the run ends, and the next run publishes the output.

    The job checks an existing table at its
    start. Markers are in the table `tidewheel_markers`, in the same schema. Records that do not fit the columns (type,
    null, length of a text) fail their batch before the commit.
    """
    keys = (key,) if isinstance(key, str) else tuple(key or ())
    return Postgres(
        Server(dsn, password_env, seconds(patience, "patience of the sink postgres")),
        Table(table, mode, keys, by, delete),
        create,
    )


class Postgres(KeyedRows):
    """Exactly once: a batch and its marker are one transaction."""

    guarantee = "exactly once"
    distinguishes_absent_fields = True

    def __init__(self, server: Server, table: Table, create: bool) -> None:
        self.server, self.table, self.create = server, table, create
        self.columns: Mapping[str, TableColumn] | None = None
        """The table as it was at the start of the job, or as the sink created it; tasks check their records against it."""
        self._started = self._created = False

    @property
    def row_key(self) -> RowKey | None:
        return None if self.table.mode == "insert" else RowKey(self.table.key, self.table.delete)

    def with_row_key(self, key: RowKey) -> Postgres:
        return Postgres(self.server, replace(self.table, key=key.columns, delete=key.delete), self.create)

    def describe(self) -> str:
        return f"table {self.table.name} in PostgreSQL at {self.server.describe()}"

    def __repr__(self) -> str:
        return f"Postgres({self.describe()}, mode={self.table.mode!r})"

    def place(self) -> str:
        return f"PostgreSQL table {self.table.name}"

    def start(self, job: str) -> None:
        self.server.persist(f"the postgres sink to {self.table.name}", self._start)

    def _start(self, connection: Connection) -> None:
        self.columns = self.table.columns(connection)
        if self.columns is not None:
            self.table.check(connection, self.columns)
        elif not self.create:
            raise ConfigError(
                f"there is no table {self.table.name} in PostgreSQL at {self.server.describe()}; create it, or let "
                "the sink "
                "do so (create=True)"
            )
        connection.commit()
        self.table.prepare_markers(connection)
        self._started = True

    def known(self) -> bytes | None:
        return msgspec.msgpack.encode(self.columns) if self._created else None

    def open(self, staging: Staging) -> SinkPartition:
        known = staging.known
        columns = self.columns if known is None else msgspec.msgpack.decode(known, type=dict[str, TableColumn])
        return _PostgresPartition(self, staging, columns)

    def before_commit(self, publication: Publication) -> None:
        """Create the table before the first commit, so that all records are checked against it before theirs."""
        who = f"sink {publication.sink!r}"
        way = "Nothing is committed: correct the records, or create the table, and start again"
        if self.columns is None and self._create(PublishedRows(publication), who, way) is False:
            raise Retry(
                f"{who}: another program has created the table {self.table.name} during this batch. Nothing is committed: "
                "the batch runs again, and its records are checked against the table"
            )

    def publish(self, publication: Publication) -> None:
        if not publication.tokens:
            return
        if not self._started:
            self.start(publication.job)
        who, rows = f"sink {publication.sink!r}", PublishedRows(publication)
        way = (
            "The output is committed and not lost: correct the table and start again, or start with --drop-unpublished "
            f"{publication.sink} to continue without this commit's rows of the sink"
        )
        if self.columns is None:
            self._create(rows, who, way)
        self.server.persist(
            who, lambda connection: self.table.add(connection, self._parts(rows, publication.sink), publication), way
        )

    def _create(self, rows: PublishedRows, who: str, way: str) -> bool | None:
        """Create the table for these rows. Return False if it exists, and None if all rows are deletes."""
        schemas = rows.schemas()
        kept = [schema for schema in schemas if DELETE not in schema.names]
        if not kept:
            return None
        sink = rows.publication.sink
        common_schema(schemas, sink)  # The keys of deletes must fit too.
        columns = created(common_schema(kept, sink), kept)

        def create(connection: Connection) -> bool:
            is_new = self.table.create(connection, columns)
            self.columns, self._created = self.table.columns(connection), True
            self.table.check(connection, self.columns or {})
            return is_new

        return self.server.persist(who, create, way)

    def _parts(self, rows: PublishedRows, sink: str) -> Iterator[pa.Table]:
        """Yield the rows in the order in which to add them, with only a part of them in memory."""
        for tables in rows.tables():
            # Records without a column do not change it, so they are added separately from those that have it.
            for alike in grouped(tables, self.table.key):
                part = together(alike, sink)
                yield last_of_each(part, self.table.key, self.table.by) if self.table.key else part

    def published(self, job: str, sink: str) -> str | None:
        mark = self.server.persist(f"sink {sink!r}", lambda connection: self.table.mark_of(connection, job, sink))
        return None if mark is None else f"its marker next to {self.describe()}; the rows stay, empty the table by hand"

    def remove(self, job: str, sink: str) -> None:
        self.server.persist(f"sink {sink!r}", lambda connection: self.table.forget(connection, job, sink))

    def forget(self, job: str, sink: str, runs: Sequence[int]) -> None:
        if not self._started:
            self.start(job)
        who = f"sink {sink!r}"
        self.server.persist(who, lambda connection: self.table.forget_runs(connection, job, sink, runs))


class _PostgresPartition(StagedBatches):
    """The rows of a task, encoded so that the driver only copies them."""

    def __init__(self, sink: Postgres, staging: Staging, known: Mapping[str, TableColumn] | None) -> None:
        super().__init__(staging)
        self._sink, self._known = sink, known

    def write(self, columns: pa.RecordBatch) -> None:
        if not columns.num_rows:
            return
        table = self._sink.table
        if table.delete is None:
            self._write(columns, self._known)
            return
        # Afterwards, the order of the records of this batch does not matter.
        check_key(columns, table.key, self._who)
        (columns,) = last_of_each(pa.table(columns), table.key, None).combine_chunks().to_batches()
        flags = deletions(columns, table.delete, self._who)
        deleted, kept = columns.filter(flags).select(list(table.key)), columns.filter(compute.invert(flags))
        if isinstance(table.delete, str):
            kept = kept.drop_columns([table.delete])
        if kept.num_rows:
            self._write(kept, self._known)
        if deleted.num_rows:
            known = self._known
            self._write(deleted, known and {name: known[name] for name in table.key}, deletes=True)

    def _write(
        self, columns: pa.RecordBatch, known: Mapping[str, TableColumn] | None, *, deletes: bool = False
    ) -> None:
        table = self._sink.table
        if known is None:
            columns = typed(columns)
        check(columns, table.key, known, self._who, f"the table {table.name}")
        if table.by is not None and table.by not in columns.schema.names:
            raise StepError(
                f"{self._who}: there is no column {table.by!r} (by=…); the records have "
                f"{', '.join(columns.schema.names)}"
            )
        check_readable(columns)
        if deletes:
            flags = pa.array([True] * columns.num_rows, pa.bool_())
            columns = pa.RecordBatch.from_arrays([*columns.columns, flags], [*columns.schema.names, DELETE])
        self.check_schema(columns.schema)
        super().write(writable(columns, self._who))
