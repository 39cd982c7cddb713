"""The mode "merge" of a delta sink: a table with one row for each key, changed by records that insert, update and delete."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from tidewheel._connectors.delta.columns import check_types
from tidewheel._connectors.delta.sink import Delta, Evolve
from tidewheel._connectors.files.table_columns import check_partitions
from tidewheel._connectors.last_changes import DELETE, deletions, last_of_each
from tidewheel._connectors.sink import Publication, SinkPartition, Staging
from tidewheel._connectors.staging import PublishedRows, StagedBatches, together, typed
from tidewheel._time.duration import Duration
from tidewheel._values.expressions import Expression
from tidewheel.errors import ConfigError, StepError

if TYPE_CHECKING:
    from deltalake import CommitProperties


class DeltaMerge(Delta):
    """Exactly once: the changes of a batch and its marker are one commit of the table.

    Tasks stage their changes. The driver reduces them to the last one of each key, and lets the Delta client merge them.
    """

    removes = True

    def __init__(
        self,
        url: str,
        partition_by: str | Sequence[str] = (),
        create: bool = True,
        evolve: Evolve | None = None,
        compact: Duration | None = None,
        *,
        key: str | Sequence[str] = (),
        delete: str | Expression | None = None,
    ) -> None:
        super().__init__(url, partition_by, create, evolve, compact)
        self.key = (key,) if isinstance(key, str) else tuple(key)
        self.delete = delete

    def keyed_by(self, column: str | None) -> DeltaMerge:
        if self.key:
            return self
        if column is None:
            raise ConfigError(
                'a delta sink in the mode "merge" needs a key, and the stream has none: put key_by before it, or name '
                "columns of the records with key="
            )
        keyed = copy.copy(self)
        keyed.key = (column,)
        return keyed

    def taking_changes(self, key: Sequence[str], deleted: str) -> DeltaMerge:
        changed = copy.copy(self)
        changed.key = self.key or tuple(key)
        changed.delete = deleted if self.delete is None else self.delete
        return changed

    def start(self, job: str) -> None:
        super().start(job)
        lacking = [name for name in self.key if self.schema is not None and name not in self.schema.names]
        if lacking:
            raise ConfigError(f"the Delta table at {self.location.url} has no column {', '.join(lacking)} for the key")

    def open(self, staging: Staging) -> SinkPartition:
        return _Changes(self, staging)

    def publish(self, publication: Publication) -> None:
        if not publication.tokens:
            return
        rows = PublishedRows(publication)

        def schemas() -> list[pa.Schema]:
            return [_without_flag(schema) for schema in rows.schemas()]

        with self.opened(publication, schemas) as table:

            def merge(properties: CommitProperties) -> None:
                self.take_columns(table, publication, schemas)
                (
                    table.merge(
                        self._last_changes(rows, publication.sink),
                        " AND ".join(f"t.{_quoted(name)} = s.{_quoted(name)}" for name in self.key),
                        source_alias="s",
                        target_alias="t",
                        streamed_exec=False,
                        commit_properties=properties,
                    )
                    .when_matched_delete(f"s.{DELETE}")
                    .when_matched_update_all(except_cols=[DELETE])
                    .when_not_matched_insert_all(f"NOT s.{DELETE}", except_cols=[DELETE])
                    .execute()
                )

            self.location.commit(table, publication, merge)

    def _last_changes(self, rows: PublishedRows, sink: str) -> pa.Table:
        """Return the last change of each key, in the types of the table."""
        last = last_of_each(together([pa.Table.from_batches([batch]) for batch in rows], sink), self.key, None)
        return pa.Table.from_batches(
            _flagged(self.fit_changes(batch.drop_columns([DELETE]), sink, rounds=True), batch.column(DELETE))
            for batch in last.to_batches()
        )

    def fit_changes(self, columns: pa.RecordBatch, sink: str, *, rounds: bool = False) -> pa.RecordBatch:
        """Return the columns in the types of the table. Nulls are allowed everywhere, since deletions have only a key."""
        lax = copy.copy(self)
        lax.schema = None if self.schema is None else pa.schema([field.with_nullable(True) for field in self.schema])
        return lax.fit(columns, f"sink {sink!r}", rounds=rounds)


class _Changes(StagedBatches):
    """The changes of a task, in order, with a column that says which are deletions."""

    def __init__(self, sink: DeltaMerge, staging: Staging) -> None:
        super().__init__(staging)
        self._sink = sink

    def write(self, columns: pa.RecordBatch) -> None:
        if not columns.num_rows:
            return
        sink = self._sink
        flags = deletions(columns, sink.delete, self._who)
        if isinstance(sink.delete, str):
            columns = columns.drop_columns([sink.delete])
        self._check_keys(columns)
        columns = typed(columns)
        check_types(columns.schema, self._who)
        if sink.partition_by:
            check_partitions(columns.schema.names, sink.partition_by, self._who)
        kept = columns.filter(pc.invert(flags))
        if kept.num_rows:
            sink.fit(kept, self._who)
        fitting = _flagged(sink.fit_changes(columns, self._staging.sink), flags)
        self.check_schema(fitting.schema)
        super().write(fitting)

    def _check_keys(self, columns: pa.RecordBatch) -> None:
        for name in self._sink.key:
            if name not in columns.schema.names:
                raise StepError(
                    f"{self._who}: the key is {', '.join(self._sink.key)}, but the records have "
                    f"{', '.join(columns.schema.names)}"
                )
            if columns.column(name).null_count:
                raise StepError(
                    f"{self._who}: the key column {name!r} is null in a record; a row without a key cannot be merged"
                )


def _flagged(columns: pa.RecordBatch, flags: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [*columns.columns, flags], schema=columns.schema.append(pa.field(DELETE, pa.bool_()))
    )


def _without_flag(schema: pa.Schema) -> pa.Schema:
    return schema.remove(schema.get_field_index(DELETE))


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
