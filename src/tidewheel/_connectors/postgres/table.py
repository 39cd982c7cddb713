"""The statements of a postgres sink: inspect and create its table, and add a batch in one transaction.

    tidewheel_markers (job, sink, marker, at)     in the schema of the table: which batches are in it

A batch and its marker are one transaction, under a lock per job and sink. So a batch is in the table if and only if the
marker says so, whichever process publishes it, however often and however late.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

import pyarrow as pa
from xxhash import xxh64_intdigest

from tidewheel._connectors.keyed_rows import DELETE
from tidewheel._connectors.marker import Marker
from tidewheel._connectors.over_runs import over_marker, over_stream, over_stream_of, refuse_over, streams_of
from tidewheel._connectors.postgres.columns import TableColumn, copy_text
from tidewheel._connectors.postgres.connection import driver
from tidewheel._connectors.sink import Publication
from tidewheel._core import faults
from tidewheel._values.expressions import Expression
from tidewheel.errors import ConfigError

if TYPE_CHECKING:
    from psycopg.sql import Composed

    from tidewheel._connectors.postgres.connection import Connection

COPIED = faults.declare("postgres.copied", "a batch is in the open transaction of a postgres sink, its marker is not")
MARKED = faults.declare("postgres.marked", "a batch and its marker are in the open transaction of a postgres sink")
DONE = faults.declare("postgres.done", "a postgres sink's transaction is committed, and not confirmed yet")

Mode = Literal["insert", "upsert", "latest"]

_MARKERS = "tidewheel_markers"
_LOCK_WAIT = "5s"
_COPY_CHUNK = 1 << 20


@dataclass(frozen=True)
class Table:
    """The table of a sink: its name, how records change it, and by which key."""

    name: str
    mode: Mode
    key: tuple[str, ...] = ()
    by: str | None = None
    delete: str | Expression | None = None
    """A column or an expression of records: where it is true, the row of the key is deleted."""

    def __post_init__(self) -> None:
        mode = self.mode
        if mode not in get_args(Mode):
            raise ConfigError(f"a postgres sink has the modes {', '.join(get_args(Mode))}, not {mode!r}")
        if mode == "insert" and self.key:
            raise ConfigError("a postgres sink in the mode 'insert' takes no key")
        if self.by is not None and mode != "latest":
            raise ConfigError(f"a postgres sink takes by= in the mode 'latest', not in {mode!r}")
        if self.delete is not None and (mode == "insert" or self.by is not None):
            what = f"the mode {mode!r}" if mode == "insert" else "by="
            raise ConfigError(f"a postgres sink takes delete= in the modes 'upsert' and 'latest', not with {what}")
        if not all(self.name.split(".")):
            raise ConfigError(f"a postgres sink writes to a table such as orders or sales.orders, not {self.name!r}")

    # Before the first batch.

    def columns(self, connection: Connection) -> dict[str, TableColumn] | None:
        """Return the table's columns by name, None if there is no such table."""
        rows = connection.execute(_COLUMNS, {"table": self._regclass()}).fetchall()
        return {name: TableColumn(*column) for name, *column in rows} or None

    def check(self, connection: Connection, columns: Mapping[str, TableColumn]) -> None:
        """Refuse a table that is not durable, or that has no unique constraint over the key."""
        (persistence, kind), *_ = connection.execute(_PERSISTENCE, {"table": self._regclass()}).fetchall()
        if kind not in ("r", "p"):
            raise ConfigError(
                f"{self.name} is not an ordinary table, but a view, an index, or a table of another server"
            )
        if persistence != "p":
            raise ConfigError(
                f"the table {self.name} is unlogged or temporary: after a crash it is empty, and the job would not "
                "know. Make it "
                "an ordinary one (ALTER TABLE … SET LOGGED)"
            )
        lacking = [name for name in (*self.key, *([self.by] if self.by else [])) if name not in columns]
        if lacking:
            raise ConfigError(f"the table {self.name} has no column {', '.join(lacking)}; it has {', '.join(columns)}")
        if self.key:
            unique = [names for (names,) in connection.execute(_UNIQUE, {"table": self._regclass()})]
            if set(self.key) not in map(set, unique):
                there = "; ".join(", ".join(names) for names in unique) or "nothing"
                key = ", ".join(self.key)
                # A table has one primary key, so prefer an existing unique constraint.
                way = (
                    f"Give the sink {' or '.join(f'key={names!r}' for names in unique)}"
                    if unique
                    else f"Add one: ALTER TABLE {self.name} ADD PRIMARY KEY ({key})"
                )
                raise ConfigError(
                    f"the table {self.name} has no unique constraint over {key}, or only a deferrable one, so its "
                    "rows cannot be "
                    f"found by that key (unique is: {there}). {way}"
                )

    def prepare_markers(self, connection: Connection) -> None:
        """Create the table of markers if it does not exist."""
        sql = driver().sql
        with connection.transaction():
            # Two concurrent CREATE statements would conflict in the catalogue.
            connection.execute("SELECT pg_advisory_xact_lock(%s)", [_lock_number(_MARKERS)])
            exists = connection.execute("SELECT to_regclass(%s)", [self._markers().as_string(None)]).fetchone()
            if exists == (None,):
                connection.execute(
                    sql.SQL(
                        "CREATE TABLE {} (job text, sink text, marker text NOT NULL, at timestamptz NOT NULL DEFAULT "
                        "now(), "
                        "PRIMARY KEY (job, sink))"
                    ).format(self._markers())
                )

    def create(self, connection: Connection, columns: Mapping[str, str]) -> bool:
        """Create the table with these columns and their types. Return False if it exists."""
        with connection.transaction():
            # Two concurrent CREATE statements would conflict in the catalogue.
            connection.execute("SELECT pg_advisory_xact_lock(%s)", [_lock_number(_MARKERS)])
            if self.columns(connection) is not None:
                return False
            connection.execute(self._creation(columns))
            return True

    # One batch.

    def add(self, connection: Connection, parts: Iterable[pa.Table], publication: Publication) -> None:
        """Add a batch in one transaction, unless it was added before.

        The rows of a part have the same columns, and no key twice; parts are added in order.
        """
        with connection.transaction():
            connection.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
            connection.execute("SET LOCAL TIME ZONE 'UTC'")
            connection.execute(_DURABLE)
            self._lock(connection, publication)
            text = self._mark_text(connection, publication.job, publication.sink)
            if text is None:
                refuse_over(publication, self._over(connection, publication.job, publication.sink))
            marker = Marker.decoded(text)
            if marker.has(publication):
                return
            for rows in parts:
                if DELETE in rows.schema.names:
                    self._delete(connection, rows.drop_columns([DELETE]))
                elif self.mode == "insert":
                    self._copy(connection, self._identifier(), rows)
                else:
                    self._merge(connection, rows)
            faults.point(COPIED)
            self._mark(connection, publication.job, publication.sink, marker.after(publication))
            faults.point(MARKED)
        faults.point(DONE)

    def _lock(self, connection: Connection, publication: Publication) -> None:
        """Wait for another process that publishes for this sink; end its connection if the process has stopped.

        A stopped process holds the lock until it continues. For a slow process, the server is working or receives more
        rows: that one is waited for.
        """
        psycopg = driver()
        number = _lock_number(f"{publication.job}\0{publication.sink}")
        connection.execute("SELECT set_config('lock_timeout', %s, true)", [_LOCK_WAIT])
        before: Any = None
        while True:
            try:
                with connection.transaction():
                    connection.execute("SELECT pg_advisory_xact_lock(%s)", [number])
                break
            except psycopg.errors.LockNotAvailable:
                connection.execute("SELECT pg_stat_clear_snapshot()")
                holder = connection.execute(_HOLDER, {"number": number}).fetchone()
                if holder is not None and holder == before:
                    pid, waits_for_its_process, *_ = holder
                    if waits_for_its_process:
                        connection.execute("SELECT pg_terminate_backend(%s)", [pid])
                before = holder
        connection.execute("SELECT set_config('lock_timeout', '0', true)")

    def _over(self, connection: Connection, stream: str, sink: str) -> int:
        """Return the number up to which all runs of a fleet are finished."""
        over = over_stream_of(stream)
        return 0 if over is None else Marker.decoded(self._mark_text(connection, over, sink)).sequence

    def _mark_text(self, connection: Connection, job: str, sink: str) -> str | None:
        query = driver().sql.SQL("SELECT marker FROM {} WHERE job = %s AND sink = %s").format(self._markers())
        row = connection.execute(query, [job, sink]).fetchone()
        return row[0] if row else None

    def mark_of(self, connection: Connection, job: str, sink: str) -> str | None:
        """Return the publish marker of a job's sink; None if there is none."""
        there = connection.execute("SELECT to_regclass(%s)", [self._markers().as_string(None)]).fetchone()
        return None if there == (None,) else self._mark_text(connection, job, sink)

    def forget(self, connection: Connection, job: str, sink: str) -> None:
        """Delete the publish marker of a job's sink."""
        statement = driver().sql.SQL("DELETE FROM {} WHERE job = %s AND sink = %s").format(self._markers())
        with connection.transaction():
            connection.execute(statement, [job, sink])

    def forget_runs(self, connection: Connection, job: str, sink: str, runs: Sequence[int]) -> None:
        """Delete the publish markers of finished runs of a fleet and record that they are finished, in one
        transaction.
        """
        over = over_stream(job)
        statement = driver().sql.SQL("DELETE FROM {} WHERE job = ANY(%s) AND sink = %s").format(self._markers())
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(%s)", [_lock_number(f"{over}\0{sink}")])
            known = Marker.decoded(self._mark_text(connection, over, sink))
            if known.sequence < max(runs):
                self._mark(connection, over, sink, over_marker(runs))
            connection.execute(statement, [streams_of(job, runs), sink])

    def _mark(self, connection: Connection, job: str, sink: str, marker: Marker) -> None:
        statement = driver().sql.SQL(
            "INSERT INTO {} (job, sink, marker) VALUES (%s, %s, %s) "
            "ON CONFLICT (job, sink) DO UPDATE SET marker = EXCLUDED.marker, at = now()"
        )
        connection.execute(statement.format(self._markers()), [job, sink, marker.encoded().decode()])

    def _copied(self, connection: Connection, rows: pa.Table) -> Any:
        """Copy rows into a temporary table, because COPY alone cannot update; return its name."""
        sql = driver().sql
        fresh = sql.Identifier("tidewheel_batch")
        connection.execute(
            sql.SQL("CREATE TEMPORARY TABLE {} ON COMMIT DROP AS SELECT {} FROM {} WITH NO DATA").format(
                fresh, _listed(rows.schema.names), self._identifier()
            )
        )
        self._copy(connection, fresh, rows)
        return fresh

    def _delete(self, connection: Connection, keys: pa.Table) -> None:
        """Delete the rows with these keys. A table that does not exist yet has none."""
        if self.columns(connection) is None:
            return
        sql = driver().sql
        fresh = self._copied(connection, keys)
        same = [sql.SQL("old.{0} = fresh.{0}").format(sql.Identifier(name)) for name in self.key]
        connection.execute(
            sql.SQL("DELETE FROM {} AS old USING {} AS fresh WHERE ").format(self._identifier(), fresh)
            + sql.SQL(" AND ").join(same)
        )
        connection.execute(sql.SQL("DROP TABLE {}").format(fresh))

    def _merge(self, connection: Connection, rows: pa.Table) -> None:
        """Upsert rows by key."""
        sql = driver().sql
        names = rows.schema.names
        table, listed = self._identifier(), _listed(names)
        fresh = self._copied(connection, rows)
        changed = [name for name in names if name not in self.key]
        if not changed:
            action = sql.SQL("DO NOTHING")
        else:
            sets = [sql.SQL("{0} = EXCLUDED.{0}").format(sql.Identifier(name)) for name in changed]
            if self.mode == "latest":
                others = [name for name in self.columns(connection) or () if name not in names]
                sets += [sql.SQL("{} = DEFAULT").format(sql.Identifier(name)) for name in others]
            action = sql.SQL("DO UPDATE SET ") + sql.SQL(", ").join(sets)
            if self.by is not None:
                action += sql.SQL(" WHERE old.{0} IS NULL OR EXCLUDED.{0} >= old.{0}").format(sql.Identifier(self.by))
        connection.execute(
            sql.SQL("INSERT INTO {} AS old ({}) SELECT {} FROM {} ON CONFLICT ({}) ").format(
                table, listed, listed, fresh, _listed(self.key)
            )
            + action
        )
        connection.execute(sql.SQL("DROP TABLE {}").format(fresh))

    def _copy(self, connection: Connection, into: Any, rows: pa.Table) -> None:
        statement = driver().sql.SQL("COPY {} ({}) FROM STDIN (FORMAT csv)").format(into, _listed(rows.schema.names))
        with connection.cursor() as cursor, cursor.copy(statement) as copy:
            for batch in rows.to_batches(max_chunksize=100_000):
                text = copy_text(pa.Table.from_batches([batch]))
                for start in range(0, len(text), _COPY_CHUNK):
                    copy.write(text[start : start + _COPY_CHUNK])

    def _creation(self, columns: Mapping[str, str]) -> Composed:
        sql = driver().sql
        clauses = [sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(kind)) for name, kind in columns.items()]
        if self.key:
            clauses.append(sql.SQL("PRIMARY KEY ({})").format(_listed(self.key)))
        composed: Composed = sql.SQL("CREATE TABLE {} ({})").format(self._identifier(), sql.SQL(", ").join(clauses))
        return composed

    def _identifier(self) -> Any:
        return driver().sql.Identifier(*self.name.split("."))

    def _markers(self) -> Any:
        return driver().sql.Identifier(*self.name.split(".")[:-1], _MARKERS)

    def _regclass(self) -> str:
        return str(self._identifier().as_string(None))


def _lock_number(text: str) -> int:
    # PostgreSQL's integers are signed; the halves of this one are compared with unsigned columns.
    return int(xxh64_intdigest(text.encode())) >> 1


def _listed(names: Sequence[str]) -> Any:
    sql = driver().sql
    return sql.SQL(", ").join(map(sql.Identifier, names))


# A trigger of the kind 7, for each row before it is inserted, may put a value where a null was. In a type's
# modifier, the length
# of a text is 4 more than its characters; of a numeric, 4 less are its digits and, in the last 11 bits, with a sign,
# its scale.
_COLUMNS = """
SELECT a.attname, coalesce(base.typname, t.typname), a.attnotnull AND NOT a.atthasdef AND a.attidentity = '',
a.attnotnull AND NOT EXISTS (SELECT FROM pg_trigger g WHERE g.tgrelid = a.attrelid AND g.tgenabled <> 'D' AND g.tgtype & 7 = 7),
CASE WHEN t.typname IN ('varchar', 'bpchar') AND a.atttypmod > 4 THEN a.atttypmod - 4 END,
CASE WHEN t.typname = 'numeric' AND a.atttypmod > 4 THEN ((a.atttypmod - 4) >> 16) & 65535 END,
CASE WHEN t.typname = 'numeric' AND a.atttypmod > 4 THEN (((a.atttypmod - 4) & 2047) # 1024) - 1024 END
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid LEFT JOIN pg_type base ON base.oid = nullif(t.typbasetype, 0)
WHERE a.attrelid = to_regclass(%(table)s) AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
ORDER BY a.attnum
"""
_PERSISTENCE = "SELECT relpersistence::text, relkind::text FROM pg_class WHERE oid = to_regclass(%(table)s)"
# Only unique indexes that ON CONFLICT can find by the columns alone.
_UNIQUE = """
SELECT array_agg(a.attname::text ORDER BY array_position(i.indkey::int2[], a.attnum)) FROM pg_index i
JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey[0:i.indnkeyatts - 1])
WHERE i.indrelid = to_regclass(%(table)s) AND i.indisunique AND i.indisvalid AND i.indimmediate
AND i.indpred IS NULL AND i.indexprs IS NULL
GROUP BY i.indexrelid, i.indisprimary ORDER BY i.indisprimary DESC, i.indexrelid
"""
# With it off, a crash of the server can lose the batch after the job has continued.
_DURABLE = """
SELECT set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') = 'off'
"""
# These values change while the holder of the lock makes progress, if the server is not working for it.
_HOLDER = """
SELECT a.pid, a.state = 'idle in transaction' OR a.wait_event_type = 'Client', a.backend_start, a.state_change, a.query_start,
coalesce((SELECT bytes_processed FROM pg_stat_progress_copy c WHERE c.pid = a.pid), 0)
FROM pg_locks l JOIN pg_stat_activity a USING (pid)
WHERE l.locktype = 'advisory' AND l.granted AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
AND l.objsubid = 1 AND ((l.classid::bigint << 32) | l.objid::bigint) = %(number)s AND l.pid <> pg_backend_pid()
"""
