"""The mode "merge" of an iceberg sink: a table with one row for each key, changed by records that insert, update and delete."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from tidewheel._connectors.files.data_files import DataFile
from tidewheel._connectors.files.merging import ChangesPartition, ChangesToken, KeySet, changes_of, without
from tidewheel._connectors.files.table_columns import fitted
from tidewheel._connectors.files.table_sink import TableOptions
from tidewheel._connectors.iceberg.catalog import TableName
from tidewheel._connectors.iceberg.commits import FileChange
from tidewheel._connectors.iceberg.sink import Iceberg, IcebergRows, RowToken, TableEntries
from tidewheel._connectors.keyed_rows import MergedTable, RowKey
from tidewheel._connectors.sink import Publication, SinkPartition, Staging
from tidewheel._connectors.staging import published_batches, read_token
from tidewheel.errors import ConfigError

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile as IcebergFile
    from pyiceberg.table import FileScanTask


class IcebergMerge(MergedTable, Iceberg):
    """Exactly once: the changes of a batch are one snapshot of the table, with job, sink and sequence in its summary."""

    merges = True

    def __init__(self, name: TableName, branch: str, options: TableOptions, key: RowKey) -> None:
        super().__init__(name, branch, options)
        self._key = key

    def start(self, job: str) -> None:
        super().start(job)
        table = self.name.load("the iceberg sink")
        names = [] if table is None else table.schema().column_names
        lacking = [name for name in self._key.columns if table is not None and name not in names]
        if lacking:
            raise ConfigError(f"the Iceberg table {self.name} has no column {', '.join(lacking)} for the key")

    def open(self, staging: Staging) -> SinkPartition:
        return ChangesPartition(staging, self._key, IcebergRows(self, staging))

    def row_tokens(self, publication: Publication) -> list[RowToken]:
        return [
            read_token(each.rows, RowToken, publication.sink) for each in _changes(publication) if each.rows is not None
        ]

    def changed_keys(self, publication: Publication) -> KeySet:
        return changes_of(_changes(publication), publication)[0]

    def publish(self, publication: Publication) -> None:
        if not publication.tokens:
            return
        sink = publication.sink
        keys, tasks = changes_of(_changes(publication), publication)
        rows = [(read_token(task.rows, RowToken, sink), task.replaced) for task in tasks if task.rows is not None]
        self.change(
            publication,
            [token for token, _ in rows],
            lambda entries: _Merge(entries, publication, keys).change(rows),
        )


def _changes(publication: Publication) -> list[ChangesToken]:
    return [read_token(token, ChangesToken, publication.sink) for token in publication.tokens]


class _Merge:
    """The changes of a publication to the files of a table."""

    def __init__(self, entries: TableEntries, publication: Publication, keys: KeySet) -> None:
        self._entries, self._publication = entries, publication
        self._who = f"sink {publication.sink!r}"
        self._keys = keys.of(entries.columns, self._who)
        self._again = entries.begin()

    def change(self, rows: Sequence[tuple[RowToken, KeySet | None]]) -> FileChange:
        """Return the change for the rows of tasks, each with the keys that later tasks changed too."""
        tokens = [token if replaced is None else self._rest(token, replaced) for token, replaced in rows]
        new = list(self._entries.of(tokens))
        changed = without(self._old_files(), self._keys, self._read, self._again.write)
        return FileChange([*new, *self._entries.finished(self._again)], [task.file for task in changed])

    def _rest(self, token: RowToken, replaced: KeySet) -> RowToken:
        """Return the files of a task without those that have rows of these keys; write the other rows of these again."""
        replaced = replaced.of(self._entries.columns, self._who)
        files, written = token.files, token.files.files if token.files is not None else ()
        staged = [] if token.staged is None else [token.staged]

        def read(file: DataFile | None, names: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
            if file is None:
                raw = published_batches(self._publication, [msgspec.msgpack.encode(each) for each in staged])
            else:
                raw = self._entries.rows(file, names)
            return (self._fitted(batch, names) for batch in raw)

        changed = without([*written, *([None] if staged else [])], replaced, read, self._again.write)
        kept = tuple(file for file in written if file not in changed)
        return RowToken(
            None if files is None else msgspec.structs.replace(files, files=kept),
            None if None in changed else token.staged,
        )

    def _old_files(self) -> Iterator[FileScanTask]:
        """Yield the files of the branch that may have rows of the keys, by their statistics."""
        from pyiceberg.conversions import from_bytes
        from pyiceberg.types import PrimitiveType

        table = self._entries.table
        head = table.metadata.snapshot_by_name(self._entries.branch)
        fields = {name: table.schema().find_field(name) for name in self._keys.columns}
        for task in [] if head is None else table.scan(snapshot_id=head.snapshot_id).plan_files():

            def bounds(name: str, file: IcebergFile = task.file) -> tuple[Any, Any] | None:
                field = fields[name]
                lower, upper = (
                    (file.lower_bounds or {}).get(field.field_id),
                    (file.upper_bounds or {}).get(field.field_id),
                )
                if lower is None or upper is None or not isinstance(field.field_type, PrimitiveType):
                    return None
                return from_bytes(field.field_type, lower), from_bytes(field.field_type, upper)

            if self._keys.may_be_in(bounds):
                yield task

    def _read(self, task: FileScanTask, names: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        from pyiceberg.expressions import AlwaysTrue
        from pyiceberg.io.pyarrow import ArrowScan

        table = self._entries.table
        schema = table.schema() if names is None else table.schema().select(*names)
        for batch in ArrowScan(table.metadata, table.io, schema, AlwaysTrue()).to_record_batches([task]):
            yield self._fitted(batch, names)

    def _fitted(self, batch: pa.RecordBatch, names: Sequence[str] | None) -> pa.RecordBatch:
        columns = self._entries.columns
        if names is not None:
            columns, batch = pa.schema([columns.field(name) for name in names]), batch.select(list(names))
        return fitted(batch, columns, self._who, "the table", rounds=True)
