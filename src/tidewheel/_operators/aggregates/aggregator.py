"""Aggregator: the interface of aggregates whose state is not a number, for built-in ones and for those of users."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from tidewheel._operators.aggregates.groups import Groups


class Aggregator(ABC):
    """An aggregate over columns: it folds rows into states, merges states, and turns states into results.

    A state is a value of any Arrow type, one for each group; the states of many groups are one array. States must be
    the same however the rows are divided into batches and tasks: `fold` of all rows must equal `merge` of the folds of
    their parts. Rows and states of a group come in the order in which they arrived.

    Rows with a null in the first column are left out, and so are those for which `where=` is not true.

    >>> import numpy as np
    >>> class Product(Aggregator):
    ...     zero = 1.0
    ...     def fold(self, groups, values):
    ...         return groups.fold(values, "product")
    ...     def merge(self, groups, states):
    ...         return groups.fold(states, "product")
    >>> Product().fold(Groups(np.array([0, 1, 0]), 2), pa.array([2.0, 5.0, 3.0])).to_pylist()
    [6.0, 5.0]
    """

    name: str = ""
    """Identifies stored states, like the columns; by default the name of the class. Give it a new one when states change."""
    options: str = ""
    """Parameters on which the states depend, as text: with others, an aggregate starts empty."""
    zero: Any = None
    """The state of a group without rows; the result of None is null."""
    order_matters: ClassVar[bool] = False
    """Whether the result depends on the order in which rows arrive."""

    @abstractmethod
    def fold(self, groups: Groups, *columns: pa.Array) -> pa.Array:
        """Return the state of each group, from the rows of the columns."""

    @abstractmethod
    def merge(self, groups: Groups, states: pa.Array) -> pa.Array:
        """Return the state of each group, from several states."""

    def result(self, states: pa.Array) -> pa.Array:
        """Return the result of each state; by default the state itself."""
        return states

    @property
    def state_name(self) -> str:
        """The name under which states are stored."""
        return self.name or type(self).__name__

    def results(self, states: pa.Array) -> pa.Array:
        """Return the result of each state; a null state is that of a group without rows."""
        if not states.null_count:
            return self.result(states)
        filled = states.drop_null()
        if self.zero is None:
            return spread(self.result(filled), states.is_valid()) if len(filled) else pa.nulls(len(states))
        zero = pa.array([self.zero], None if pa.types.is_null(states.type) else states.type)
        there = self.result(pa.concat_arrays([filled, zero]) if len(filled) else zero)
        return spread(there, states.is_valid(), len(there) - 1)


def spread(values: pa.Array, there: pa.Array, other: int | None = None) -> pa.Array:
    """Return the values at the places that are true, and the value with the number `other`, or null, elsewhere."""
    mask = there.to_numpy(zero_copy_only=False)
    places = np.cumsum(mask) - 1
    if other is not None:
        return values.take(pa.array(np.where(mask, places, other)))
    return values.take(pa.array(places, mask=~mask))
