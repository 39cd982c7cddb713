"""The mode "merge" of a delta sink: a table with one row for each key, changed by records that insert, update and delete."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple
from urllib.parse import quote, unquote

import msgspec
import pyarrow as pa

from tidewheel._connectors.delta.sink import (
    Delta,
    DeltaRows,
    RowToken,
    TableActions,
    is_staged,
    read_row_token,
    read_rows,
)
from tidewheel._connectors.delta.table import Action
from tidewheel._connectors.files.data_files import DataFile, TaskFiles
from tidewheel._connectors.files.merging import ChangesPartition, ChangesToken, KeySet, changes_of, without
from tidewheel._connectors.files.table_columns import fitted
from tidewheel._connectors.files.table_sink import TableOptions
from tidewheel._connectors.keyed_rows import DELETE, MergedTable, RowKey
from tidewheel._connectors.sink import Publication, SinkPartition, Staging
from tidewheel._connectors.staging import published_batches, read_token
from tidewheel.errors import ConfigError, StepError

_PLAIN = "/!$&'()+,:;=@"
"""The characters that the Delta client leaves as they are in the paths of its log, besides letters, digits and `_.-~`."""


class DeltaMerge(MergedTable, Delta):
    """Exactly once: the changes of a batch and its marker are one commit of the table."""

    merges = True

    def __init__(self, url: str, options: TableOptions, key: RowKey) -> None:
        super().__init__(url, options)
        self._key = key

    def start(self, job: str) -> None:
        super().start(job)
        lacking = [name for name in self._key.columns if self.schema is not None and name not in self.schema.names]
        if lacking:
            raise ConfigError(f"the Delta table at {self.location.url} has no column {', '.join(lacking)} for the key")

    def open(self, staging: Staging) -> SinkPartition:
        return ChangesPartition(staging, self._key, DeltaRows(self, staging, self.partition_by))

    def publish(self, publication: Publication) -> None:
        if not publication.tokens:
            return
        keys, tasks = changes_of(self._changes(publication), publication)
        rows = [(read_row_token(task.rows, publication.sink), task.replaced) for task in tasks if task.rows is not None]
        self.change(
            publication,
            [token for token, _ in rows],
            lambda actions: _Merge(actions, keys, f"sink {publication.sink!r}").actions(rows),
        )

    def row_tokens(self, publication: Publication) -> list[RowToken]:
        return [
            read_row_token(each.rows, publication.sink) for each in self._changes(publication) if each.rows is not None
        ]

    def changed_keys(self, publication: Publication) -> KeySet:
        return changes_of(self._changes(publication), publication)[0]

    def _changes(self, publication: Publication) -> list[ChangesToken]:
        return [self._token(each, publication) for each in publication.tokens]

    def _token(self, token: bytes, publication: Publication) -> ChangesToken:
        if is_staged(token):
            # A task of an earlier version staged its changes, with a column that says which of them are deletions.
            staging = Staging(
                publication.store,
                publication.job,
                publication.sink,
                publication.sequence,
                f"{secrets.token_hex(6)}-0-0",
            )
            rows = DeltaRows(self, staging, self.partition_by, rounds=True)
            changes = ChangesPartition(staging, RowKey(self._key.columns, DELETE), rows)
            for batch in published_batches(publication, [token]):
                changes.write(batch)
            token = changes.prepare() or b""
        return read_token(token, ChangesToken, publication.sink)


class _OldFile(NamedTuple):
    """A file of the table."""

    path: str
    size: int
    partition: dict[str, pa.Scalar]


class _Merge:
    """The changes of a publication to the files of a table."""

    def __init__(self, actions: TableActions, keys: KeySet, who: str) -> None:
        self._actions, self._who = actions, who
        self._keys = keys.of(actions.schema, who)
        self._again = actions.begin()

    def actions(self, rows: Sequence[tuple[RowToken, KeySet | None]]) -> list[Action]:
        """Return the actions for the rows of tasks, each with the keys that later tasks changed too."""
        from deltalake.transaction import RemoveAction

        found: list[Action] = []
        for token, replaced in rows:
            if isinstance(token, TaskFiles) and replaced is not None:
                token = self._rest(token, replaced)
            found += self._actions.of([token])
        now = time.time_ns() // 10**6
        changed = without(self._old_files(), self._keys, self._read, self._again.write)
        found += [RemoveAction(file.path, True, now, file.size) for file in changed]
        return [*found, *self._actions.finished(self._again)]

    def _rest(self, token: TaskFiles, replaced: KeySet) -> TaskFiles:
        """Return the files of a task without those that have rows of these keys; write the other rows of these again."""

        def read(file: DataFile, names: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
            return (self._fitted(batch, names) for batch in self._actions.rows(token, file, names))

        changed = without(token.files, replaced.of(self._actions.schema, self._who), read, self._again.write)
        return msgspec.structs.replace(token, files=tuple(file for file in token.files if file not in changed))

    def _old_files(self) -> Iterator[_OldFile]:
        """Yield the files of the table that may have rows of the keys, by their statistics."""
        files = pa.table(self._actions.table.get_add_actions(flatten=True))
        names = set(files.schema.names)
        for place in range(files.num_rows):

            def bounds(name: str, place: int = place) -> tuple[object, object] | None:
                found = [
                    files[column][place].as_py()
                    for column in (f"partition.{name}", f"partition.{name}", f"min.{name}", f"max.{name}")
                    if column in names
                ]
                return (found[0], found[1]) if len(found) > 1 else None

            if self._keys.may_be_in(bounds):
                partition = {
                    name.removeprefix("partition."): files[name][place]
                    for name in names
                    if name.startswith("partition.")
                }
                yield _OldFile(self._path(files["path"][place].as_py()), files["size_bytes"][place].as_py(), partition)

    def _path(self, logged: str) -> str:
        """Return the path of a file by the path in the log, which the client will write there again."""
        path = unquote(logged)
        if "://" in path or quote(path, safe=_PLAIN) != logged:
            raise StepError(
                f"{self._who}: the log of the Delta table names its file {logged!r} in a way that the sink cannot name it: it "
                "belongs to another table, or another writer escapes paths differently. Rewrite the file, for example "
                "with OPTIMIZE, and start again"
            )
        return path

    def _read(self, file: _OldFile, names: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        batches = read_rows(self._actions.place, file.path, file.size, file.partition, names)
        return (self._fitted(batch, names) for batch in batches)

    def _fitted(self, batch: pa.RecordBatch, names: Sequence[str] | None) -> pa.RecordBatch:
        schema = self._actions.schema
        if names is not None:
            schema = pa.schema([schema.field(name) for name in names])
        return fitted(batch, schema, self._who, "the table", rounds=True)
