"""filter, with_columns and select by expressions of Arrow: no Python runs for a record."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidewheel._operators.accepted import accepted
from tidewheel._operators.base import Context, Operator, Process, Reads, columns_of
from tidewheel._values import ROW, Batch, Shape
from tidewheel._values.expressions import columns_used, evaluated, result_types
from tidewheel.errors import GraphError, OperatorError

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Where(Operator):
    """Keep the values for which the expression is true; where it is null, it is not."""

    expression: Any
    kind = "filter"

    def start(self, context: Context) -> Process:
        return _Keeping(self, context)

    def shapes(self, inputs: tuple[Shape, ...]) -> tuple[Shape, ...]:
        return inputs

    def schemas(self, inputs: tuple[pa.Schema | None, ...]) -> tuple[pa.Schema | None, ...]:
        if inputs[0] is not None:
            self.checked(inputs[0])
        return inputs

    def checked(self, schema: pa.Schema) -> None:
        """Refuse, with a `GraphError`, columns over which the expression is not a yes or no."""
        (kind,) = _types(schema, [self.expression])
        if not pa.types.is_boolean(kind):
            raise GraphError(f"{self.expression} is of type {kind}; filter takes an expression that is true or false")

    def reads_of(self, columns: pa.Schema | None) -> Reads | None:
        return None if columns is None else Reads(columns_used(columns, self.expression), (0,))


@dataclass(frozen=True, eq=False)
class Computed(Operator):
    """Columns that are what expressions give, by name."""

    expressions: dict[str, Any]
    passes_on: ClassVar[bool]
    """Whether the other columns go on too."""

    def start(self, context: Context) -> Process:
        return _Computing(self, context)

    def shapes(self, inputs: tuple[Shape, ...]) -> tuple[Shape, ...]:
        """Rows: a declared type has other columns."""
        return (ROW,)

    def schemas(self, inputs: tuple[pa.Schema | None, ...]) -> tuple[pa.Schema | None, ...]:
        return (None,) if inputs[0] is None else (self.checked(inputs[0]),)

    def checked(self, schema: pa.Schema) -> pa.Schema:
        """Return the columns behind it; refuse, with a `GraphError`, columns that an expression does not fit."""
        kinds = _types(schema, list(self.expressions.values()))
        passed = {field.name: field.type for field in schema if self.passes_on}
        return pa.schema(passed | dict(zip(self.expressions, kinds, strict=True)))

    def computed(self, columns: pa.RecordBatch) -> pa.RecordBatch:
        """Return the columns behind it."""
        arrays = dict(zip(columns.schema.names, columns.columns, strict=True)) if self.passes_on else {}
        arrays.update(zip(self.expressions, evaluated(columns, list(self.expressions.values())), strict=True))
        return pa.RecordBatch.from_arrays(list(arrays.values()), list(arrays))

    def reads_of(self, columns: pa.Schema | None) -> Reads | None:
        if columns is None:
            return None
        used = set().union(*(columns_used(columns, each) for each in self.expressions.values()))
        return Reads(used, (0,), made=frozenset(self.expressions)) if self.passes_on else Reads(used)


class WithColumns(Computed):
    """Add columns, each what an expression gives, or put them in place of those of the same name."""

    kind = "with_columns"
    passes_on = True


class Select(Computed):
    """Go on with these columns only, each what an expression gives, in this order."""

    kind = "select"
    passes_on = False


def _types(schema: pa.Schema, expressions: list[Any]) -> list[pa.DataType]:
    try:
        return result_types(schema, expressions)
    except ValueError as error:
        raise GraphError(str(error)) from None


class _Checked(Process):
    """Checks expressions once for each schema of the data: the driver may not have known it."""

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
                raise OperatorError(str(error)) from None
            self._schema = columns.schema
        return columns


class _Keeping(_Checked):
    operator: Where

    def on_batch(self, batch: Batch, port: int) -> None:
        for part, keep in accepted(self.context, batch, self._kept):
            self.context.emit(part if keep.all() else part.take(np.flatnonzero(keep)))

    def _kept(self, batch: Batch) -> npt.NDArray[np.bool_]:
        columns = self._fitting(batch)
        (mask,) = _told(lambda: evaluated(columns, [self.operator.expression]))
        kept: npt.NDArray[np.bool_] = mask.fill_null(False).to_numpy(zero_copy_only=False)
        return kept


class _Computing(_Checked):
    operator: Computed

    def on_batch(self, batch: Batch, port: int) -> None:
        for part, columns in accepted(self.context, batch, self._computed):
            self.context.emit(part.with_columns(self.context.shapes[0], columns))

    def _computed(self, batch: Batch) -> pa.RecordBatch:
        columns = self._fitting(batch)
        return _told(lambda: self.operator.computed(columns))


def _told(work: Callable[[], T]) -> T:
    """Say what Arrow says where an expression fails for a record, such as a division by zero."""
    try:
        return work()
    except pa.ArrowException as error:
        raise OperatorError(str(error)) from None
