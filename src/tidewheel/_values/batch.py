"""Batch: messages of one stream, in order, as columns or as Python values, whichever the next operator needs."""

from __future__ import annotations

import typing
from typing import Any

import pyarrow as pa

from tidewheel._values.exact import plain_array
from tidewheel._values.shape import Shape, to_columns


class Batch:
    """Messages in order: value, and where the stream is keyed or timed, key and timestamp of each.

    Columns and Python values are two forms of the same messages. A missing form is made when it is asked for,
    so an operator that works on columns never pays for Python objects.
    """

    __slots__ = ("_columns", "_keys", "_made", "_values", "key_column", "shape", "times")

    def __init__(
        self,
        shape: Shape,
        *,
        columns: pa.RecordBatch | None = None,
        values: list[Any] | None = None,
        keys: list[Any] | None = None,
        key_column: pa.Array | None = None,
        times: list[int] | None = None,
    ) -> None:
        """Take at least one of columns and values; keys as a list or as an Arrow column."""
        self.shape = shape
        self._columns = columns
        self._made: pa.RecordBatch | None = None
        self._values = values
        self._keys = keys
        self.key_column = key_column
        self.times = times

    def __len__(self) -> int:
        if self._values is not None:
            return len(self._values)
        return int(typing.cast(pa.RecordBatch, self._columns).num_rows)

    @property
    def values(self) -> list[Any]:
        """The values as Python objects of the stream's shape."""
        if self._values is None:
            self._values = self.shape.values(self._columns)
        return self._values

    @property
    def columns(self) -> pa.RecordBatch:
        """The values as columns."""
        if self._columns is not None:
            return self._columns
        if self._made is None:
            self._made = to_columns(typing.cast(list[Any], self._values), self.shape)
        return self._made

    @property
    def has_columns(self) -> bool:
        """Whether the messages came as columns.

        Columns that were made of values do not count: they may not give the same values back.
        """
        return self._columns is not None

    @property
    def is_columns_only(self) -> bool:
        """Whether the messages, and their keys if they have any, are columns so far, and have no timestamps."""
        has_other_parts = self._values is not None or self._keys is not None or self.times is not None
        return self._columns is not None and not has_other_parts

    @property
    def keyed(self) -> bool:
        """Whether the messages have keys."""
        return self._keys is not None or self.key_column is not None

    @property
    def keys(self) -> list[Any]:
        """The keys as Python objects."""
        if self._keys is None:
            self._keys = typing.cast(pa.Array, self.key_column).to_pylist()
        return self._keys

    @property
    def keys_made(self) -> list[Any] | None:
        """The keys as Python objects where they are there already, else None: `key_column` has them."""
        return self._keys

    def key_array(self) -> pa.Array | None:
        """Return the keys as a column, or None where they are not all of one plain type."""
        if self.key_column is None and self._keys is not None:
            self.key_column = plain_array(self._keys)
        return self.key_column

    @staticmethod
    def joined(batches: list[Batch]) -> Batch:
        """Return the messages of several batches of one stream as one batch."""
        if len(batches) == 1:
            return batches[0]
        # Columns that nobody declared may change their type from batch to batch; values always fit together.
        columnar = _alike([batch._columns.schema if batch._columns is not None else None for batch in batches])
        by_column = _alike([batch.key_column.type if batch.key_column is not None else None for batch in batches])
        return Batch(
            batches[0].shape,
            columns=pa.concat_batches([batch.columns for batch in batches]) if columnar else None,
            values=None if columnar else [value for batch in batches for value in batch.values],
            keys=None if by_column or not batches[0].keyed else [key for batch in batches for key in batch.keys],
            key_column=pa.concat_arrays([batch.key_column for batch in batches]) if by_column else None,
            times=None if batches[0].times is None else [time for batch in batches for time in batch.times or ()],
        )

    def with_values(self, shape: Shape, values: list[Any]) -> Batch:
        """Return the same messages with other values."""
        return Batch(shape, values=values, keys=self._keys, key_column=self.key_column, times=self.times)

    def with_columns(self, shape: Shape, columns: pa.RecordBatch) -> Batch:
        """Return the same messages with other values, given as columns."""
        return Batch(shape, columns=columns, keys=self._keys, key_column=self.key_column, times=self.times)

    def keyed_by(self, *, keys: list[Any] | None = None, column: pa.Array | None = None) -> Batch:
        """Return the same messages under other keys."""
        return Batch(
            self.shape,
            columns=self._columns,
            values=self._values,
            keys=keys,
            key_column=column,
            times=self.times,
        )

    def with_times(self, times: list[int]) -> Batch:
        """Return the same messages with other timestamps."""
        return Batch(
            self.shape,
            columns=self._columns,
            values=self._values,
            keys=self._keys,
            key_column=self.key_column,
            times=times,
        )

    def reordered(self, order: pa.Array) -> Batch:
        """Return messages that are columns only in another order."""
        assert self._columns is not None
        key_column = None if self.key_column is None else self.key_column.take(order)
        return Batch(self.shape, columns=self._columns.take(order), key_column=key_column)

    def take(self, positions: list[int]) -> Batch:
        """Return the messages at these positions, in their order."""
        indices = None if self._columns is None and self.key_column is None else pa.array(positions, pa.int64())
        return Batch(
            self.shape,
            columns=None if self._columns is None else self._columns.take(indices),
            values=_picked(self._values, positions),
            keys=_picked(self._keys, positions),
            key_column=None if self.key_column is None else self.key_column.take(indices),
            times=_picked(self.times, positions),
        )


def _alike(kinds: list[Any]) -> bool:
    return kinds[0] is not None and all(kind == kinds[0] for kind in kinds)


def _picked(items: list[Any] | None, positions: list[int]) -> list[Any] | None:
    return None if items is None else [items[position] for position in positions]
