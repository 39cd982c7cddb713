"""ColumnAggregates: what operators that keep aggregates as columns have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

import pyarrow as pa

from tidewheel._operators.aggregates.functions import (
    Accumulator,
    Aggregate,
    Array,
    accumulators_of,
    check_columns,
    columns_of,
    continued,
)
from tidewheel._operators.aggregates.partial_results import KEY, Rewriting, grouping_keys
from tidewheel._operators.base import Operator
from tidewheel._values import Batch, Shape
from tidewheel.errors import GraphError


@dataclass(frozen=True)
class ColumnAggregates(Operator):
    """Keeps named aggregates; the numbers that they need are its accumulators."""

    aggregates: dict[str, Aggregate]
    order: tuple[Accumulator, ...] = field(default=(), kw_only=True)
    """The order of the numbers in stored rows, where the state of an earlier program says it."""
    accumulators: tuple[Accumulator, ...] = field(init=False)
    stateful = True
    combines = True
    most_numbers: ClassVar[int]
    """How many numbers a stored row can have."""

    def __post_init__(self) -> None:
        accumulators = accumulators_of(self.aggregates)
        if not 1 <= len(accumulators) <= self.most_numbers:
            raise GraphError(
                f"{self.kind} takes one to about {self.most_numbers // 2} aggregates: it keeps 1 to {self.most_numbers} numbers "
                f"per key, and these need {len(accumulators)}"
            )
        object.__setattr__(self, "accumulators", self.order or accumulators)

    @abstractmethod
    def stored_numbers(self, layout: str) -> tuple[Accumulator, ...] | None:
        """Return the numbers that state of a layout has; None if the operator cannot go on with such state."""

    def continuing(self, layout: str) -> Operator | None:
        stored = self.stored_numbers(layout)
        if stored is None:
            return None
        aggregates, order = continued(self.aggregates, stored)
        return replace(self, aggregates=aggregates, order=order)

    def rewriting(self, stored: tuple[Accumulator, ...], before: int = 0) -> Rewriting:
        """Return what makes rows of today's numbers of rows that were stored."""
        return Rewriting(stored, self.accumulators, before)

    def check(self, inputs: tuple[Shape, ...]) -> None:
        check_columns(columns_of(self.accumulators), inputs[0])

    @property
    def codec_name(self) -> str:
        """Fixed-width msgpack: any msgpack reader takes it, and arrays can be made of it without decoding."""
        return "msgpack"

    @property
    def results_kept(self) -> Mapping[str, str]:
        return {name: aggregate.name for name, aggregate in self.aggregates.items()}

    def results(self, totals: dict[Accumulator, Array]) -> list[pa.Array]:
        """Return a column for each aggregate, made of the totals of its accumulators."""
        columns = []
        for aggregate in self.aggregates.values():
            values, mask = aggregate.result(totals)
            columns.append(pa.array(values, mask=mask))
        return columns


def partial_results(batch: Batch) -> pa.Table:
    """Return the partial results that a combiner sent, with the key as first column."""
    columns = batch.columns
    return pa.table([grouping_keys(batch), *columns.columns], names=[KEY, *columns.schema.names])
