"""filter, with_columns and select with Arrow expressions, without Python code per record."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidewheel._operators.accepted import accepted
from tidewheel._operators.base import Context, Operator, Process, Reads, columns_of
from tidewheel._operators.stateless.filter import Judged, keep_true
from tidewheel._values import ROW, Batch, Shape
from tidewheel._values.expressions import columns_used, evaluated, result_types
from tidewheel.errors import GraphError, StepError

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Where(Operator):
    """Keep the values for which the expression is true. Values for which it is null are dropped."""

    expression: Any
    kind = "filter"

    def start(self, context: Context) -> Process:
        return self.judge(context, keep_true)

    def judge(self, context: Context, judged: Judged) -> Process:
        """Return a process that finds out for which messages the expression is true, and passes that to `judged`."""
        return _Keeping(self, context, judged)

    @property
    def spelled(self) -> str:
        """The condition, for messages."""
        return str(self.expression)

    def shapes(self, inputs: tuple[Shape, ...]) -> tuple[Shape, ...]:
        return inputs

    def schemas(self, inputs: tuple[pa.Schema | None, ...]) -> tuple[pa.Schema | None, ...]:
        if inputs[0] is not None:
            self.checked(inputs[0])
        return inputs

    def checked(self, schema: pa.Schema) -> None:
        """Raise a `GraphError` if the expression over these columns is not boolean."""
        (kind,) = _types(schema, [self.expression])
        if not pa.types.is_boolean(kind):
            raise GraphError(f"{self.expression} is of type {kind}; {self.kind} needs a boolean expression")

    def reads_of(self, columns: pa.Schema | None) -> Reads | None:
        return None if columns is None else Reads(columns_used(columns, self.expression), (0,))


@dataclass(frozen=True, eq=False)
class Computed(Operator):
    """Columns computed by expressions, by name."""

    expressions: dict[str, Any]
    passes_on: ClassVar[bool]
    """Whether the other columns are kept too."""

    def start(self, context: Context) -> Process:
        return _Computing(self, context)

    def shapes(self, inputs: tuple[Shape, ...]) -> tuple[Shape, ...]:
        """Rows, because the columns of a declared type change."""
        return (ROW,)

    def schemas(self, inputs: tuple[pa.Schema | None, ...]) -> tuple[pa.Schema | None, ...]:
        return (None,) if inputs[0] is None else (self.checked(inputs[0]),)

    def checked(self, schema: pa.Schema) -> pa.Schema:
        """Return the output columns. Raise a `GraphError` if an expression does not match the input columns."""
        kinds = _types(schema, list(self.expressions.values()))
        passed = {field.name: field.type for field in schema if self.passes_on}
        return pa.schema(passed | dict(zip(self.expressions, kinds, strict=True)))

    def computed(self, columns: pa.RecordBatch) -> pa.RecordBatch:
        """Return the output columns."""
        arrays = dict(zip(columns.schema.names, columns.columns, strict=True)) if self.passes_on else {}
        arrays.update(zip(self.expressions, evaluated(columns, list(self.expressions.values())), strict=True))
        return pa.RecordBatch.from_arrays(list(arrays.values()), list(arrays))

    def reads_of(self, columns: pa.Schema | None) -> Reads | None:
        if columns is None:
            return None
        used = set().union(*(columns_used(columns, each) for each in self.expressions.values()))
        return Reads(used, (0,), made=frozenset(self.expressions)) if self.passes_on else Reads(used)


class WithColumns(Computed):
    """Add computed columns; they replace columns of the same name."""

    kind = "with_columns"
    passes_on = True


class Select(Computed):
    """Keep only these computed columns, in this order."""

    kind = "select"
    passes_on = False


def _types(schema: pa.Schema, expressions: list[Any]) -> list[pa.DataType]:
    try:
        return result_types(schema, expressions)
    except ValueError as error:
        raise GraphError(str(error)) from None


class _Checked(Process):
    """Check expressions once for each schema of the data, which the driver may not have known."""

    operator: Where | Computed

    def __init__(self, operator: Any, context: Context) -> None:
        self.operator, self.context = operator, context
        self._schema: pa.Schema | None = None

    def _fitting(self, batch: Batch) -> pa.RecordBatch:
        columns = columns_of(batch)
        if columns.schema != self._schema:
            try:
                self.operator.checked(columns.schema)
            except GraphError as error:
                raise StepError(str(error)) from None
            self._schema = columns.schema
        return columns


class _Keeping(_Checked):
    operator: Where

    def __init__(self, operator: Where, context: Context, judged: Judged) -> None:
        super().__init__(operator, context)
        self.judged = judged

    def on_batch(self, batch: Batch, port: int) -> None:
        for part, keep in accepted(self.context, batch, self._kept):
            self.judged(self.context, part, keep)

    def _kept(self, batch: Batch) -> npt.NDArray[np.bool_]:
        columns = self._fitting(batch)
        (mask,) = _with_arrow_error(lambda: evaluated(columns, [self.operator.expression]))
        kept: npt.NDArray[np.bool_] = mask.fill_null(False).to_numpy(zero_copy_only=False)
        return kept


class _Computing(_Checked):
    operator: Computed

    def on_batch(self, batch: Batch, port: int) -> None:
        for part, columns in accepted(self.context, batch, self._computed):
            self.context.emit(part.with_columns(self.context.shapes[0], columns))

    def _computed(self, batch: Batch) -> pa.RecordBatch:
        columns = self._fitting(batch)
        return _with_arrow_error(lambda: self.operator.computed(columns))


def _with_arrow_error(work: Callable[[], T]) -> T:
    """Return Arrow's error text for an expression that fails for a record, such as a division by zero."""
    try:
        return work()
    except pa.ArrowException as error:
        raise StepError(str(error)) from None
