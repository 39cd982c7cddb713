"""source: where records enter the program."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

import pyarrow as pa

from tidewheel._connectors.bad_lines import BadLine, parted
from tidewheel._connectors.source import Source
from tidewheel._operators.accepted import accepted
from tidewheel._operators.base import Context, Operator, Process, without
from tidewheel._values import SCALAR, Batch, Shape
from tidewheel._values.declared import as_declared, unfilled
from tidewheel.errors import ConfigError, GraphError, StepError


@dataclass(frozen=True)
class SourceOperator(Operator):
    """A source of records, and the shape that its records have in the program."""

    source: Source
    shape: Shape
    kind = "source"

    def check_source(self, name: str, *, runs: bool) -> list[str]:
        """Check the source before a run, or for a program that is only inspected; return its warnings. Errors name the source."""
        try:
            if runs:
                self.source.check()
            else:
                self.source.check_program()
            return [f"source {name!r}: {warning}" for warning in self.source.warnings()]
        except ConfigError as error:
            error.args = (f"source {name!r}: {error}",)
            raise

    def start(self, context: Context) -> Process:
        return _Reading(self.shape, context)

    def shapes(self, inputs: tuple[Shape, ...]) -> tuple[Shape, ...]:
        return (self.shape,)

    def schemas(self, inputs: tuple[pa.Schema | None, ...]) -> tuple[pa.Schema | None, ...]:
        """The columns of a declared type. Those of other sources are known only when Spark has started."""
        with contextlib.suppress(GraphError):  # A type that no column can have is reported where it is used.
            return (self.shape.schema(),)
        return (None,)


class _Reading(Process):
    def __init__(self, shape: Shape, context: Context) -> None:
        self.shape, self.context = shape, context

    def on_batch(self, batch: Batch, port: int) -> None:
        records, bad_lines = parted(batch.columns)
        if bad_lines:
            self._reject(bad_lines)
        if records is not batch.columns:
            batch = Batch(batch.shape, columns=records)
            if not len(batch):
                return
        if not self._declared:
            self.context.emit(Batch(self.shape, columns=batch.columns, times=batch.times))
            return
        for part, columns in accepted(self.context, batch, lambda part: as_declared(part.columns, self.shape)):
            empty = unfilled(columns, self.shape)
            for position, name in empty.items():
                self.context.reject(self._is_null(name), part, position)
            self.context.emit(without(Batch(self.shape, columns=columns, times=part.times), list(empty)))

    @property
    def _declared(self) -> bool:
        return self.shape.kind == "record" or (self.shape.kind == "scalar" and self.shape.type is not None)

    def _is_null(self, column: str) -> StepError:
        declared = self.shape.describe()
        if self.shape.kind == "record":
            return StepError(
                f"{column!r} is null or missing; declare it as optional in {declared} if that is valid, or give the "
                "field the "
                "name of the column if it has another one"
            )
        return StepError(
            f"the column {column!r} is null or missing; type={declared} reads only this column. "
            f"Write type={declared} | None if it may be null; if the column has another name, declare "
            "a dataclass with that field"
        )

    def _reject(self, lines: list[BadLine]) -> None:
        """Reject lines that are not records, with their text and their position."""
        batch = Batch(SCALAR, values=[line.text for line in lines])
        advice = (
            ""
            if self.context.keeps_rejected()
            else ". Correct it, or send such lines to a sink with job.dead_letter(name, sink)"
        )
        for position, line in enumerate(lines):
            self.context.reject(StepError(f"{line.where}: {line.reason}{advice}"), batch, position)
