"""The aggregates that `aggregate` takes: sum_, count, min_, max_, mean."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from tidewheel._values import Shape
from tidewheel.errors import GraphError

Array = npt.NDArray[Any]
Fold = Literal["sum", "min", "max", "count", "rows"]


@dataclass(frozen=True)
class Accumulator:
    """One number per key that partial results are merged into.

    `rows` counts messages, `count` the values of a column that are not null; the others fold a column.
    """

    fold: Fold
    column: str | None = None

    @property
    def name(self) -> str:
        """The name of its column in partial results."""
        return f"{self.fold}:{self.column or ''}"


ROWS = Accumulator("rows")


@dataclass(frozen=True)
class Aggregate:
    """What is kept of a key's messages, and what it means: made by `sum_`, `count`, `min_`, `max_` and `mean`."""

    kind: Literal["sum", "min", "max", "mean", "count", "rows"]
    column: str | None = None

    def accumulators(self) -> tuple[Accumulator, ...]:
        """Return what has to be kept; aggregates of the same column share."""
        if self.column is None:
            return (ROWS,)
        present = Accumulator("count", self.column)
        if self.kind == "count":
            return (present,)
        if self.kind == "mean":
            return (present, Accumulator("sum", self.column))
        return (present, Accumulator(self.kind, self.column))

    def result(self, merged: dict[Accumulator, Array]) -> tuple[Array, Array | None]:
        """Return the aggregate of each key, and a mask of those that are null because every value was."""
        if self.column is None:
            return merged[ROWS], None
        present = merged[Accumulator("count", self.column)]
        if self.kind == "count":
            return present, None
        nothing = present == 0
        mask = nothing if nothing.any() else None
        if self.kind == "mean":
            total = merged[Accumulator("sum", self.column)]
            return total / np.maximum(present, 1), mask
        return merged[Accumulator(self.kind, self.column)], mask


def accumulators_of(aggregates: dict[str, Aggregate]) -> tuple[Accumulator, ...]:
    """Return the numbers that the aggregates are made of, each once."""
    return tuple(dict.fromkeys(a for aggregate in aggregates.values() for a in aggregate.accumulators()))


def columns_of(accumulators: Iterable[Accumulator]) -> set[str]:
    """Return the columns that accumulators fold."""
    return {accumulator.column for accumulator in accumulators if accumulator.column is not None}


def check_columns(columns: set[str], shape: Shape) -> None:
    """Refuse columns that the declared type lacks."""
    known = shape.columns()
    if known and (lacking := columns - set(known)):
        raise GraphError(f"there is no column {', '.join(sorted(lacking))}; {shape.describe()} has {', '.join(known)}")


def sum_(column: str) -> Aggregate:
    """Sum of a column. Integers stay integers; a sum that leaves 64 bits is an error, never a wrong number."""
    return Aggregate("sum", column)


def count(column: str | None = None) -> Aggregate:
    """Number of messages, or of those whose column is not null."""
    return Aggregate("rows" if column is None else "count", column)


def min_(column: str) -> Aggregate:
    """Smallest value of a column."""
    return Aggregate("min", column)


def max_(column: str) -> Aggregate:
    """Largest value of a column."""
    return Aggregate("max", column)


def mean(column: str) -> Aggregate:
    """Mean of a column, null while no value is there."""
    return Aggregate("mean", column)
