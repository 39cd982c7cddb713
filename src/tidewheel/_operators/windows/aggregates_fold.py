"""The aggregates of `aggregate` as a fold of sessions: sum_, count, min_, max_ and mean over the columns of values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tidewheel._operators.aggregates.functions import Accumulator, Aggregate, accumulators_of
from tidewheel._time.fold import Fold
from tidewheel._values.row import row_class
from tidewheel.errors import GraphError, OperatorError

Numbers = list[Any]


@dataclass(frozen=True)
class _Aggregates:
    aggregates: dict[str, Aggregate]
    accumulators: tuple[Accumulator, ...]

    def begin(self) -> Numbers:
        return [None if each.fold in ("min", "max") else 0 for each in self.accumulators]

    def add(self, numbers: Numbers, value: Any) -> Numbers:
        for at, accumulator in enumerate(self.accumulators):
            number = 1 if accumulator.column is None else _field(value, accumulator.column)
            if number is not None:
                counts = accumulator.fold in ("count", "rows")
                numbers[at] = _folded(accumulator.fold, numbers[at], 1 if counts else number)
        return numbers

    def merge(self, left: Numbers, right: Numbers) -> Numbers:
        return [
            _folded(accumulator.fold, one, other) if other is not None else one
            for accumulator, one, other in zip(self.accumulators, left, right, strict=True)
        ]

    def result(self, start: int, end: int, numbers: Numbers, correction: bool) -> Any:
        known = dict(zip(self.accumulators, numbers, strict=True))
        results = [_result(aggregate, known) for aggregate in self.aggregates.values()]
        return row_class(("start", "end", *self.aggregates, "correction"))._make(  # type: ignore[attr-defined]
            (start, end, *results, correction)
        )


def window_columns(aggregates: dict[str, Aggregate]) -> dict[str, Aggregate]:
    """Return the aggregates, or refuse those that are called as another column of the result is."""
    taken = {"start", "end", "correction"} & set(aggregates)
    if taken:
        raise GraphError(
            f"an aggregate of a window cannot be called {', '.join(sorted(taken))}: the result has that column"
        )
    return aggregates


def aggregates_fold(aggregates: dict[str, Aggregate]) -> Fold:
    """Return the fold that keeps these aggregates and emits a row: start, end, one column for each, correction."""
    window_columns(aggregates)
    made = _Aggregates(aggregates, accumulators_of(aggregates))
    return Fold(made.begin, made.add, made.merge, made.result)


def _folded(fold: str, kept: Any, number: Any) -> Any:
    if kept is None:
        return number
    return min(kept, number) if fold == "min" else max(kept, number) if fold == "max" else kept + number


def _result(aggregate: Aggregate, known: dict[Accumulator, Any]) -> Any:
    numbers = [known[accumulator] for accumulator in aggregate.accumulators()]
    if aggregate.column is None or aggregate.kind == "count":
        return numbers[0]
    present, number = numbers
    if not present:
        return None
    return number / present if aggregate.kind == "mean" else number


def _field(value: Any, column: str) -> Any:
    if isinstance(value, dict):
        return value.get(column)
    if isinstance(value, int | float) and not isinstance(value, bool):
        # A stream keyed with value="amount" has that one column as its values.
        return value
    try:
        return getattr(value, column)
    except AttributeError:
        raise OperatorError(f"there is no column {column!r} in {value!r}") from None
