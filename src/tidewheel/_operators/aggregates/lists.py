"""Aggregators whose state is a list of values: count_distinct, collect, top."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidewheel._operators.aggregates.aggregator import Aggregator
from tidewheel._operators.aggregates.groups import Groups, Ints, groups_of, list_array, list_sizes

_DENSE = 8
"""The maximum size of a table of all pairs of group and value, as pairs per row."""


class Distinct(Aggregator):
    """The number of different values; the state is the list of them."""

    name = "distinct"
    zero = ()

    def fold(self, groups: Groups, *columns: pa.Array) -> pa.Array:
        # 0.0 and -0.0 are one value, as in Python.
        values = pc.add(columns[0], 0.0) if pa.types.is_floating(columns[0].type) else columns[0]
        # The values stay in the order in which they came, so that a batch that runs again gives the same state.
        rows = _first_of_each(groups, values)
        return Groups(groups.index[rows], groups.count).lists(values.take(pa.array(rows)))

    def merge(self, groups: Groups, states: pa.Array) -> pa.Array:
        items, values = groups.flattened(states)
        return self.fold(items, values)

    def result(self, states: pa.Array) -> pa.Array:
        return pa.array(list_sizes(states))


@dataclass(frozen=True)
class Collect(Aggregator):
    """The first values to arrive, up to a limit."""

    limit: int
    name = "collect"
    zero = ()
    order_matters = True

    @property
    def options(self) -> str:  # type: ignore[override]
        return str(self.limit)

    def fold(self, groups: Groups, *columns: pa.Array) -> pa.Array:
        return groups.lists(columns[0], self.limit)

    def merge(self, groups: Groups, states: pa.Array) -> pa.Array:
        items, values = groups.flattened(states)
        return items.lists(values, self.limit)


@dataclass(frozen=True)
class Top(Aggregator):
    """The rows with the largest values of the first column; of equal ones those that arrived first.

    The state is a list for each column.
    """

    n: int
    columns: tuple[str, ...]
    """The columns of the result, after the first."""
    records: bool
    """Whether the result has records, instead of the values of the last column."""
    name = "top"
    zero = None

    @property
    def options(self) -> str:  # type: ignore[override]
        return str(self.n)

    def fold(self, groups: Groups, *columns: pa.Array) -> pa.Array:
        order = pc.array_sort_indices(columns[0], order="descending").to_numpy()
        ranked = Groups(groups.index[order], groups.count)
        rows = order[ranked.order]
        place = np.arange(len(rows)) - np.repeat(ranked.starts, ranked.sizes)
        kept, sizes = pa.array(rows[place < self.n]), np.minimum(ranked.sizes, self.n)
        lists = [list_array(column.take(kept), sizes) for column in columns]
        return pa.StructArray.from_arrays(lists, [str(number) for number in range(len(lists))])

    def merge(self, groups: Groups, states: pa.Array) -> pa.Array:
        lists = [states.field(number) for number in range(states.type.num_fields)]
        items, _ = groups.flattened(lists[0])
        return self.fold(items, *(each.flatten() for each in lists))

    def result(self, states: pa.Array) -> pa.Array:
        if not self.records:
            return states.field(states.type.num_fields - 1)
        lists = [states.field(number) for number in range(1, states.type.num_fields)]
        records = pa.StructArray.from_arrays([each.flatten() for each in lists], list(self.columns))
        return list_array(records, list_sizes(lists[0]))

    def results(self, states: pa.Array) -> pa.Array:
        """Return an empty list for a group without rows."""
        lists = super().results(states)
        if pa.types.is_null(lists.type):
            return list_array(lists[:0], np.zeros(len(lists), np.int64))
        return list_array(lists.flatten(), list_sizes(lists)) if lists.null_count else lists


def _first_of_each(groups: Groups, values: pa.Array) -> Ints:
    """Return the first row of each value of each group, in order."""
    codes, count = _codes(values, _DENSE * len(values) // max(groups.count, 1))
    pairs = groups.index * count + codes
    if groups.count * count > _DENSE * len(pairs):
        return groups_of([pa.array(pairs)]).first_rows
    firsts = Groups(pairs, groups.count * count).first_rows
    return np.flatnonzero(firsts[pairs] == np.arange(len(pairs)))


def _codes(values: pa.Array, most: int) -> tuple[Ints, int]:
    """Return a number for each value, the same for equal values, and how many numbers there are.

    Integers that lie close together are such numbers themselves, less the smallest; that takes no hash table.
    """
    if pa.types.is_integer(values.type) and len(values) and not values.null_count:
        low, high = pc.min_max(values).as_py().values()
        if high - low < most:
            return values.to_numpy() - low, high - low + 1
    of_values = groups_of([values])
    return of_values.index, of_values.count
