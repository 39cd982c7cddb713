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
from tidewheel.errors import OperatorError


@dataclass(frozen=True)
class MapBatches(Operator):
    """Give the function the values as an Arrow record batch and go on with the record batch it returns.

    How many rows a batch has is up to Spark: the function must not depend on it. On a keyed stream the function must
    return as many rows as it got, in the same order, so that each keeps its key.
    """

    function: Callable[[pa.RecordBatch], pa.RecordBatch]
    returns: Any = None
    kind = "map_batches"

    def start(self, context: Context) -> Process:
        return _MappingBatches(self, context)

    def shapes(self, inputs: tuple[Shape, ...]) -> tuple[Shape, ...]:
        """Take the declared type; rows with attributes where none is declared."""
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
            raise OperatorError(
                f"its function failed on a batch of {len(batch)} records with columns {', '.join(columns.schema.names)}: "
                f"{described(error)}"
            ) from error

    def _emit(self, batch: Batch, result: Any) -> None:
        name = self.context.operator
        if isinstance(result, pa.Table):
            batches = result.to_batches()
            result = pa.concat_batches(batches) if batches else pa.RecordBatch.from_pylist([], schema=result.schema)
        if not isinstance(result, pa.RecordBatch):
            raise OperatorError(
                f"operator {name!r}: the function of map_batches must return a pyarrow.RecordBatch or Table, "
                f"not {type(result).__name__}"
            )
        if (batch.keyed or batch.times is not None) and result.num_rows != len(batch):
            raise OperatorError(
                f"operator {name!r}: on a keyed or timed stream map_batches must return as many rows as it got "
                f"({len(batch)}), not {result.num_rows}; change the number of rows before key_by"
            )
        self.context.emit(batch.with_columns(self.context.shapes[0], result))
