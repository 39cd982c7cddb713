"""Groups: which group each row of some columns belongs to, and the rows of each group together."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidewheel._state.key_batch import stable_order

Ints = npt.NDArray[np.int64]


class Groups:
    """The group of each row, as a number from 0 on. Each group has at least one row.

    >>> groups = Groups(np.array([1, 0, 1]), 2)
    >>> groups.fold(pa.array([1, 2, 3]), "sum").to_pylist()
    [2, 4]
    """

    def __init__(self, index: Ints, count: int) -> None:
        """Take the group of each row, and the number of groups."""
        self.index, self.count = index, count

    @cached_property
    def sizes(self) -> Ints:
        """The number of rows of each group."""
        sizes: Ints = np.bincount(self.index, minlength=self.count)
        return sizes

    @cached_property
    def order(self) -> Ints:
        """The rows, ordered by group; the rows of a group stay in their order."""
        return stable_order(self.index)

    @cached_property
    def starts(self) -> Ints:
        """The position in `order` of the first row of each group, as `numpy.add.reduceat` takes it."""
        starts: Ints = np.cumsum(self.sizes) - self.sizes
        return starts

    @property
    def first_rows(self) -> Ints:
        """The first row of each group."""
        rows = np.empty(self.count, np.int64)
        # Of several rows of a group, numpy keeps the one that is assigned last.
        rows[self.index[::-1]] = np.arange(len(self.index))[::-1]
        return rows

    @property
    def last_rows(self) -> Ints:
        """The last row of each group."""
        rows = np.empty(self.count, np.int64)
        rows[self.index] = np.arange(len(self.index))
        return rows

    def fold(self, values: pa.Array, function: str) -> pa.Array:
        """Fold the values of each group by a function of Arrow's group_by, such as "sum", "min" or "any"."""
        table = pa.table([pa.array(self.index), values], ["group", "value"])
        folded = table.group_by("group", use_threads=False).aggregate([("value", function)])
        order = np.argsort(folded.column("group").to_numpy())
        return combined(folded.column(f"value_{function}").take(pa.array(order)))

    def lists(self, values: pa.Array, most: int | None = None) -> pa.ListArray:
        """Return the values of each group as a list, in their order, or only the first `most` of them."""
        order, sizes = self.order, self.sizes
        if most is not None:
            order = order[np.arange(len(order)) - np.repeat(self.starts, sizes) < most]
            sizes = np.minimum(sizes, most)
        return list_array(values.take(pa.array(order)), sizes)

    def flattened(self, lists: pa.ListArray) -> tuple[Groups, pa.Array]:
        """Return the items of lists, which belong to the groups of their lists."""
        return Groups(np.repeat(self.index, list_sizes(lists)), self.count), lists.flatten()

    def chosen(self, rows: npt.NDArray[Any]) -> tuple[Groups, Ints]:
        """Return the groups of some rows, and the number that each group has here: some groups may have no rows left."""
        kept, index = np.unique(self.index[rows], return_inverse=True)
        return Groups(index.astype(np.int64), len(kept)), kept


def groups_of(columns: Sequence[Any]) -> Groups:
    """Group rows by the values of columns; the groups are numbered in the order in which they first appear."""
    index: Ints | None = None
    for column in columns:
        codes = combined(column).dictionary_encode(null_encoding="encode")
        numbers = codes.indices.to_numpy().astype(np.int64)
        if index is not None:
            codes = pa.array(index * max(len(codes.dictionary), 1) + numbers).dictionary_encode()
            numbers = codes.indices.to_numpy().astype(np.int64)
        index, count = numbers, len(codes.dictionary)
    assert index is not None, "rows are grouped by at least one column"
    return Groups(index, count)


def combined(column: Any) -> pa.Array:
    """Return a column as one array."""
    if not isinstance(column, pa.ChunkedArray):
        return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
    whole = column.combine_chunks()
    return pa.concat_arrays(whole.chunks) if isinstance(whole, pa.ChunkedArray) else whole


def list_sizes(lists: pa.ListArray) -> Ints:
    """Return the number of items of each list; a null has none."""
    sizes: Ints = pc.list_value_length(lists).fill_null(0).to_numpy().astype(np.int64)
    return sizes


def list_array(items: pa.Array, sizes: Ints) -> pa.ListArray:
    """Return lists of these sizes, with the items one after another."""
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), items)
