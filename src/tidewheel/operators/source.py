"""source: where records enter the program."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tidewheel.errors import OperatorError
from tidewheel.operators.base import Context, Operator, Process
from tidewheel.sources.base import Source
from tidewheel.values import Batch, Shape


@dataclass(frozen=True)
class SourceOperator(Operator):
    """A source of records, and the shape that its records have in the program."""

    source: Source
    shape: Shape
    kind = "source"

    def start(self, context: Context) -> Process:
        """Start in a task."""
        return _Reading(self.shape, context)

    def shapes(self, inputs: tuple[Shape, ...]) -> tuple[Shape, ...]:
        """What was declared."""
        return (self.shape,)


class _Reading(Process):
    def __init__(self, shape: Shape, context: Context) -> None:
        self.shape, self.context = shape, context

    def on_batch(self, batch: Batch, port: int) -> None:
        wanted = self.shape.columns()
        columns = batch.columns
        if wanted is not None and self.shape.kind == "record":
            lacking: list[Any] = [name for name in wanted if name not in columns.schema.names]
            if lacking:
                raise OperatorError(
                    f"source {self.context.operator!r}: its records lack the column {', '.join(lacking)} of "
                    f"{self.shape.describe()}; they have {', '.join(columns.schema.names)}"
                )
            columns = columns.select(list(wanted))
        self.context.emit(Batch(self.shape, columns=columns, times=batch.times))
