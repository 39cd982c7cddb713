"""One row per key in a table of data files: tasks write the new rows, and the driver removes the rows that these replace.

A task reduces its changes to the last one of each key. It writes the rows that stay to data files, like rows that are
appended, and stages the changed keys. The driver looks for these keys in the key columns of the older files. A file that
has some of them is written again without them; a file whose rows all have such keys is dropped. One commit of the table
removes the old files and adds the new ones. The driver holds the keys of a commit in memory, and not its rows.
"""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidewheel._connectors.files.sorting import HeldBatches
from tidewheel._connectors.files.table_columns import fitted
from tidewheel._connectors.keyed_rows import RowKey, check_keys, deletions, last_positions, whole_numbers
from tidewheel._connectors.sink import Publication, SinkPartition, Staging
from tidewheel._connectors.staging import (
    StagedBatches,
    StagedRef,
    published_batches,
    read_token,
    together,
    typed,
)
from tidewheel.errors import StepError

File = TypeVar("File")

_READERS = 4
_EXACT = 10_000
"""Up to so many keys, files are skipped by each key; with more, by the lowest and the highest one."""


class TableRows(SinkPartition):
    """Rows of a task for a table."""

    @abstractmethod
    def columns_for(self, columns: pa.Schema, *, only_keys: bool = False) -> pa.Schema:
        """Return the columns of the table for records with these columns; raise an error if they cannot be in it.

        With `only_keys`, the records are not for the table, but name rows of it.
        """


class ChangesToken(msgspec.Struct, frozen=True):
    """The token of a task: its changed keys, and the token of its rows."""

    keys: StagedRef
    rows: bytes | None = None


class ChangesPartition(SinkPartition):
    """The changes of a task: the last one of each key."""

    def __init__(self, staging: Staging, key: RowKey, rows: TableRows) -> None:
        self._staging, self._key, self._rows = staging, key, rows
        self._who = f"sink {staging.sink!r}"
        self._keys: list[pa.Table] = []
        self._deletes: list[pa.Array] = []
        self._kept = HeldBatches()

    def write(self, columns: pa.RecordBatch) -> None:
        if not columns.num_rows:
            return
        flags = deletions(columns, self._key.delete, self._who)
        if isinstance(self._key.delete, str):
            columns = columns.drop_columns([self._key.delete])
        check_keys(columns, self._key.columns, self._who)
        kept = typed(_where(columns, ~flags.to_numpy(zero_copy_only=False)))
        if kept.num_rows:
            kept = fitted(kept, self._rows.columns_for(kept.schema), self._who, "the table")
        keys = columns.select(list(self._key.columns))
        table = self._rows.columns_for(keys.schema, only_keys=True)
        self._keys.append(_keys_of(pa.Table.from_batches([keys]), table, self._who))
        self._deletes.append(flags)
        self._kept.append(kept)

    def prepare(self) -> bytes | None:
        if not self._keys:
            return None
        keys = together(self._keys, self._staging.sink)
        last = last_positions(keys)
        stays = np.zeros(keys.num_rows, bool)
        stays[last.to_numpy()] = True
        # The rows that are held are those that do not delete, in order.
        stays = stays[~pa.chunked_array(self._deletes).to_numpy()]
        at = 0
        for batch in self._kept:
            self._rows.write(_where(batch, stays[at : at + batch.num_rows]))
            at += batch.num_rows
        staged = StagedBatches(self._staging, "keys-arrow")
        for batch in (keys.take(last) if len(last) < keys.num_rows else keys).to_batches():
            staged.write(batch)
        token = staged.prepare()
        assert token is not None
        return msgspec.msgpack.encode(ChangesToken(read_token(token, StagedRef, self._who), self._rows.prepare()))


def _where(batch: pa.RecordBatch, wanted: np.ndarray[Any, Any]) -> pa.RecordBatch:
    return batch if wanted.all() else batch.filter(pa.array(wanted))


class KeySet:
    """Keys of rows, to look for in files."""

    def __init__(self, keys: pa.Table) -> None:
        self.columns = tuple(keys.schema.names)
        self._keys = keys

    def __len__(self) -> int:
        return int(self._keys.num_rows)

    def of(self, table: pa.Schema, who: str) -> KeySet:
        """Return the keys in the types that a table has."""
        return KeySet(_keys_of(self._keys, table, who, rounds=True))

    def rows(self, columns: pa.Table) -> np.ndarray[Any, Any]:
        """Return for each row of key columns, in the types of the keys, whether its key is in the set."""
        numbers = whole_numbers(columns)
        if numbers is not None and self._numbers is not None:
            return np.isin(numbers, self._numbers)
        if len(self.columns) == 1:
            found: np.ndarray[Any, Any] = pc.is_in(columns.column(0), value_set=self._values).to_numpy()
            return found
        position = "tidewheel position"
        numbered = columns.append_column(position, pa.array(np.arange(columns.num_rows)))
        joined = numbered.join(self._keys, keys=list(self.columns), join_type="left semi")
        found = np.zeros(columns.num_rows, bool)
        found[joined[position].to_numpy()] = True
        return found

    def may_be_in(self, bounds: Callable[[str], tuple[Any, Any] | None]) -> bool:
        """Return False if a file cannot have one of the keys. `bounds` returns the least and the highest value of a column."""
        return all(self._may_hold(name, bounds(name)) for name in self.columns)

    @cached_property
    def _values(self) -> pa.Array:
        return self._keys.column(0).combine_chunks()

    @cached_property
    def _numbers(self) -> np.ndarray[Any, Any] | None:
        return whole_numbers(self._keys)

    @cached_property
    def _sorted(self) -> dict[str, list[Any]]:
        """The distinct values of each column whose bounds can be trusted, or the least and the highest one."""
        found = {}
        for name in self.columns:
            column = self._keys[name]
            if pa.types.is_integer(column.type) or pa.types.is_string(column.type):
                limits = pc.min_max(column).as_py()
                exact = len(self) <= _EXACT
                found[name] = sorted(set(column.to_pylist())) if exact else [limits["min"], limits["max"]]
        return found

    def _may_hold(self, name: str, bounds: tuple[Any, Any] | None) -> bool:
        values = self._sorted.get(name)
        if not values or bounds is None or bounds[0] is None or bounds[1] is None:
            return True
        if len(self) > _EXACT:
            return bool(values[0] <= bounds[1] and bounds[0] <= values[1])
        place = bisect_left(values, bounds[0])
        return place < len(values) and bool(values[place] <= bounds[1])


class TaskChanges(NamedTuple):
    """The changes of one task, as the driver reads them: the token of its rows, and the keys that later tasks changed too."""

    rows: bytes | None
    replaced: KeySet | None


def changes_of(tokens: Sequence[ChangesToken], publication: Publication) -> tuple[KeySet, list[TaskChanges]]:
    """Return all changed keys of a publication, and the changes of each task. Of changes of one key the last task's counts."""
    keys = [_keys(token, publication) for token in tokens]
    every = together(keys, publication.sink)
    last = last_positions(every)
    if len(last) == every.num_rows:
        return KeySet(every), [TaskChanges(token.rows, None) for token in tokens]
    counts = np.zeros(every.num_rows, bool)
    counts[last.to_numpy()] = True
    tasks, at = [], 0
    for token, own in zip(tokens, keys, strict=True):
        replaced = every.slice(at, own.num_rows).filter(pa.array(~counts[at : at + own.num_rows]))
        tasks.append(TaskChanges(token.rows, KeySet(replaced) if replaced.num_rows else None))
        at += own.num_rows
    return KeySet(every.filter(pa.array(counts))), tasks


def _keys_of(keys: pa.Table, table: pa.Schema, who: str, *, rounds: bool = False) -> pa.Table:
    """Return keys in the types of a table."""
    names = keys.schema.names
    lacking = [name for name in names if name not in table.names]
    if lacking:
        raise StepError(
            f"{who}: the table has no column {', '.join(lacking)} for the key; it has {', '.join(table.names)}"
        )
    schema = pa.schema([table.field(name) for name in names])
    return pa.Table.from_batches(
        [fitted(each, schema, who, "the table", rounds=rounds) for each in keys.to_batches()], schema
    )


def _keys(token: ChangesToken, publication: Publication) -> pa.Table:
    return pa.Table.from_batches(list(published_batches(publication, [msgspec.msgpack.encode(token.keys)])))


def without(
    files: Iterable[File],
    keys: KeySet,
    read: Callable[[File, tuple[str, ...] | None], Iterator[pa.RecordBatch]],
    write: Callable[[pa.RecordBatch], None],
) -> list[File]:
    """Return the files that have rows with these keys; write all their other rows.

    `read` yields the rows of a file, always in the same order, with all columns or with the given ones, in the types of the
    table.
    """

    def found(file: File) -> np.ndarray[Any, Any]:
        batches = list(read(file, keys.columns))
        return keys.rows(pa.Table.from_batches(batches)) if batches else np.zeros(0, bool)

    changed = []
    with ThreadPoolExecutor(_READERS, thread_name_prefix="tidewheel-merge") as readers:
        files = list(files)
        for file, rows in zip(files, readers.map(found, files), strict=True):
            if not rows.any():
                continue
            changed.append(file)
            if rows.all():
                continue
            at = 0
            for batch in read(file, None):
                rest = _where(batch, ~rows[at : at + batch.num_rows])
                at += batch.num_rows
                if rest.num_rows:
                    write(rest)
    return changed
