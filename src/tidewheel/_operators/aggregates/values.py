"""Aggregators whose state is one value: first, last, any_, all_, and sum, min and max of what is not a number."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import localcontext

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidewheel._operators.aggregates.aggregator import Aggregator
from tidewheel._operators.aggregates.groups import Groups, Ints
from tidewheel.errors import StepError

_DIGITS = 38
"""The most digits of a decimal of 128 bits."""


@dataclass(frozen=True)
class Edge(Aggregator):
    """The first or last value to arrive."""

    last: bool
    order_matters = True

    @property
    def state_name(self) -> str:
        return "last" if self.last else "first"

    def fold(self, groups: Groups, *columns: pa.Array) -> pa.Array:
        return columns[0].take(pa.array(groups.last_rows if self.last else groups.first_rows))

    def merge(self, groups: Groups, states: pa.Array) -> pa.Array:
        return self.fold(groups, states)


@dataclass(frozen=True)
class EdgeBy(Aggregator):
    """The value with the smallest or largest `by`; of equal ones the first or last to arrive."""

    last: bool

    @property
    def state_name(self) -> str:
        return "last by" if self.last else "first by"

    def fold(self, groups: Groups, *columns: pa.Array) -> pa.Array:
        by, values = columns
        rows = pa.array(self._rows(groups, by))
        return pa.StructArray.from_arrays([by.take(rows), values.take(rows)], ["by", "value"])

    def merge(self, groups: Groups, states: pa.Array) -> pa.Array:
        return states.take(pa.array(self._rows(groups, states.field("by"))))

    def result(self, states: pa.Array) -> pa.Array:
        return states.field("value")

    def _rows(self, groups: Groups, by: pa.Array) -> Ints:
        """Return the row of each group that is its first or last one."""
        edges = groups.fold(by, "max" if self.last else "min").take(pa.array(groups.index))
        # NaN is not equal to itself. It is the edge only where all are NaN.
        equal = pc.or_(pc.equal(by, edges), pc.is_nan(edges)) if pa.types.is_floating(by.type) else pc.equal(by, edges)
        rows = np.flatnonzero(equal.to_numpy(zero_copy_only=False))
        there = Groups(groups.index[rows], groups.count)
        return rows[there.last_rows if self.last else there.first_rows]


@dataclass(frozen=True)
class Extreme(Aggregator):
    """The smallest or largest value of text, decimals, times and the like, whose order is that of Arrow."""

    largest: bool

    @property
    def state_name(self) -> str:
        return "largest" if self.largest else "smallest"

    def fold(self, groups: Groups, *columns: pa.Array) -> pa.Array:
        return groups.fold(columns[0], "max" if self.largest else "min")

    def merge(self, groups: Groups, states: pa.Array) -> pa.Array:
        return self.fold(groups, states)


class TooManyDigits(StepError):
    """A sum of decimals that does not fit into 128 bits."""


class DecimalSum(Aggregator):
    """The sum of decimals, exact, with up to 38 digits."""

    name = "decimal sum"

    def fold(self, groups: Groups, *columns: pa.Array) -> pa.Array:
        values = columns[0]
        if not pa.types.is_decimal(values.type):
            values = values.cast(pa.decimal128(_DIGITS, 0))
        return self._summed(groups, values)

    def merge(self, groups: Groups, states: pa.Array) -> pa.Array:
        return self._summed(groups, states)

    def _summed(self, groups: Groups, values: pa.Array) -> pa.Array:
        scale = values.type.scale
        largest = 10 ** (_DIGITS - scale)
        bounds = pc.min_max(values).as_py()
        # Arrow does not notice a sum that leaves 128 bits.
        if max(abs(bounds["min"]), abs(bounds["max"])) * len(values) >= largest:
            with localcontext(prec=2 * _DIGITS):
                for part in groups.lists(values).to_pylist():
                    if abs(sum(part)) >= largest:
                        raise TooManyDigits(
                            f"a sum of decimals has more than {_DIGITS} digits; cast the column to double, or use reduce, whose "
                            "decimals have no limit. With job.dead_letter(…) the job rejects such messages and continues"
                        )
        return groups.fold(values.cast(pa.decimal128(_DIGITS, scale)), "sum")


@dataclass(frozen=True)
class Truth(Aggregator):
    """Whether any, or all, of the values are true."""

    every: bool

    @property
    def state_name(self) -> str:
        return "all" if self.every else "any"

    def fold(self, groups: Groups, *columns: pa.Array) -> pa.Array:
        if not pa.types.is_boolean(columns[0].type):
            raise StepError(
                f"any_ and all_ need a column of booleans, not one of type {columns[0].type}; compute one with with_columns, "
                "or use count(where=…)"
            )
        return groups.fold(columns[0], "all" if self.every else "any")

    def merge(self, groups: Groups, states: pa.Array) -> pa.Array:
        return self.fold(groups, states)
