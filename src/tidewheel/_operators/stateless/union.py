"""union: merge several streams into one."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from tidewheel._operators.base import Context, Operator, Process, readable
from tidewheel._values import ANY, Batch, Shape
from tidewheel.errors import GraphError


@dataclass(frozen=True)
class Union(Operator):
    """Pass on the messages of all inputs. The order between inputs is undefined."""

    kind = "union"

    def start(self, context: Context) -> Process:
        return _Uniting(context)

    def shapes(self, inputs: tuple[Shape, ...]) -> tuple[Shape, ...]:
        """The common type of all inputs, or none."""
        return (inputs[0],) if all(shape == inputs[0] for shape in inputs) else (ANY,)

    def schemas(self, inputs: tuple[pa.Schema | None, ...]) -> tuple[pa.Schema | None, ...]:
        return (inputs[0],) if all(schema == inputs[0] for schema in inputs) else (None,)

    def timed(self, inputs: tuple[bool | None, ...]) -> bool | None:
        if True in inputs and False in inputs:
            without = [position for position, timed in enumerate(inputs) if timed is False]
            raise GraphError(
                f"some of its streams have timestamps and others do not (number {', '.join(map(str, without))}, "
                "counted "
                "from 0); add event_time or assign_timestamps to each of them before the union"
            )
        return inputs[0] if len(set(inputs)) == 1 else None

    def timestamps(self, inputs: tuple[bool, ...]) -> bool:
        if len(set(inputs)) > 1:
            raise GraphError(
                "some of its streams have timestamps and others have integer times; pass unit= to all "
                "assign_timestamps before it, or to none"
            )
        return inputs[0]


class _Uniting(Process):
    def __init__(self, context: Context) -> None:
        self.context = context

    def on_batch(self, batch: Batch, port: int) -> None:
        shape = self.context.shapes[0]
        if batch.shape == shape:
            self.context.emit(batch)
            return
        # Columns would be read back with the declared shape; if the inputs differ, only the values themselves are
        # correct.
        batch = readable(self.context, batch)
        self.context.emit(batch.with_values(shape, batch.values))
