"""iceberg: rows in an Apache Iceberg table, exactly once."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, get_args

import msgspec
import pyarrow as pa

from tidewheel._connectors.files.compaction import TARGET_BYTES, Compaction, TableSink
from tidewheel._connectors.files.data_files import DataFile, TaskFiles, check_present, checked, is_output
from tidewheel._connectors.files.table_columns import check_partitions, fitted, with_new
from tidewheel._connectors.iceberg.catalog import TableName, client
from tidewheel._connectors.iceberg.columns import check_types, created
from tidewheel._connectors.iceberg.commits import MAIN, BranchCommits
from tidewheel._connectors.iceberg.compaction import COMPACTED, compact_branch, compacted_at
from tidewheel._connectors.iceberg.files import TableFiles, columns_of, described, has_fields, partitioning
from tidewheel._connectors.iceberg.io_store import folder_of, place_of
from tidewheel._connectors.sink import Publication, SinkPartition, Staging
from tidewheel._connectors.staging import (
    StagedBatches,
    StagedRef,
    common_schema,
    published_batches,
    read_token,
    typed,
)
from tidewheel._time.duration import Duration
from tidewheel.errors import ConfigError

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile as IcebergFile
    from pyiceberg.table import Table

Evolve = Literal["add"]

_KNOWN_S = 300.0
"""How long a task uses a table as it has loaded it: the credentials of a catalog expire."""
_KEPT_S = 7 * 24 * 3600.0
"""Files that no snapshot refers to are deleted at this age: a stopped job may still publish younger ones."""


def iceberg(
    table: str,
    *,
    catalog: str | Mapping[str, str],
    branch: str = MAIN,
    partition_by: str | Sequence[str] = (),
    create: bool = True,
    evolve: Evolve | None = None,
    compact: Duration | None = None,
) -> Iceberg:
    """Append records to an Apache Iceberg table. Exactly once: each commit of the job is one snapshot of the table.

    - `table`: the namespace and the name, such as `"shop.orders"`.
    - `catalog`: the properties of the catalog, such as `{"type": "rest", "uri": "http://localhost:8181"}` or `{"type": "sql",
      "uri": "sqlite:////lake/catalog.db", "warehouse": "file:///lake"}`; or the name of a catalog in `.pyiceberg.yaml`.
    - `branch`: the branch to which snapshots are added. A missing branch is created from the main branch.
    - `partition_by`: the columns by which a new table is partitioned.
    - `create`: create a missing table with the first batch, from the types of the records: declare them in the previous step
      (`returns=…`). With `create=False` a missing table is an error.
    - `evolve`: `"add"` adds columns of records that the table does not have. By default such records are an error.
    - `compact`: how often small files of the table are rewritten into larger ones, such as `"1 hour"`, in the background.

    Records that do not fit the table without loss fail their batch before the commit. Tasks write the data files into the
    table's folder, and the driver adds a snapshot that names them. Readers see all records of a commit at once.
    """
    if evolve not in (None, *get_args(Evolve)):
        raise ConfigError(f'evolve of an iceberg sink is "add" or None, not {evolve!r}')
    return Iceberg(TableName.of(table, catalog), branch, partition_by, create, evolve, compact)


class _Output(msgspec.Struct, frozen=True):
    """The token of a task: files for the table, and rows that the table could not take yet."""

    files: TaskFiles | None = None
    staged: StagedRef | None = None


class Iceberg(TableSink):
    """Exactly once: a batch is one snapshot of the table, with job, sink and sequence in its summary."""

    guarantee = "exactly once"

    def __init__(
        self,
        name: TableName,
        branch: str = MAIN,
        partition_by: str | Sequence[str] = (),
        create: bool = True,
        evolve: Evolve | None = None,
        compact: Duration | None = None,
    ) -> None:
        super().__init__(compact)
        client()
        self.name, self.branch = name, branch
        self.partition_by = (partition_by,) if isinstance(partition_by, str) else tuple(partition_by)
        self.create, self.evolve = create, evolve
        self._table: Table | None = None

    def describe(self) -> str:
        return f"Iceberg table {self.name}" + (f", branch {self.branch}" if self.branch != MAIN else "")

    def place(self) -> str:
        return self.describe()

    def start(self, job: str) -> None:
        table = self.name.load("the iceberg sink")
        if table is None:
            if not self.create:
                raise ConfigError(
                    f"there is no Iceberg table {self.name}; create it, or let the sink create it (create=True)"
                )
            return
        self._commits.check_supported(table, "the iceberg sink", ConfigError)
        fields = table.spec().fields
        names = tuple(
            str(table.schema().find_column_name(each.source_id)) if str(each.transform) == "identity" else each.name
            for each in fields
        )
        if self.partition_by and names != self.partition_by:
            raise ConfigError(
                f"the Iceberg table {self.name} is partitioned by {', '.join(names) or 'nothing'}, but partition_by is "
                f"{', '.join(self.partition_by)}; remove partition_by, or write to another table"
            )

    def open(self, staging: Staging) -> SinkPartition:
        return _IcebergPartition(self, staging)

    def publish(self, publication: Publication) -> None:
        if not publication.tokens:
            return
        who = f"sink {publication.sink!r}"
        tokens = [read_token(token, _Output, publication.sink) for token in publication.tokens]
        written = [checked(token.files, publication) for token in tokens if token.files is not None]
        rows = _StagedRows(publication, [token.staged for token in tokens if token.staged is not None])
        # Within a run, files are published right after they were written.
        unsure = self._table is None
        # Keep the table: it includes our commits. Commits of other writers are found when ours conflicts with them.
        table, self._table = self._table or self.name.load(who), None
        if table is None:
            table = self.name.create(who, created(rows.schema()), self.partition_by)
        files = [file for token in written for file in token.files]

        def change() -> list[IcebergFile]:
            if unsure:
                check_present(files, place_of(table), publication.sink)
            if self.evolve and rows.staged:
                self._commits.add_columns(table, who, created(rows.schema()))
            return list(_Entries(table, publication).of(written, rows))

        own = [f"{folder_of(table)}/{file.path}" for file in files] if unsure else []
        self._commits.append(table, publication, own, change)
        self._table = table
        self.compact_if_due()

    def compact(self, target_bytes: int = TARGET_BYTES) -> Compaction:
        return compact_branch(self.name, self.branch, target_bytes)

    def compacted_at(self) -> float | None:
        table = self.name.load("the compaction")
        return None if table is None else compacted_at(table)

    def collect(self, job: str, sink: str, *, dry_run: bool = False) -> list[str]:
        who = f"sink {sink!r}"
        table = self.name.load(who)
        if table is None:
            return []
        place = place_of(table)
        old = time.time() - _KEPT_S
        found = [
            each.path
            for each in place.store.list()
            if each.modified < old and (is_output(each.path, job, sink) or is_output(each.path, *COMPACTED))
        ]
        if found:
            named = self.name.explained(who, lambda: set(table.inspect.all_data_files()["file_path"].to_pylist()))
            found = [path for path in found if f"{folder_of(table)}/{path}" not in named]
        for path in () if dry_run else found:
            place.remove(path)
        return found

    @property
    def _commits(self) -> BranchCommits:
        return BranchCommits(self.name, self.branch)

    def __getstate__(self) -> dict[str, Any]:
        # The loaded table stays in the driver.
        return {**super().__getstate__(), "_table": None}


class _KnownTables:
    """The tables that the tasks of this process have loaded, with the time and for the run in which they did so."""

    def __init__(self) -> None:
        self._known: dict[TableName, tuple[str, float, Table]] = {}

    def get(self, name: TableName, run: str, who: str, fits: Callable[[Table], bool]) -> Table | None:
        """Return the table, loaded again if it is not fresh or does not fit; None if there is none."""
        loaded_by, since, table = self._known.get(name, ("", 0.0, None))
        if table is not None and loaded_by == run and time.monotonic() - since < _KNOWN_S and fits(table):
            return table
        loaded = name.load(who)
        if loaded is not None:
            self._known[name] = (run, time.monotonic(), loaded)
        return loaded


_known = _KnownTables()


class _IcebergPartition(SinkPartition):
    """The output of a task: data files, and staged rows if there is no table yet, or it lacks columns that may be added."""

    def __init__(self, sink: Iceberg, staging: Staging) -> None:
        self._sink, self._staging = sink, staging
        self._who = f"sink {staging.sink!r}"
        self._run = staging.attempt.rsplit("-", 2)[0]
        self._files: TableFiles | None = None
        self._table: Table | None = None
        self._rows: StagedBatches | None = None

    def write(self, columns: pa.RecordBatch) -> None:
        if not columns.num_rows:
            return
        columns = typed(columns)
        check_types(columns.schema, self._who)
        names = set(columns.schema.names)
        if self._table is None or not names <= set(self._table.schema().column_names):
            self._load(names)
        known = None if self._table is None else columns_of(self._table)
        if known is None:
            if self._sink.partition_by:
                check_partitions(columns.schema.names, self._sink.partition_by, self._who)
            self._stage(columns, created(columns.schema))
        elif self._sink.evolve and not names <= set(known.names):
            self._stage(columns, with_new(known, created(columns.schema)))
        else:
            assert self._files is not None
            self._files.write(columns)

    def prepare(self) -> bytes | None:
        files = None if self._files is None else self._files.prepare()
        rows = None if self._rows is None else self._rows.prepare()
        if files is None and rows is None:
            return None
        sink = self._staging.sink
        return msgspec.msgpack.encode(
            _Output(
                None if files is None else read_token(files, TaskFiles, sink),
                None if rows is None else read_token(rows, StagedRef, sink),
            )
        )

    def _load(self, names: set[str]) -> None:
        table = _known.get(
            self._sink.name, self._run, self._who, lambda table: names <= set(table.schema().column_names)
        )
        if self._files is None and table is not None:
            self._table, self._files = table, TableFiles(table, self._staging)

    def _stage(self, columns: pa.RecordBatch, schema: pa.Schema) -> None:
        if self._rows is None:
            self._rows = StagedBatches(self._staging)
        fitting = fitted(columns, schema, self._who, "the table")
        self._rows.check_schema(fitting.schema)
        self._rows.write(fitting)


class _StagedRows:
    """The rows of a publication that the driver writes."""

    def __init__(self, publication: Publication, staged: Sequence[StagedRef]) -> None:
        self.staged = staged
        self._publication, self._tokens = publication, [msgspec.msgpack.encode(each) for each in staged]

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return published_batches(self._publication, self._tokens)

    def schema(self) -> pa.Schema:
        """Return the common schema."""
        return common_schema([batch.schema for batch in self], self._publication.sink)


class _Entries:
    """Describe the files of a publication for a manifest. Staged rows, and files that do not fit the table, are written again."""

    def __init__(self, table: Table, publication: Publication) -> None:
        self._table, self._publication = table, publication
        self._columns = columns_of(table)

    def of(self, written: Sequence[TaskFiles], rows: _StagedRows) -> Iterator[IcebergFile]:
        """Yield the entry of each file."""
        for token in written:
            fits = [has_fields(self._columns, schema) for schema in token.arrow_schemas()]
            for file in token.files:
                if fits[file.columns] and token.partition_by == partitioning(self._table):
                    yield described(self._table, file, self._publication.sink)
                else:
                    yield from self._written_again(self._read(file))
        if rows.staged:
            yield from self._written_again(rows)

    def _written_again(self, rows: Iterator[pa.RecordBatch] | _StagedRows) -> Iterator[IcebergFile]:
        publication = self._publication
        attempt = f"{secrets.token_hex(6)}-0-0"
        staging = Staging(publication.store, publication.job, publication.sink, publication.sequence, attempt)
        files = TableFiles(self._table, staging, rounds=True)
        for batch in rows:
            files.write(batch)
        token = files.prepare()
        for file in () if token is None else read_token(token, TaskFiles, publication.sink).files:
            yield described(self._table, file, publication.sink)

    def _read(self, file: DataFile) -> Iterator[pa.RecordBatch]:
        from pyarrow import parquet

        content = pa.BufferReader(place_of(self._table).store.read(file.path))
        yield from parquet.ParquetFile(content).iter_batches()
