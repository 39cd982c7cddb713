"""The aggregates that `aggregate` takes: sum_, count, min_, max_, mean."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal, cast, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa

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
    since: int = 0
    """Which change of the program it came with: those of one change have counted the same messages."""

    @property
    def name(self) -> str:
        """The name of its column in partial results."""
        return _name(self.fold, self.column, self.since)

    @property
    def present(self) -> Accumulator:
        """What counts the values that it has folded."""
        return Accumulator("count", self.column, self.since)

    def __str__(self) -> str:
        return "the count of messages" if self.column is None else f"the {self.fold} of {self.column!r}"


@dataclass(frozen=True)
class Aggregate:
    """What is kept of a key's messages, and what it means: made by `sum_`, `count`, `min_`, `max_` and `mean`."""

    kind: Literal["sum", "min", "max", "mean", "count", "rows"]
    column: str | None = None
    since: int = 0

    @property
    def name(self) -> str:
        """What it is, in the words in which `Accumulator.name` has its numbers: `mean:amount`."""
        return _name(self.kind, self.column, self.since)

    def accumulators(self) -> tuple[Accumulator, ...]:
        """Return what has to be kept; aggregates of the same column share."""
        if self.column is None:
            return (Accumulator("rows", None, self.since),)
        present = Accumulator("count", self.column, self.since)
        if self.kind == "count":
            return (present,)
        return (present, Accumulator("sum" if self.kind == "mean" else self.kind, self.column, self.since))

    def result(self, merged: dict[Accumulator, Array]) -> tuple[Array, Array | None]:
        """Return the aggregate of each key, and a mask of those that are null because every value was."""
        numbers = [merged[accumulator] for accumulator in self.accumulators()]
        if len(numbers) == 1:
            return numbers[0], None
        present, folded = numbers
        nothing = present == 0
        mask = nothing if nothing.any() else None
        return folded / np.maximum(present, 1) if self.kind == "mean" else folded, mask


def _name(kind: str, column: str | None, since: int) -> str:
    return f"{kind}:{column or ''}{f'@{since}' if since else ''}"


def accumulators_of(aggregates: dict[str, Aggregate]) -> tuple[Accumulator, ...]:
    """Return the numbers that the aggregates are made of, each once."""
    return tuple(dict.fromkeys(a for aggregate in aggregates.values() for a in aggregate.accumulators()))


def continued(
    aggregates: dict[str, Aggregate], stored: tuple[Accumulator, ...]
) -> tuple[dict[str, Aggregate], tuple[Accumulator, ...]]:
    """Return aggregates that go on with stored numbers where these are theirs, and all their numbers, in the stored order.

    An aggregate whose numbers are not all stored begins with numbers of its own: a mean must not be made of a sum that has seen
    fewer messages than its count.

    >>> aggregates, numbers = continued({"n": count("x"), "mean": mean("x")}, (Accumulator("count", "x"),))
    >>> [number.name for number in numbers]
    ['count:x', 'count:x@1', 'sum:x@1']
    """
    changes = sorted({number.since for number in stored})
    following = changes[-1] + 1 if changes else 0
    found: dict[str, Aggregate] = {}
    for name, aggregate in aggregates.items():
        choices = (replace(aggregate, since=since) for since in changes)
        whole = (choice for choice in choices if set(choice.accumulators()) <= set(stored))
        found[name] = next(whole, replace(aggregate, since=following))
    needed = accumulators_of(found)
    return found, (*(number for number in stored if number in needed), *(n for n in needed if n not in stored))


def parsed(text: str) -> tuple[Accumulator, ...] | None:
    """Return the accumulators that a layout names, as `names_of` wrote them; None: it is none of that."""
    numbers = tuple(map(_parsed, text.split(", ")))
    whole = tuple(number for number in numbers if number is not None)
    return whole if names_of(whole) == text else None


def _parsed(name: str) -> Accumulator | None:
    fold, _, rest = name.partition(":")
    column, _, since = rest.rpartition("@") if re.search(r"@[1-9]\d*$", rest) else (rest, "", "0")
    if fold not in get_args(Fold):
        return None
    return Accumulator(cast("Fold", fold), None if fold == "rows" else column, int(since))


def names_of(accumulators: Iterable[Accumulator]) -> str:
    """Return accumulators as a layout has them."""
    return ", ".join(accumulator.name for accumulator in accumulators)


def said(aggregates: dict[str, Aggregate], stored: tuple[Accumulator, ...]) -> str:
    """Return in words what becomes of stored numbers; empty if all of them go on.

    A count that only tells whether there was a value to sum or compare is not spoken of: the program has not asked for it.
    """
    needed = accumulators_of(aggregates)
    fresh = [name for name, aggregate in aggregates.items() if not set(aggregate.accumulators()) <= set(stored)]
    serving = {number.present for number in stored if number.fold not in ("count", "rows")}
    dropped = [str(number) for number in stored if number not in needed and number not in serving]
    begins = f"{', '.join(fresh)} begin{'s' * (len(fresh) == 1)} empty" if fresh else ""
    goes = f"{', '.join(dropped)} {'is' if len(dropped) == 1 else 'are'} no longer kept" if dropped else ""
    return "; ".join(filter(None, (begins, goes)))


def columns_of(accumulators: Iterable[Accumulator]) -> set[str]:
    """Return the columns that accumulators fold."""
    return {accumulator.column for accumulator in accumulators if accumulator.column is not None}


def check_columns(columns: set[str], shape: Shape) -> None:
    """Refuse columns that the declared type lacks, or that hold no numbers."""
    known = shape.columns()
    if known and (lacking := columns - set(known)):
        raise GraphError(f"there is no column {', '.join(sorted(lacking))}; {shape.describe()} has {', '.join(known)}")
    for column in sorted(columns):
        kind = shape.column_type(column)
        if kind is not None and not is_number(kind):
            raise GraphError(
                f"aggregates are over numbers, and column {column!r} is of type {kind}; convert it with map_batches, or use "
                "reduce"
            )


def is_number(kind: pa.DataType) -> bool:
    """Tell whether a column of a type can be aggregated."""
    tests = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_null)
    return any(test(kind) for test in tests)


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
