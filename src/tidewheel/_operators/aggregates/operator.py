"""ColumnAggregates: the base of steps that keep aggregates as columns."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import pyarrow as pa

from tidewheel._operators.aggregates.functions import (
    Accumulators,
    Aggregate,
    accumulators_of,
    check_columns,
    continued,
)
from tidewheel._operators.aggregates.groups import combined
from tidewheel._operators.aggregates.packed_rows import Rewriting
from tidewheel._operators.aggregates.partial_results import KEY, grouping_keys
from tidewheel._operators.base import Operator, Reads
from tidewheel._state.layout import Accumulator, StateLayout
from tidewheel._values import Batch, Shape
from tidewheel.errors import GraphError


@dataclass(frozen=True)
class ColumnAggregates(Operator):
    """Keep named aggregates; the numbers that they need are the accumulators."""

    aggregates: dict[str, Aggregate]
    order: tuple[Accumulator, ...] = field(default=(), kw_only=True)
    """The order of the numbers in stored rows, if an earlier program determined it."""
    accumulators: Accumulators = field(init=False)
    stateful = True
    combines = True
    most_numbers: ClassVar[int] = 1000
    """The maximum number of numbers and states in a stored row."""
    passed_on: ClassVar[tuple[int, ...]] = ()
    """The outputs that pass messages on unchanged."""

    def __post_init__(self) -> None:
        accumulators = accumulators_of(self.aggregates)
        if not 1 <= len(accumulators) <= self.most_numbers:
            raise GraphError(
                f"{self.kind} accepts one to about {self.most_numbers // 2} aggregates: it stores 1 to "
                f"{self.most_numbers} numbers and states per key, and these need {len(accumulators)}"
            )
        ordered = Accumulators(self.order, self.aggregates.values()) if self.order else accumulators
        object.__setattr__(self, "accumulators", ordered)

    @abstractmethod
    def stored_numbers(self, layout: StateLayout) -> tuple[Accumulator, ...] | None:
        """Return the numbers in state of a layout; None if the step cannot continue with such state."""

    def continuing(self, layout: StateLayout) -> Operator | None:
        stored = self.stored_numbers(layout)
        if stored is None:
            return None
        aggregates, order = continued(self.aggregates, stored)
        return replace(self, aggregates=aggregates, order=order)

    @property
    def order_matters(self) -> bool:
        return self.accumulators.order_matters

    def rewriting(self, stored: tuple[Accumulator, ...], before: int = 0, single: bool = False) -> Rewriting:
        """Return the conversion of the stored rows of a key into rows of the current numbers."""
        return Rewriting(stored, self.accumulators, before, single)

    def check(self, inputs: tuple[Shape, ...]) -> None:
        check_columns(self.accumulators, inputs[0])

    def schemas(self, inputs: tuple[pa.Schema | None, ...]) -> tuple[pa.Schema | None, ...]:
        if inputs[0] is not None:
            for where in self.accumulators.conditions.values():
                where.check(inputs[0])
        return super().schemas(inputs)

    def reads(self) -> Reads | None:
        return self.reads_of(None)

    def reads_of(self, columns: pa.Schema | None) -> Reads | None:
        read = self.accumulators.columns(columns)
        return None if read is None else Reads(read, self.passed_on)

    @property
    def codec_name(self) -> str:
        """Fixed-width msgpack: any msgpack reader can read it, and it converts to arrays without decoding."""
        return "msgpack"

    @property
    def results_kept(self) -> Mapping[str, str]:
        return {name: aggregate.name for name, aggregate in self.aggregates.items()}

    def results(self, totals: dict[Accumulator, Any]) -> list[pa.Array]:
        """Return a column for each aggregate, computed from its accumulators."""
        return [aggregate.result(totals) for aggregate in self.aggregates.values()]


def partial_results(batch: Batch) -> pa.Table:
    """Return the partial results from a combiner, with the key as the first column."""
    columns = batch.columns
    return pa.table([grouping_keys(batch), *columns.columns], names=[KEY, *columns.schema.names])


def column_values(table: pa.Table, accumulator: Accumulator) -> Any:
    """Return the numbers of an accumulator as an array of numpy, or its states as one of Arrow."""
    column = table.column(accumulator.name)
    return column.to_numpy() if accumulator.is_number else combined(column)
