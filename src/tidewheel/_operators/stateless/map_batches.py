"""map_batches: Arrow in, Arrow out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tidewheel._core.user_code import described
from tidewheel._operators.accepted import accepted
from tidewheel._operators.base import Context, Operator, Process, columns_of
from tidewheel._values import ROW, Batch, Shape, shape_of
from tidewheel.errors import StepError


@dataclass(frozen=True)
class MapBatches(Operator):
    """Pass the values to the function as an Arrow record batch, and replace them by the record batch that it returns.

    The function must not depend on the number of rows in a batch. On a keyed stream it must return as many rows as it
    received, in the same order, so that each row keeps its key.
    """

    function: Callable[[pa.RecordBatch], pa.RecordBatch]
    returns: Any = None
    kind = "map_batches"

    def start(self, context: Context) -> Process:
        return _MappingBatches(self, context)

    def shapes(self, inputs: tuple[Shape, ...]) -> tuple[Shape, ...]:
        """The declared type, or rows if none is declared."""
        return (shape_of(self.returns) if self.returns is not None else ROW,)


class _MappingBatches(Process):
    def __init__(self, operator: MapBatches, context: Context) -> None:
        self.function, self.context = operator.function, context

    def on_batch(self, batch: Batch, port: int) -> None:
        for part, result in accepted(self.context, batch, self._result):
            self._emit(part, result)

    def _result(self, batch: Batch) -> Any:
        columns = columns_of(batch)
        try:
            return self.function(columns)
        except Exception as error:
            self.context.check_transient(error)
            if len(batch) == 1:
                raise
            raise StepError(
                f"its function failed on a batch of {len(batch)} records with columns "
                f"{', '.join(columns.schema.names)}: "
                f"{described(error)}"
            ) from error

    def _emit(self, batch: Batch, result: Any) -> None:
        name = self.context.operator
        if isinstance(result, pa.Table):
            batches = result.to_batches()
            result = pa.concat_batches(batches) if batches else pa.RecordBatch.from_pylist([], schema=result.schema)
        if not isinstance(result, pa.RecordBatch):
            raise StepError(
                f"step {name!r}: the function of map_batches must return a pyarrow.RecordBatch or Table, "
                f"not {type(result).__name__}"
            )
        if (batch.keyed or batch.times is not None) and result.num_rows != len(batch):
            raise StepError(
                f"step {name!r}: on a keyed or timed stream map_batches must return as many rows as it received "
                f"({len(batch)}), not {result.num_rows}; change the number of rows before key_by"
            )
        self.context.emit(batch.with_columns(self.context.shapes[0], result))
