"""iceberg: rows in an Apache Iceberg table, exactly once."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from tidewheel._connectors.files.compaction import TARGET_BYTES, Compaction
from tidewheel._connectors.files.data_files import DataFile, TaskFiles, check_present, checked, is_output
from tidewheel._connectors.files.known_tables import KnownTables
from tidewheel._connectors.files.merging import TableRows
from tidewheel._connectors.files.table_columns import check_known, check_partitions, fitted, with_new
from tidewheel._connectors.files.table_sink import Evolve, Mode, TableOptions, TableSink, key_of
from tidewheel._connectors.iceberg.catalog import TableName, client
from tidewheel._connectors.iceberg.columns import check_types, created
from tidewheel._connectors.iceberg.commits import MAIN, BranchCommits, FileChange
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
from tidewheel._values.expressions import Expression
from tidewheel.errors import ConfigError

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile as IcebergFile
    from pyiceberg.table import Table

_KEPT_S = 7 * 24 * 3600.0
"""Files that no snapshot refers to are deleted at this age: a task or a compaction may still be writing younger ones."""


def iceberg(
    table: str,
    *,
    catalog: str | Mapping[str, str],
    mode: Mode = "append",
    key: str | Sequence[str] = (),
    delete: str | Expression | None = None,
    branch: str = MAIN,
    partition_by: str | Sequence[str] = (),
    create: bool = True,
    evolve: Evolve | None = None,
    compact: Duration | None = None,
) -> Iceberg:
    """Write records to an Apache Iceberg table. Exactly once: each commit of the job is one snapshot of the table.

    - `table`: the namespace and the name, such as `"shop.orders"`.
    - `catalog`: the properties of the catalog, such as `{"type": "rest", "uri": "http://localhost:8181"}` or `{"type": "sql",
      "uri": "sqlite:////lake/catalog.db", "warehouse": "file:///lake"}`; or the name of a catalog in `.pyiceberg.yaml`.
    - `mode`: `"append"` adds a row for each record. `"merge"` replaces the row of the record's key, or adds one; several
      records of a key in a commit count as the last one.
    - `key`: the columns of the key, for `mode="merge"`; by default the key of the stream.
    - `delete`: for `mode="merge"`, a boolean column or an expression of `pyarrow.compute`. Where it is true, the row of the
      key is deleted. The column is not stored.
    - `branch`: the branch to which snapshots are added. A missing branch is created from the main branch.
    - `partition_by`: the columns by which a new table is partitioned.
    - `create`: create a missing table with the first batch, from the types of the records: declare them in the previous step
      (`returns=…`). With `create=False` a missing table is an error.
    - `evolve`: `"add"` adds columns of records that the table does not have. By default such records are an error.
    - `compact`: how often small files of the table are rewritten into larger ones, such as `"1 hour"`, in the background.

    Records that do not fit the table without loss fail their batch before the commit. Tasks write the data files into the
    table's folder, and the driver adds a snapshot that names them. Readers see all records of a commit at once.
    """
    from tidewheel._connectors.iceberg.merge import IcebergMerge

    row_key = key_of("an iceberg sink", mode, evolve, key, delete)
    name, options = TableName.of(table, catalog), TableOptions(partition_by, create, evolve, compact)
    return Iceberg(name, branch, options) if row_key is None else IcebergMerge(name, branch, options, row_key)


class RowToken(msgspec.Struct, frozen=True):
    """The token of a task: files for the table, and rows that the table could not take yet."""

    files: TaskFiles | None = None
    staged: StagedRef | None = None


class Iceberg(TableSink["Table"]):
    """Exactly once: a batch is one snapshot of the table, with job, sink and sequence in its summary."""

    def __init__(self, name: TableName, branch: str, options: TableOptions) -> None:
        super().__init__(options)
        client()
        self.name, self.branch = name, branch

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
        return IcebergRows(self, staging)

    def publish(self, publication: Publication) -> None:
        if tokens := self.row_tokens(publication):
            self.change(publication, tokens, lambda entries: FileChange(list(entries.of(tokens))))

    def row_tokens(self, publication: Publication) -> list[RowToken]:
        """Return the tokens of the rows of a publication."""
        return [read_token(token, RowToken, publication.sink) for token in publication.tokens]

    def prepare_table(self, publication: Publication) -> pa.Schema | None:
        who = f"sink {publication.sink!r}"
        table = self._table or self.name.load(who)
        staged = [token.staged for token in self.row_tokens(publication) if token.staged is not None]
        if staged:
            rows = created(_StagedRows(publication, staged).schema())
            check_known(rows, None if table is None else columns_of(table), who)
            if table is None:
                table = self.name.create(who, rows, self.partition_by)
            elif self.evolve:
                self._commits.add_columns(table, who, rows)
            self.check_unchanged(rows, created(columns_of(table)), who)
        return None if table is None else columns_of(table)

    def change(
        self, publication: Publication, tokens: Sequence[RowToken], change: Callable[[TableEntries], FileChange]
    ) -> None:
        """Commit the result of `change`. The tokens belong to the rows of the publication."""
        who = f"sink {publication.sink!r}"
        written = [checked(token.files, publication) for token in tokens if token.files is not None]
        rows = _StagedRows(publication, [token.staged for token in tokens if token.staged is not None])
        # Within a run, files are published right after they were written.
        unsure = self._table is None
        # Keep the table: it includes our commits. Commits of other writers are found when ours conflicts with them.
        table, self._table = self._table or self.name.load(who), None
        if table is None:
            if not tokens:
                # A table that is not there has no rows to delete.
                return
            table = self.name.create(who, created(rows.schema()), self.partition_by)
        files = [file for token in written for file in token.files]

        def changed() -> FileChange:
            if unsure:
                check_present(files, place_of(table), publication.sink)
            if self.evolve and rows.staged:
                self._commits.add_columns(table, who, created(rows.schema()))
            return change(TableEntries(table, publication, self.branch))

        own = [f"{folder_of(table)}/{file.path}" for file in files] if unsure else []
        self._commits.commit(table, publication, own, changed)
        self._table = table
        self.compact_if_due()

    def compact(self, target_bytes: int = TARGET_BYTES) -> Compaction:
        return compact_branch(self.name, self.branch, target_bytes)

    def compacted_at(self) -> float | None:
        table = self.name.load("the compaction")
        return None if table is None else compacted_at(table)

    def collect(self, job: str, sink: str, *, unpublished: Collection[int] = (), dry_run: bool = False) -> list[str]:
        who = f"sink {sink!r}"
        table = self.name.load(who)
        if table is None:
            return []
        place = place_of(table)
        old = time.time() - _KEPT_S
        found = [
            each.path
            for each in place.store.list()
            if each.modified < old
            and (is_output(each.path, job, sink, unpublished) or is_output(each.path, *COMPACTED))
        ]
        if found:
            named = self.name.explained(who, lambda: set(table.inspect.all_data_files()["file_path"].to_pylist()))
            found = [path for path in found if f"{folder_of(table)}/{path}" not in named]
        for path in () if dry_run else found:
            place.remove(path)
        return found

    @property
    def _commits(self) -> BranchCommits:
        return BranchCommits(self.name, self.branch, merges=self.merges)


_known = KnownTables(TableName.load)


class IcebergRows(TableRows):
    """The output of a task: data files, or staged rows while the table does not exist or lacks new columns."""

    def __init__(self, sink: Iceberg, staging: Staging) -> None:
        self._sink, self._staging = sink, staging
        self._who = f"sink {staging.sink!r}"
        self._files: TableFiles | None = None
        self._table: Table | None = None
        self._rows: StagedBatches | None = None

    def columns_for(self, columns: pa.Schema, *, only_keys: bool = False) -> pa.Schema:
        check_types(columns, self._who)
        names = set(columns.names)
        if self._table is None or not names <= set(self._table.schema().column_names):
            self._load(names)
        if self._table is None:
            if self._sink.partition_by and not only_keys:
                check_partitions(columns.names, self._sink.partition_by, self._who)
            return created(columns)
        known = columns_of(self._table)
        return with_new(known, created(columns)) if self._sink.evolve else known

    def write(self, columns: pa.RecordBatch) -> None:
        if not columns.num_rows:
            return
        columns = typed(columns)
        fitting = fitted(columns, self.columns_for(columns.schema), self._who, "the table")
        if self._files is not None and set(fitting.schema.names) <= set(self._files.columns.names):
            self._files.write(fitting)
        else:
            self._stage(fitting)

    def prepare(self) -> bytes | None:
        files = None if self._files is None else self._files.prepare()
        rows = None if self._rows is None else self._rows.prepare()
        if files is None and rows is None:
            return None
        sink = self._staging.sink
        return msgspec.msgpack.encode(
            RowToken(
                None if files is None else read_token(files, TaskFiles, sink),
                None if rows is None else read_token(rows, StagedRef, sink),
            )
        )

    def _load(self, names: set[str]) -> None:
        table = _known.get(self._sink.name, self._staging, lambda table: names <= set(table.schema().column_names))
        if self._files is None and table is not None:
            self._table, self._files = table, TableFiles(table, self._staging)

    def _stage(self, columns: pa.RecordBatch) -> None:
        if self._rows is None:
            self._rows = StagedBatches(self._staging)
        self._rows.check_schema(columns.schema)
        self._rows.write(columns)


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


class TableEntries:
    """Describe the files of a publication for a manifest. Staged rows, and files that do not fit the table, are written again."""

    def __init__(self, table: Table, publication: Publication, branch: str) -> None:
        self.table, self.branch = table, branch
        self.columns = columns_of(table)
        self._publication = publication

    def of(self, tokens: Iterable[RowToken]) -> Iterator[IcebergFile]:
        """Yield the entry of each file."""
        again = self.begin()
        for token in tokens:
            if token.files is not None:
                fits = [has_fields(self.columns, schema) for schema in token.files.arrow_schemas()]
                for file in token.files.files:
                    if fits[file.columns] and token.files.partition_by == partitioning(self.table):
                        yield described(self.table, file, self._publication.sink)
                    else:
                        for batch in self.rows(file):
                            again.write(batch)
            if token.staged is not None:
                for batch in published_batches(self._publication, [msgspec.msgpack.encode(token.staged)]):
                    again.write(batch)
        yield from self.finished(again)

    def begin(self) -> TableFiles:
        """Begin files for rows that are already committed."""
        publication = self._publication
        attempt = f"{secrets.token_hex(6)}-0-0"
        staging = Staging(publication.store, publication.job, publication.sink, publication.sequence, attempt)
        return TableFiles(self.table, staging, rounds=True)

    def finished(self, files: TableFiles) -> list[IcebergFile]:
        """Close these files, and return their entries."""
        token = files.prepare()
        sink = self._publication.sink
        return (
            []
            if token is None
            else [described(self.table, file, sink) for file in read_token(token, TaskFiles, sink).files]
        )

    def rows(self, file: DataFile, names: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task's file: all columns, or these."""
        from pyarrow import parquet

        with place_of(self.table).read(file.path, file.size) as content:
            yield from parquet.ParquetFile(content).iter_batches(columns=None if names is None else list(names))
