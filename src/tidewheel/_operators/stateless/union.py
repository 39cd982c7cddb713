"""union: several streams as one."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from tidewheel._operators.base import Context, Operator, Process, readable
from tidewheel._values import ANY, Batch, Shape
from tidewheel.errors import GraphError


@dataclass(frozen=True)
class Union(Operator):
    """Pass the messages of all inputs on. Between inputs no order is promised."""

    kind = "union"

    def start(self, context: Context) -> Process:
        return _Uniting(context)

    def shapes(self, inputs: tuple[Shape, ...]) -> tuple[Shape, ...]:
        """What all inputs have in common, or nothing declared."""
        return (inputs[0],) if all(shape == inputs[0] for shape in inputs) else (ANY,)

    def schemas(self, inputs: tuple[pa.Schema | None, ...]) -> tuple[pa.Schema | None, ...]:
        return (inputs[0],) if all(schema == inputs[0] for schema in inputs) else (None,)

    def timed(self, inputs: tuple[bool | None, ...]) -> bool | None:
        if True in inputs and False in inputs:
            without = [position for position, timed in enumerate(inputs) if timed is False]
            raise GraphError(
                f"some of its streams have timestamps, and others have none (number {', '.join(map(str, without))}, counted "
                "from 0); put assign_timestamps before it in each of them"
            )
        return inputs[0] if len(set(inputs)) == 1 else None

    def timestamps(self, inputs: tuple[bool, ...]) -> bool:
        if len(set(inputs)) > 1:
            raise GraphError(
                "the times of some of its streams are timestamps, and those of others integers; name the unit= in all "
                "assign_timestamps before it, or in none"
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
        # Columns would come back as the declared shape says; where the inputs differ, only the values themselves are right.
        batch = readable(self.context, batch)
        self.context.emit(batch.with_values(shape, batch.values))
