"""Batch: messages of one stream, in order, as columns or as Python values, whichever the next step needs."""

from __future__ import annotations

import typing
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidewheel._core.bytecode_reads import FieldsRead
from tidewheel._values.columns import repeats
from tidewheel._values.columns import values as column_values
from tidewheel._values.exact import Origin, exact_columns, optional_array, plain_array
from tidewheel._values.shape import DICT, Shape, to_columns

Positions = list[int] | npt.NDArray[np.int64]


class Batch:
    """Messages in order: values and, if the stream is keyed or timed, the key and timestamp of each.

    Columns and Python values are two forms of the same messages. A missing form is created on first use, so a step
    that works on columns never creates Python objects.
    """

    __slots__ = (
        "_given",
        "_key_codes",
        "_key_column",
        "_keys",
        "_lists",
        "_made",
        "_order",
        "_origin",
        "_values",
        "form",
        "shape",
        "times",
    )

    def __init__(
        self,
        shape: Shape,
        *,
        columns: pa.RecordBatch | None = None,
        values: list[Any] | None = None,
        keys: list[Any] | None = None,
        key_column: pa.Array | None = None,
        times: list[int] | None = None,
        form: Shape | None = None,
    ) -> None:
        """Use columns, values or both; keys as a list or as an Arrow column, which may be dictionary-encoded.

        `form` says that the columns are an exact copy of Python values, and converts them back.
        """
        self.shape = shape
        self.form = form
        self._given = columns
        self._order: pa.Array | None = None
        """If set, the messages are those of the given columns at these positions."""
        self._made: pa.RecordBatch | None = None
        self._values = values
        self._lists: list[list[Any]] | None = None
        """The values as Python lists, column by column."""
        self._origin: Origin | None = None
        """The columns and values that these messages had before."""
        self._keys = keys
        encoded = key_column is not None and pa.types.is_dictionary(key_column.type)
        self._key_codes: pa.DictionaryArray | None = key_column if encoded else None
        self._key_column: pa.Array | None = None if encoded else key_column
        self.times = times

    def __len__(self) -> int:
        if self._values is not None:
            return len(self._values)
        return int(typing.cast(pa.RecordBatch, self._given).num_rows) if self._order is None else len(self._order)

    @property
    def _columns(self) -> pa.RecordBatch | None:
        if self._order is not None:
            self._given, self._order = typing.cast(pa.RecordBatch, self._given).take(self._order), None
        return self._given

    @property
    def values(self) -> list[Any]:
        """The values as Python objects of the stream's shape."""
        if self._values is None:
            columns = typing.cast(pa.RecordBatch, self._columns)
            self._lists = [column_values(column) for column in columns.columns]
            self._values = (self.form or self.shape).values_of(columns, self._lists)
        return self._values

    def values_read(self, read: FieldsRead | None) -> list[Any]:
        """Return the values for a function that reads only these fields; None means that it may do anything.

        Columns that the function does not read are not converted to Python values.
        """
        if self._values is None and self._given is not None and read is not None:
            values = (self.form or self.shape).values_read(self._given, read, self._order)
            if values is not None:
                return values
        return self.values

    def can_add(self, read: FieldsRead) -> bool:
        """Return whether a function that adds fields to dicts, and reads these, can be called with only the fields it reads.

        Not if it could modify a value that is passed on, such as a list.
        """
        columns = self._given
        if self._values is not None or columns is None or not _gives_dicts(self.form or self.shape):
            return False
        return (self.form or self.shape).can_read(columns, read) and not any(
            pa.types.is_nested(columns.schema.field(name).type) for name in read.names
        )

    def with_added(self, shape: Shape, fields: Mapping[str, list[Any]]) -> Batch:
        """Return the same messages, which are dicts, with added or replaced fields."""
        columns = typing.cast(pa.RecordBatch, self._columns)
        arrays = dict(zip(columns.schema.names, columns.columns, strict=True))
        for name, values in fields.items():
            array = optional_array(values)
            if array is None:
                rows = zip(*fields.values(), strict=True)
                return self.with_values(
                    shape,
                    [
                        {**old, **dict(zip(fields, row, strict=True))}
                        for old, row in zip(self.values, rows, strict=True)
                    ],
                )
            arrays[name] = array
        return Batch(
            shape,
            columns=pa.RecordBatch.from_arrays(list(arrays.values()), list(arrays)),
            form=DICT,
            keys=self._keys,
            key_column=self.key_data,
            times=self.times,
        )

    @property
    def columns(self) -> pa.RecordBatch:
        """The values as columns."""
        if self.has_columns:
            return typing.cast(pa.RecordBatch, self._columns)
        if self._made is None:
            self._made = to_columns(self.values, self.shape)
        return self._made

    @property
    def has_columns(self) -> bool:
        """Whether the messages came as columns.

        Columns that were made from values do not count: they may give other values back, or lack declared types.
        """
        return self._given is not None and self.form is None

    @property
    def carried(self) -> pa.RecordBatch | None:
        """Columns that convert back to exactly the same values, by the stream's shape or by `form`; None if there are none."""
        return self._columns

    @property
    def is_columns_only(self) -> bool:
        """Whether the messages, and their keys if they have any, are only columns so far, and have no timestamps."""
        has_other_parts = self._values is not None or self._keys is not None or self.times is not None
        return self._given is not None and not has_other_parts

    def exact(self) -> Batch:
        """Return the same messages as columns that convert back exactly, or unchanged if there are none."""
        if self._given is not None or not self._values:
            return self
        found = exact_columns(self._values, self._origin)
        if found is None:
            return self
        form, columns = found
        return Batch(
            self.shape, columns=columns, form=form, keys=self._keys, key_column=self.key_data, times=self.times
        )

    def with_key_codes(self) -> Batch:
        """Return the same messages with text or bytes keys dictionary-encoded, if keys repeat often enough."""
        keys = self.key_data
        if keys is None or not (pa.types.is_string(keys.type) or pa.types.is_binary(keys.type)) or not repeats(keys):
            return self
        return self._same_values(None, keys.dictionary_encode(), self.times)

    @property
    def keyed(self) -> bool:
        """Whether the messages have keys."""
        return self._keys is not None or self.key_data is not None

    @property
    def key_column(self) -> pa.Array | None:
        """The keys as a column of plain values, if they are a column."""
        if self._key_column is None and self._key_codes is not None:
            self._key_column = self._key_codes.dictionary_decode()
        return self._key_column

    @property
    def key_data(self) -> pa.Array | None:
        """The keys as a column, dictionary-encoded if they came so, with each distinct key once."""
        return self._key_column if self._key_codes is None else self._key_codes

    @property
    def has_key_codes(self) -> bool:
        """Whether the keys are dictionary-encoded, with each distinct key once."""
        return self._key_codes is not None

    @property
    def keys(self) -> list[Any]:
        """The keys as Python objects."""
        if self._keys is None:
            self._keys = column_values(typing.cast(pa.Array, self.key_data))
        return self._keys

    @property
    def keys_made(self) -> list[Any] | None:
        """The keys as Python objects if they already exist; otherwise None, and `key_column` has them."""
        return self._keys

    def key_array(self) -> pa.Array | None:
        """Return the keys as a column, or None if they are not all of one plain type."""
        if self.key_data is None and self._keys is not None:
            self._key_column = plain_array(self._keys)
        return self.key_column

    def written_keys(self) -> pa.Array:
        """Return the keys as a column for people; a tuple becomes a struct with the fields _1, _2 and so on, as in Spark.

        Raise `TypeError`, `ValueError` or `OverflowError` if the keys do not fit into a column of one type.
        """
        column = self.key_array()
        if column is not None:
            return column
        kinds = {type(key) for key in self.keys}
        if not all(issubclass(kind, tuple) for kind in kinds):
            raise TypeError(f"there are keys of type {' and '.join(sorted(kind.__name__ for kind in kinds))}")
        return pa.array([{f"_{at}": part for at, part in enumerate(key, 1)} for key in self.keys])

    @staticmethod
    def joined(batches: list[Batch]) -> Batch:
        """Return the messages of several batches of one stream as one batch."""
        if len(batches) == 1:
            return batches[0]
        # Undeclared columns may change their type between batches; values can always be joined.
        columnar = _alike(
            [None if batch._columns is None else (batch._columns.schema, batch.form) for batch in batches]
        )
        key_data = [batch.key_data for batch in batches]
        if not _alike([None if keys is None else keys.type for keys in key_data]):
            key_data = [batch.key_column for batch in batches]
        by_column = _alike([None if keys is None else keys.type for keys in key_data])
        return Batch(
            batches[0].shape,
            columns=pa.concat_batches([batch._columns for batch in batches]) if columnar else None,
            form=batches[0].form if columnar else None,
            values=None if columnar else [value for batch in batches for value in batch.values],
            keys=None if by_column or not batches[0].keyed else [key for batch in batches for key in batch.keys],
            key_column=pa.concat_arrays(key_data) if by_column else None,
            times=None if batches[0].times is None else [time for batch in batches for time in batch.times or ()],
        )

    def with_values(self, shape: Shape, values: list[Any]) -> Batch:
        """Return the same messages with other values."""
        batch = Batch(shape, values=values, keys=self._keys, key_column=self.key_data, times=self.times)
        if self._lists is not None and self._columns is not None:
            batch._origin = Origin(self._columns, self._lists)
        return batch

    def with_columns(self, shape: Shape, columns: pa.RecordBatch) -> Batch:
        """Return the same messages with other values, given as columns."""
        return Batch(shape, columns=columns, keys=self._keys, key_column=self.key_data, times=self.times)

    def keyed_by(self, *, keys: list[Any] | None = None, column: pa.Array | None = None) -> Batch:
        """Return the same messages with other keys."""
        return self._same_values(keys, column, self.times)

    def with_times(self, times: list[int]) -> Batch:
        """Return the same messages with other timestamps."""
        return self._same_values(self._keys, self.key_data, times)

    def _same_values(self, keys: list[Any] | None, key_column: pa.Array | None, times: list[int] | None) -> Batch:
        batch = Batch(
            self.shape,
            columns=self._columns,
            form=self.form,
            values=self._values,
            keys=keys,
            key_column=key_column,
            times=times,
        )
        batch._lists, batch._origin = self._lists, self._origin
        return batch

    def reordered(self, order: pa.Array) -> Batch:
        """Return column-only messages in another order; each column is reordered when it is read."""
        key_column = None if self.key_data is None else self.key_data.take(order)
        batch = Batch(self.shape, columns=self._columns, form=self.form, key_column=key_column)
        batch._order = order
        return batch

    def take(self, positions: Positions) -> Batch:
        """Return the messages at these positions, in that order."""
        columns = self._columns
        indices = None if columns is None and self.key_data is None else pa.array(positions, pa.int64())
        return Batch(
            self.shape,
            columns=None if columns is None else columns.take(indices),
            form=self.form,
            values=_picked(self._values, positions),
            keys=_picked(self._keys, positions),
            key_column=None if self.key_data is None else self.key_data.take(indices),
            times=_picked(self.times, positions),
        )


def _gives_dicts(shape: Shape) -> bool:
    return shape.kind in ("dict", "any")


def _alike(kinds: list[Any]) -> bool:
    return kinds[0] is not None and all(kind == kinds[0] for kind in kinds)


def _picked(items: list[Any] | None, positions: Positions) -> list[Any] | None:
    if items is None:
        return None
    return [items[position] for position in (positions if isinstance(positions, list) else positions.tolist())]
