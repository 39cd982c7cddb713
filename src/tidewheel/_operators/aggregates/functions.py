"""The aggregates that `aggregate` and `window` accept."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidewheel._operators.aggregates.aggregator import Aggregator
from tidewheel._operators.aggregates.groups import combined
from tidewheel._operators.aggregates.lists import Collect, Distinct, Top
from tidewheel._operators.aggregates.moments import Spread
from tidewheel._operators.aggregates.sketches import ApproximateDistinct, ApproximateQuantile, datasketches
from tidewheel._operators.aggregates.values import DecimalSum, Edge, EdgeBy, Extreme, Truth
from tidewheel._operators.base import columns_of as record_columns
from tidewheel._operators.keyed.key_by import column_of
from tidewheel._state.layout import Accumulator, number_name
from tidewheel._values import Batch, Shape
from tidewheel._values.expressions import Expression, columns_used, evaluated, is_expression, result_types
from tidewheel.errors import GraphError, StepError

Array = npt.NDArray[Any]
Condition = str | Expression
"""A column of booleans, or an expression of `pyarrow.compute`."""


@dataclass(frozen=True)
class Where:
    """The condition of an aggregate: a column of booleans, or an expression. Its text identifies it in stored state."""

    given: Any = field(compare=False)
    text: str

    def mask(self, batch: Batch) -> pa.Array:
        """Return for which messages the condition is true."""
        if isinstance(self.given, str):
            mask = column_of(batch, self.given)
        else:
            try:
                (mask,) = evaluated(record_columns(batch), [self.given])
            except pa.ArrowException as error:
                raise StepError(f"where={self.text}: {error}") from None
        if pa.types.is_null(mask.type):
            return pa.array(np.zeros(len(mask), bool))
        if not pa.types.is_boolean(mask.type):
            raise StepError(f"where={self.text} has the type {mask.type}; it must be boolean")
        return mask.fill_null(False)

    def columns(self, schema: pa.Schema | None) -> set[str] | None:
        """Return the columns that it reads; None if they are not known."""
        if isinstance(self.given, str):
            return {self.given}
        return None if schema is None else columns_used(schema, self.given)

    def check(self, schema: pa.Schema) -> None:
        """Raise a `GraphError` if the condition over these columns is not boolean."""
        try:
            (kind,) = result_types(schema, [pc.field(self.given) if isinstance(self.given, str) else self.given])
        except ValueError as error:
            raise GraphError(f"where={self.text}: {error}") from None
        if not pa.types.is_boolean(kind):
            raise GraphError(f"where={self.text} has the type {kind}; it must be boolean")


@dataclass(frozen=True)
class Aggregate:
    """An aggregate over the messages of a key, created by the functions of `tidewheel.agg`."""

    kind: str
    column: str | None = None
    since: int = 0
    where: Where | None = None
    aggregator: Aggregator | None = None
    """The aggregator that folds and merges the states, if they are not numbers."""
    more: tuple[str, ...] = ()
    """The further columns that an aggregator folds."""

    @property
    def name(self) -> str:
        """The name of the aggregate, in the form of `Accumulator.name`: `mean:amount`."""
        if self.aggregator is not None:
            return self.accumulators()[0].name
        return number_name(self.kind, self.column, self.since, where=self._where)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it folds, without those of its condition."""
        return (*(() if self.column is None else (self.column,)), *self.more)

    @property
    def _where(self) -> str:
        return "" if self.where is None else self.where.text

    def accumulators(self) -> tuple[Accumulator, ...]:
        """Return the accumulators that it needs. Aggregates of the same column share accumulators."""
        if self.aggregator is not None:
            options = ", ".join(filter(None, (self.aggregator.options, *self.more)))
            return (Accumulator(self.aggregator.state_name, self.column, self.since, options, self._where),)
        if self.column is None:
            return (Accumulator("rows", None, self.since, "", self._where),)
        present = Accumulator("count", self.column, self.since, "", self._where)
        if self.kind == "count":
            return (present,)
        return (present, replace_fold(present, "sum" if self.kind == "mean" else self.kind))

    def result(self, merged: dict[Accumulator, Any]) -> pa.Array:
        """Return the aggregate of each key; null where all values were null."""
        numbers = [merged[accumulator] for accumulator in self.accumulators()]
        if self.aggregator is not None:
            return self.aggregator.results(combined(numbers[0]))
        if len(numbers) == 1:
            return pa.array(numbers[0])
        present, folded = numbers
        nothing = present == 0
        mask = nothing if nothing.any() else None
        return pa.array(folded / np.maximum(present, 1) if self.kind == "mean" else folded, mask=mask)


class Accumulators(tuple[Accumulator, ...]):
    """The numbers and states of a step in stored order, and the aggregates and conditions that they belong to."""

    aggregates: Mapping[Accumulator, Aggregate]

    def __new__(cls, accumulators: Iterable[Accumulator], aggregates: Iterable[Aggregate] = ()) -> Accumulators:
        """Take the accumulators in their order, and the aggregates that need them."""
        made = super().__new__(cls, accumulators)
        made.aggregates = {a: aggregate for aggregate in aggregates for a in aggregate.accumulators()}
        return made

    @property
    def numbers(self) -> tuple[Accumulator, ...]:
        """The accumulators that are numbers."""
        return tuple(each for each in self if each.is_number)

    @property
    def states(self) -> dict[Accumulator, Aggregator]:
        """The accumulators that are states, each with its aggregator."""
        found = ((each, self.aggregates[each].aggregator) for each in self if not each.is_number)
        return {each: aggregator for each, aggregator in found if aggregator is not None}

    @property
    def conditions(self) -> dict[str, Where]:
        """The conditions of the accumulators, by their text."""
        found = (aggregate.where for aggregate in self.aggregates.values())
        return {where.text: where for where in found if where is not None}

    @property
    def order_matters(self) -> bool:
        """Whether a result depends on the order in which messages arrive."""
        return any(aggregator.order_matters for aggregator in self.states.values())

    def columns(self, schema: pa.Schema | None = None) -> set[str] | None:
        """Return the columns that are read; None if they follow from a schema that is not known."""
        columns = {column for aggregate in self.aggregates.values() for column in aggregate.columns}
        for where in self.conditions.values():
            if (used := where.columns(schema)) is None:
                return None
            columns |= used
        return columns


def replace_fold(accumulator: Accumulator, fold: str) -> Accumulator:
    """Return the accumulator of the same values with another fold."""
    return Accumulator(fold, accumulator.column, accumulator.since, "", accumulator.where)


def accumulators_of(aggregates: dict[str, Aggregate]) -> Accumulators:
    """Return the accumulators that the aggregates need, without duplicates."""
    needed = dict.fromkeys(a for aggregate in aggregates.values() for a in aggregate.accumulators())
    return Accumulators(needed, aggregates.values())


def continued(
    aggregates: dict[str, Aggregate], stored: tuple[Accumulator, ...]
) -> tuple[dict[str, Aggregate], tuple[Accumulator, ...]]:
    """Return aggregates that continue with the stored numbers, and all their numbers in the stored order.

    If some numbers of an aggregate are not stored, all its numbers start empty: a mean must not combine a sum and a count
    of different messages.

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


def describe_changes(aggregates: dict[str, Aggregate], stored: tuple[Accumulator, ...]) -> str:
    """Describe what happens to stored numbers; empty if all of them are kept.

    The text omits counts that exist only to detect whether a sum or extreme has any value, because the program does not
    declare them.
    """
    needed = accumulators_of(aggregates)
    fresh = [name for name, aggregate in aggregates.items() if not set(aggregate.accumulators()) <= set(stored)]
    serving = {number.present for number in stored if number.is_number and number.fold not in ("count", "rows")}
    dropped = [str(number) for number in stored if number not in needed and number not in serving]
    begins = f"{', '.join(fresh)} start{'s' * (len(fresh) == 1)} empty" if fresh else ""
    goes = f"{', '.join(dropped)} {'is' if len(dropped) == 1 else 'are'} deleted" if dropped else ""
    return "; ".join(filter(None, (begins, goes)))


def check_columns(accumulators: Accumulators, shape: Shape) -> None:
    """Raise a `GraphError` for columns that the declared type does not have, or that do not hold numbers."""
    known = shape.columns()
    columns = {column for aggregate in accumulators.aggregates.values() for column in aggregate.columns}
    if known and (lacking := columns - set(known)):
        raise GraphError(f"there is no column {', '.join(sorted(lacking))}; {shape.describe()} has {', '.join(known)}")
    for number in accumulators.numbers:
        kind = None if number.column is None else shape.column_type(number.column)
        if kind is not None and number.fold in ("sum", "min", "max") and not is_number(kind):
            raise GraphError(no_numbers(number.column, kind))


def no_numbers(column: str | None, kind: pa.DataType, undeclared: bool = False) -> str:
    """Return the text for a column of a type that cannot be aggregated as numbers."""
    text = f"aggregates need numbers, but column {column!r} has the type {kind}; convert it with map_batches, or use reduce"
    return f"{text}. min and max take it with type=, such as type=str" if undeclared and can_be_compared(kind) else text


def is_number(kind: pa.DataType) -> bool:
    """Return whether columns of a type can be aggregated as numbers."""
    tests = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_null)
    return any(test(kind) for test in tests)


def can_be_compared(kind: pa.DataType) -> bool:
    """Return whether columns of a type have a smallest and a largest value, though they are not numbers."""
    tests = (
        pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary,
        pa.types.is_decimal, pa.types.is_temporal,
    )  # fmt: skip
    return any(test(kind) for test in tests)


def for_types(aggregates: dict[str, Aggregate], shape: Shape) -> dict[str, Aggregate]:
    """Return aggregates with sum, min and max of columns that are declared as text, decimals or times by aggregators."""

    def for_type(aggregate: Aggregate) -> Aggregate:
        kind = None if aggregate.column is None else shape.column_type(aggregate.column)
        if aggregate.aggregator is not None or kind is None or is_number(kind) or not can_be_compared(kind):
            return aggregate
        return _by_aggregator(aggregate, pa.types.is_decimal(kind))

    return {name: for_type(each) for name, each in aggregates.items()}


def _by_aggregator(aggregate: Aggregate, decimals: bool) -> Aggregate:
    if aggregate.kind in ("min", "max"):
        return replace(aggregate, aggregator=Extreme(aggregate.kind == "max"))
    return replace(aggregate, aggregator=DecimalSum()) if aggregate.kind == "sum" and decimals else aggregate


def _typed(kind: str, column: str, declared: Any, where: Condition | None) -> Aggregate:
    aggregate = Aggregate(kind, column, where=_where(where))
    if declared is None or declared in (int, float, bool):
        return aggregate
    typed = _by_aggregator(aggregate, declared is Decimal)
    if typed.aggregator is None:
        raise GraphError(f"there is no {kind} of type={declared!r}: only numbers and decimals can be added")
    return typed


def sum_(column: str, *, type: type | None = None, where: Condition | None = None) -> Aggregate:
    """Sum of a column. Integers stay integers; a sum that exceeds 64 bits is an error, never a wrong number.

    Decimals are added exactly, up to 38 digits. `type=Decimal` says that a column has decimals, if the stream does not
    declare it.
    """
    return _typed("sum", column, type, where)


def count(column: str | None = None, *, where: Condition | None = None) -> Aggregate:
    """Number of messages, or of non-null values of a column."""
    return Aggregate("rows" if column is None else "count", column, where=_where(where))


def min_(column: str, *, type: type | None = None, where: Condition | None = None) -> Aggregate:
    """Smallest value of a column of numbers, text, decimals or times.

    `type=str` says that a column has text, or another type that is not a number, if the stream does not declare it.
    """
    return _typed("min", column, type, where)


def max_(column: str, *, type: type | None = None, where: Condition | None = None) -> Aggregate:
    """Largest value of a column of numbers, text, decimals or times.

    `type=str` says that a column has text, or another type that is not a number, if the stream does not declare it.
    """
    return _typed("max", column, type, where)


def mean(column: str, *, where: Condition | None = None) -> Aggregate:
    """Mean of a column; null as long as there is no value."""
    return Aggregate("mean", column, where=_where(where))


def first(column: str, *, by: str | None = None, where: Condition | None = None) -> Aggregate:
    """First value of a column to arrive that is not null, or the one with the smallest value of the column `by`."""
    return _edge(column, by, where, last=False)


def last(column: str, *, by: str | None = None, where: Condition | None = None) -> Aggregate:
    """Last value of a column to arrive that is not null, or the one with the largest value of the column `by`."""
    return _edge(column, by, where, last=True)


def _edge(column: str, by: str | None, where: Condition | None, last: bool) -> Aggregate:
    return of(Edge(last), column, where=where) if by is None else of(EdgeBy(last), by, column, where=where)


def count_distinct(column: str, *, approximate: bool = False, where: Condition | None = None) -> Aggregate:
    """Number of different values of a column that are not null.

    The state of a key is the list of its values; `approximate=True` stores a sketch of at most 4 KiB instead, with an
    error of about 1.6 %, and needs the extra `sketches`.
    """
    if approximate:
        datasketches()
    return of(ApproximateDistinct() if approximate else Distinct(), column, where=where)


def approx_quantile(column: str, share: float, *, where: Condition | None = None) -> Aggregate:
    """Value below which about this share of the values of a column is: 0.5 is the median. Null without a value.

    The state of a key is a t-digest of at most a few KiB, which several quantiles of a column share; its error is
    smallest at both ends. Needs the extra `sketches`.
    """
    if not isinstance(share, int | float) or not 0 <= share <= 1:
        raise GraphError(f"approx_quantile takes a share from 0 to 1, such as 0.95, not {share!r}")
    datasketches()
    return of(ApproximateQuantile(float(share)), column, where=where)


def collect(column: str, *, limit: int, where: Condition | None = None) -> Aggregate:
    """List of the first values of a column that are not null, in the order in which they arrived; at most `limit`."""
    return of(Collect(_positive("collect", "limit", limit)), column, where=where)


def top(n: int, *, by: str, columns: str | Sequence[str] | None = None, where: Condition | None = None) -> Aggregate:
    """List of the `n` largest values of the column `by`, largest first; of equal ones those that arrived first.

    `columns` returns another column of the same messages instead, or, as a list of names, records of several columns.
    """
    given = by if columns is None else columns
    names = (given,) if isinstance(given, str) else tuple(given)
    top = Top(_positive("top", "n", n), names, records=not isinstance(given, str))
    return of(top, by, *names, where=where)


def variance(column: str, *, population: bool = False, where: Condition | None = None) -> Aggregate:
    """Variance of a sample, or with `population=True` of a population; null for a sample of fewer than two values."""
    return of(Spread(root=False, population=population), column, where=where)


def stddev(column: str, *, population: bool = False, where: Condition | None = None) -> Aggregate:
    """Standard deviation of a sample, or with `population=True` of a population; null like `variance`."""
    return of(Spread(root=True, population=population), column, where=where)


def any_(column: str, *, where: Condition | None = None) -> Aggregate:
    """Whether any value of a column of booleans is true; null without a value."""
    return of(Truth(every=False), column, where=where)


def all_(column: str, *, where: Condition | None = None) -> Aggregate:
    """Whether all values of a column of booleans are true; null without a value."""
    return of(Truth(every=True), column, where=where)


def of(aggregator: Aggregator, column: str, *columns: str, where: Condition | None = None) -> Aggregate:
    """Aggregate columns by an `Aggregator` of your own. Messages with a null in the first column are left out."""
    if not isinstance(aggregator, Aggregator):
        raise GraphError(f"agg.of takes an instance of a class that inherits from agg.Aggregator, not {aggregator!r}")
    name = aggregator.state_name
    if Accumulator(name).is_number:
        raise GraphError(f"an aggregator cannot have the name {name!r} of a built-in aggregate")
    return Aggregate(name, column, where=_where(where), aggregator=aggregator, more=columns)


def _where(given: Any) -> Where | None:
    if given is not None and not isinstance(given, str) and not is_expression(given):
        raise GraphError(
            f"where= takes the name of a column of booleans, or an expression of pyarrow.compute, such as "
            f"pc.field('cents') > 100, not {given!r}"
        )
    return None if given is None else Where(given, str(given))


def _positive(function: str, option: str, given: Any) -> int:
    if not isinstance(given, int) or given < 1:
        raise GraphError(f"{function}: {option}= takes a number from 1 on, not {given!r}")
    return given
