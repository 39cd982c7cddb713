"""sink: where records leave the program."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from tidewheel.errors import OperatorError
from tidewheel.operators.base import Context, Operator, Process
from tidewheel.sinks.base import Sink
from tidewheel.values import Batch, Shape


@dataclass(frozen=True)
class SinkOperator(Operator):
    """Write the values' columns; on a keyed stream the key's column first, unless the values have it themselves."""

    sink: Sink
    key_name: str | None = None
    kind = "sink"
    ports = 0

    def start(self, context: Context) -> Process:
        """Start in a task."""
        return _Writing(self, context)

    def shapes(self, inputs: tuple[Shape, ...]) -> tuple[Shape, ...]:
        """Nothing follows a sink."""
        return ()


class _Writing(Process):
    def __init__(self, operator: SinkOperator, context: Context) -> None:
        self.operator, self.context = operator, context

    def on_batch(self, batch: Batch, port: int) -> None:
        if len(batch) == 0:
            return
        try:
            columns = batch.columns
        except (pa.ArrowInvalid, pa.ArrowTypeError, AttributeError) as error:
            raise OperatorError(
                f"sink {self.context.operator!r}: the values do not fit into columns of one type: {error}. Declare what the "
                "operator before it returns (returns=…), or convert the values"
            ) from error
        name = self.operator.key_name
        if batch.keyed and name is not None and name not in columns.schema.names:
            keys = batch.key_column if batch.key_column is not None else pa.array(batch.keys)
            columns = pa.RecordBatch.from_arrays([keys, *columns.columns], [name, *columns.schema.names])
        self.context.write(columns)
