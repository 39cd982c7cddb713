"""Sinks with one row per key: the key, the records that delete a row, and the last change of each key."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pyarrow as pa
from pyarrow import compute

from tidewheel._connectors.sink import Sink
from tidewheel._values.expressions import Expression, evaluated
from tidewheel._values.type_variables import Written
from tidewheel.errors import ConfigError, StepError

DELETE = "__tidewheel_delete"
"""The column of staged changes that says whether the row of the key is deleted."""


@dataclass(frozen=True)
class RowKey:
    """The columns of the key, and the condition that deletes a row: a boolean column, or an expression."""

    columns: tuple[str, ...] = ()
    delete: str | Expression | None = None

    @staticmethod
    def of(key: str | Sequence[str] | None, delete: str | Expression | None = None) -> RowKey:
        """Take the arguments of a user."""
        return RowKey((key,) if isinstance(key, str) else tuple(key or ()), delete)


class KeyedRows(Sink[Written]):
    """A sink that may keep one row per key. The stream provides the key and the deletes if the user names none."""

    @property
    @abstractmethod
    def row_key(self) -> RowKey | None:
        """The key of the rows, without columns if the user has named none. None if this sink adds a row for each record."""

    @abstractmethod
    def with_row_key(self, key: RowKey) -> Self:
        """Return this sink with another key."""

    def keyed_by(self, column: str | None) -> Self:
        if self.row_key is None or self.row_key.columns:
            return self
        if column is None:
            raise ConfigError(
                f"{self.describe()} has one row for each key, and the stream has no key: put key_by before the sink, or name "
                "columns of the records with key="
            )
        return self.with_row_key(RowKey((column,), self.row_key.delete))

    def taking_changes(self, key: Sequence[str], deleted: str) -> Self:
        """Return this sink for a stream of `upserts`: rows with these key columns, and a boolean column of deletes."""
        own = self.row_key
        if own is None:
            return self
        return self.with_row_key(RowKey(own.columns or tuple(key), deleted if own.delete is None else own.delete))


class MergedTable(KeyedRows):
    """A sink to a table whose rows are always replaced by key."""

    _key: RowKey

    @property
    def row_key(self) -> RowKey:
        return self._key

    def with_row_key(self, key: RowKey) -> Self:
        changed = copy.copy(self)
        changed._key = key
        return changed


def deletions(columns: pa.RecordBatch, delete: str | Expression | None, who: str) -> pa.Array:
    """Return which records delete the row of their key, by a boolean column or an expression."""
    if delete is None:
        return pa.array(np.zeros(columns.num_rows, bool))
    try:
        flags = columns.column(delete) if isinstance(delete, str) else evaluated(columns, [delete])[0]
    except (KeyError, pa.ArrowException) as error:
        raise StepError(f"{who}: delete is {delete}, but the records have {', '.join(columns.schema.names)}") from error
    if pa.types.is_null(flags.type):
        flags = flags.cast(pa.bool_())
    if not pa.types.is_boolean(flags.type):
        raise StepError(f"{who}: delete is {delete}, which has the type {flags.type} and is not a boolean")
    return compute.fill_null(flags, False)


def check_keys(columns: pa.RecordBatch, key: Sequence[str], who: str) -> None:
    """Raise an error for records that lack a column of the key, or have a null in it."""
    for name in key:
        if name not in columns.schema.names:
            raise StepError(
                f"{who}: the key is {', '.join(key)}, but the records have {', '.join(columns.schema.names)}"
            )
        if columns.column(name).null_count:
            raise StepError(f"{who}: the key column {name!r} is null in a record; a row without a key cannot be merged")


def last_of_each(table: pa.Table, key: Sequence[str], by: str | None) -> pa.Table:
    """Return one row per key: the last one, or the last of those that have the highest value in the column `by`."""
    if by is not None:
        # The sort is stable; a row without a value never beats one with it.
        order = pa.table({"valued": compute.is_valid(table[by]), "by": table[by]})
        table = table.take(compute.sort_indices(order, [("valued", "ascending"), ("by", "ascending")]))
    last = last_positions(table.select(list(key)))
    return table.take(last) if len(last) < table.num_rows else table


def last_positions(keys: pa.Table) -> pa.Array:
    """Return the positions of the last row of each key, in order."""
    numbers = whole_numbers(keys)
    if numbers is not None:
        in_order = np.sort(numbers)
        if not (in_order[1:] == in_order[:-1]).any():
            return pa.array(np.arange(keys.num_rows))
    position = "tidewheel position"
    numbered = keys.append_column(position, pa.array(np.arange(keys.num_rows)))
    last = numbered.group_by(keys.schema.names).aggregate([(position, "max")])[f"{position}_max"]
    return last.combine_chunks().sort()


def whole_numbers(keys: pa.Table) -> np.ndarray[Any, Any] | None:
    """Return keys of one integer column, which numpy sorts and finds ten times as fast as Arrow; None for other keys."""
    column = keys.column(0)
    if keys.num_columns > 1 or not pa.types.is_integer(column.type) or column.null_count:
        return None
    found: np.ndarray[Any, Any] = column.to_numpy()
    return found
