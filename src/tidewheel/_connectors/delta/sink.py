"""delta: rows in a Delta Lake table, exactly once."""

from __future__ import annotations

import functools
import secrets
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from tidewheel._connectors.delta.columns import check_types, created
from tidewheel._connectors.delta.statistics import statistics_of
from tidewheel._connectors.delta.table import Action, TableLocation, client
from tidewheel._connectors.files.compaction import TARGET_BYTES, Compaction
from tidewheel._connectors.files.data_files import (
    DataFile,
    DataFilesPartition,
    TaskFiles,
    check_present,
    checked,
    is_output,
)
from tidewheel._connectors.files.known_tables import KnownTables
from tidewheel._connectors.files.merging import TableRows
from tidewheel._connectors.files.places import Place, explained, place_at
from tidewheel._connectors.files.table_columns import check_known, check_partitions, fitted, with_new
from tidewheel._connectors.files.table_sink import Evolve, Mode, TableOptions, TableSink, key_of
from tidewheel._connectors.sink import Publication, SinkPartition, Staging
from tidewheel._connectors.staging import StagedRef, common_schema, published_batches, read_token, typed
from tidewheel._core.urls import Url
from tidewheel._storage.file import FileStore
from tidewheel._time.duration import Duration
from tidewheel._values.expressions import Expression
from tidewheel.errors import ConfigError

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from deltalake.transaction import AddAction


def delta(
    url: str,
    *,
    mode: Mode = "append",
    key: str | Sequence[str] = (),
    delete: str | Expression | None = None,
    partition_by: str | Sequence[str] = (),
    create: bool = True,
    evolve: Evolve | None = None,
    compact: Duration | None = None,
) -> Delta:
    """Write records to a Delta Lake table. Exactly once: each commit of the job is one commit of the table.

    - `url`: a local folder, or an object store, `s3://bucket/table?endpoint=…&region=…`, with the credentials in the
      environment. The store must support conditional puts.
    - `mode`: `"append"` adds a row for each record. `"merge"` replaces the row of the record's key, or adds one; several
      records of a key in a commit count as the last one.
    - `key`: the columns of the key, for `mode="merge"`; by default the key of the stream.
    - `delete`: for `mode="merge"`, a boolean column or an expression of `pyarrow.compute`. Where it is true, the row of the
      key is deleted. The column is not stored.
    - `partition_by`: the columns by which a new table is partitioned.
    - `create`: create a missing table with the first batch, from the types of the records: declare them in the previous step
      (`returns=…`). With `create=False` a missing table is an error.
    - `evolve`: `"add"` adds columns of records that the table does not have. By default such records are an error.
    - `compact`: how often small files of the table are rewritten into larger ones, such as `"1 hour"`, in the background.

    Records that do not fit the table without loss fail their batch before the commit. Tasks write the data files into the
    table's folder, and the driver adds their names to the table; merges run in the driver. Readers see all records of a commit
    at once.
    """
    from tidewheel._connectors.delta.merge import DeltaMerge

    row_key = key_of("a delta sink", mode, evolve, key, delete)
    options = TableOptions(partition_by, create, evolve, compact)
    return Delta(url, options) if row_key is None else DeltaMerge(url, options, row_key)


class Delta(TableSink["DeltaTable"]):
    """Exactly once: a batch is one commit of the table, with the number of the batch as its transaction identifier."""

    def __init__(self, url: str, options: TableOptions) -> None:
        super().__init__(options)
        client()
        # Make a local path absolute: the driver may change its working directory later.
        self.location = TableLocation(FileStore.from_url(url).url if "://" not in url else url)
        self.location.resolved()
        self.schema: pa.Schema | None = None
        """The columns of the table when the job started, against which tasks check their records."""

    def describe(self) -> str:
        return f"Delta table at {self.location.url}"

    def place(self) -> str:
        return f"Delta table at {Url(self.location.url)}"

    def start(self, job: str) -> None:
        table = self.location.open("the delta sink")
        if table is None:
            if not self.create:
                raise ConfigError(
                    f"there is no Delta table at {self.location.url}; create it, or let the sink create it "
                    "(create=True)"
                )
            return
        partitions = tuple(table.metadata().partition_columns)
        if self.partition_by and partitions != self.partition_by:
            raise ConfigError(
                f"the Delta table at {self.location.url} is partitioned by {', '.join(partitions) or 'nothing'}, but "
                f"partition_by is {', '.join(self.partition_by)}; remove partition_by, or write to another table"
            )
        self.location.check_features(table, "the delta sink", ConfigError, merges=self.merges)
        self.partition_by = partitions
        self.schema = pa.schema(table.schema())

    def open(self, staging: Staging) -> SinkPartition:
        return DeltaRows(self, staging, self.partition_by)

    def publish(self, publication: Publication) -> None:
        if tokens := self.row_tokens(publication):
            self.change(publication, tokens, lambda actions: list(actions.of(tokens)))

    def row_tokens(self, publication: Publication) -> list[RowToken]:
        """Return the tokens of the rows of a publication."""
        return [read_row_token(token, publication.sink) for token in publication.tokens]

    def prepare_table(self, publication: Publication) -> pa.Schema | None:
        who = f"sink {publication.sink!r}"
        table = self._table or self.location.open(who)
        if tokens := self.row_tokens(publication):
            rows = _columns_of(tokens, publication)
            check_known(rows, None if table is None else pa.schema(table.schema()), who)
            if table is None:
                table = self.location.create(who, rows, self.partition_by)
            elif self.evolve:
                self.location.add_columns(table, who, rows)
            self.check_unchanged(rows, created(pa.schema(table.schema())), who)
        return None if table is None else pa.schema(table.schema())

    def change(
        self, publication: Publication, tokens: Sequence[RowToken], change: Callable[[TableActions], list[Action]]
    ) -> None:
        """Commit the result of `change`. The tokens belong to the rows of the publication."""
        written = [checked(token, publication) for token in tokens if isinstance(token, TaskFiles)]
        files = [file for token in written for file in token.files]
        # Within a run, files are published right after they were written.
        unsure = self._table is None

        who = f"sink {publication.sink!r}"
        # Keep the table open: it includes our commits. Commits of other writers are found when ours conflicts with
        # them.
        table, self._table = self._table or self.location.open(who), None
        if table is None:
            if not tokens:
                # A table that is not there has no rows to delete.
                return
            table = self.location.create(who, _columns_of(tokens, publication), self.partition_by)

        def actions() -> list[Action]:
            if unsure:
                check_present(files, place_at(self.location.url), publication.sink)
            if self.evolve and tokens:
                self.location.add_columns(table, who, _columns_of(tokens, publication))
            self.schema = pa.schema(table.schema())
            return change(TableActions(self, table, publication))

        self.location.commit(table, publication, actions, merges=self.merges)
        self._table = table
        self.compact_if_due()

    def compact(self, target_bytes: int = TARGET_BYTES) -> Compaction:
        return self.location.compact(target_bytes)

    def compacted_at(self) -> float | None:
        return self.location.compacted_at()

    def collect(self, job: str, sink: str, *, unpublished: Collection[int] = (), dry_run: bool = False) -> list[str]:
        table = self.location.open(f"sink {sink!r}")
        if table is None:
            return []
        # The client lists files that are older than the table's retention and that no version within it refers to.
        unnamed = self.location.explained(f"sink {sink!r}", functools.partial(table.vacuum, dry_run=True, full=True))
        found = [path for path in unnamed if is_output(path, job, sink, unpublished)]
        for path in () if dry_run else found:
            place_at(self.location.url).remove(path)
        return found


RowToken = TaskFiles | StagedRef
"""The files of a task, or rows that a task of an earlier version has staged."""


def read_row_token(token: bytes, sink: str) -> RowToken:
    """Decode the token of a task's rows: a map, or an array of an earlier version."""
    return read_token(token, StagedRef, sink) if is_staged(token) else read_token(token, TaskFiles, sink)


def _columns_of(tokens: Sequence[RowToken], publication: Publication) -> pa.Schema:
    """Return the columns of a table for the rows of tasks."""
    staged = [msgspec.msgpack.encode(token) for token in tokens if isinstance(token, StagedRef)]
    written = [schema for token in tokens if isinstance(token, TaskFiles) for schema in token.arrow_schemas()]
    schemas = [*written, *{batch.schema for batch in published_batches(publication, staged)}]
    return created(common_schema(schemas, publication.sink))


def is_staged(token: bytes) -> bool:
    """Return whether a token is that of a task of an earlier version."""
    return not token[:1] or token[0] & 0xF0 != 0x80


class DeltaRows(DataFilesPartition, TableRows):
    """The data files of a task, with rows in the types of the table."""

    def __init__(self, sink: Delta, staging: Staging, partition_by: Sequence[str], *, rounds: bool = False) -> None:
        super().__init__(staging, place_at(sink.location.url), "", partition_by)
        self._sink, self._rounds = sink, rounds
        self._who = f"sink {staging.sink!r}"
        self._common: pa.Schema | None = None
        self._table, self._looked = sink.schema, False

    def columns_for(self, columns: pa.Schema, *, only_keys: bool = False) -> pa.Schema:
        check_types(columns, self._partition_by, self._who)
        names = set(columns.names)
        if not self._looked and (self._table is None or not names <= set(self._table.names)):
            # Since the start, the run may have created the table, or added columns.
            found = _known.get(self._sink.location, self.staging, lambda table: names <= set(table.names))
            self._table, self._looked = found or self._table, True
        if self._table is None:
            if self._partition_by and not only_keys:
                check_partitions(columns.names, self._partition_by, self._who)
            return created(columns)
        return with_new(self._table, created(columns)) if self._sink.evolve else self._table

    def write(self, columns: pa.RecordBatch) -> None:
        if not columns.num_rows:
            return
        columns = typed(columns)
        fitting = fitted(columns, self.columns_for(columns.schema), self._who, "the table", rounds=self._rounds)
        known = [] if self._common is None else [self._common]
        check_known(fitting.schema, self._table, self._who, nulls=True)
        self._common = common_schema([*known, fitting.schema], self.staging.sink)
        self.add(fitting)

    def statistics(self, metadata: object) -> bytes:
        return statistics_of(metadata)


def _columns(location: TableLocation, who: str) -> pa.Schema | None:
    table = location.open(who)
    return None if table is None else pa.schema(table.schema())


_known = KnownTables(_columns)


class TableActions:
    """Describe the files of a publication for the log of the table. Files that do not fit the table are written again.

    That is the case for the first batch of a new table, if tasks have inferred different types, and for a table whose types
    have changed since the tasks wrote.
    """

    def __init__(self, sink: Delta, table: DeltaTable, publication: Publication) -> None:
        self.table = table
        self.schema = pa.schema(table.schema())
        self.place = place_at(sink.location.url)
        self._sink, self._publication = sink, publication
        self._partition_by = tuple(table.metadata().partition_columns)

    def of(self, tokens: Iterable[RowToken]) -> Iterator[AddAction]:
        """Yield the action that adds each file."""
        for token in tokens:
            if isinstance(token, StagedRef):
                yield from self.written(published_batches(self._publication, [msgspec.msgpack.encode(token)]))
                continue
            fits = [self._fits(schema) for schema in token.arrow_schemas()]
            for file in token.files:
                if fits[file.columns] and token.partition_by == self._partition_by:
                    yield self._action(file)
                else:
                    yield from self.written(self.rows(token, file))

    def written(self, rows: Iterable[pa.RecordBatch]) -> list[AddAction]:
        """Write rows, and return the actions that add their files."""
        partition = self.begin()
        for batch in rows:
            partition.write(batch)
        return self.finished(partition)

    def begin(self) -> DeltaRows:
        """Begin files for rows that are already committed."""
        publication = self._publication
        attempt = f"{secrets.token_hex(6)}-0-0"
        staging = Staging(publication.store, publication.job, publication.sink, publication.sequence, attempt)
        return DeltaRows(self._sink, staging, self._partition_by, rounds=True)

    def finished(self, partition: DeltaRows) -> list[AddAction]:
        """Close these files, and return the actions that add them."""
        token = partition.prepare()
        written = () if token is None else read_token(token, TaskFiles, self._publication.sink).files
        return [self._action(file) for file in written]

    def rows(self, token: TaskFiles, file: DataFile, names: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task's file: all columns, or these."""
        schema = token.arrow_schemas()[file.columns]
        partition = {
            name: pa.scalar(text, pa.string()).cast(schema.field(name).type)
            for name, text in zip(token.partition_by, file.partition, strict=True)
        }
        return read_rows(self.place, file.path, file.size, partition, names)

    def _fits(self, columns: pa.Schema) -> bool:
        known = {field.name: field for field in self.schema}
        return all(name in known and known[name].type == columns.field(name).type for name in columns.names) and all(
            field.nullable or field.name in columns.names for field in self.schema
        )

    def _action(self, file: DataFile) -> AddAction:
        from deltalake.transaction import AddAction

        values = dict(zip(self._partition_by, file.partition, strict=True))
        # The time is that of the commit: the clock of the store is not known here, and the log needs one.
        return AddAction(file.path, file.size, values, time.time_ns() // 10**6, True, file.statistics.decode())


def read_rows(
    place: Place, path: str, size: int, partition: Mapping[str, pa.Scalar], names: Sequence[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a data file and its partition: all columns, or those of these columns that it has."""
    from pyarrow import parquet

    with explained("read", place.at(path)), place.read(path, size) as content:
        file = parquet.ParquetFile(content)
        stored = [
            name for name in file.schema_arrow.names if name not in partition and (names is None or name in names)
        ]
        for batch in file.iter_batches(columns=stored):
            columns = {name: batch.column(name) for name in stored}
            for name, value in partition.items():
                if names is None or name in names:
                    columns[name] = pa.repeat(value, batch.num_rows)
            yield pa.RecordBatch.from_pydict(columns)
