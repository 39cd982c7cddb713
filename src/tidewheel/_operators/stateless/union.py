"""union: several streams as one."""

from __future__ import annotations

from dataclasses import dataclass

from tidewheel._operators.base import Context, Operator, Process
from tidewheel._values import ANY, Batch, Shape


@dataclass(frozen=True)
class Union(Operator):
    """Pass the messages of all inputs on. Between inputs no order is promised."""

    kind = "union"

    def start(self, context: Context) -> Process:
        return _Uniting(context)

    def shapes(self, inputs: tuple[Shape, ...]) -> tuple[Shape, ...]:
        """What all inputs have in common, or nothing declared."""
        return (inputs[0],) if all(shape == inputs[0] for shape in inputs) else (ANY,)


class _Uniting(Process):
    def __init__(self, context: Context) -> None:
        self.context = context

    def on_batch(self, batch: Batch, port: int) -> None:
        shape = self.context.shapes[0]
        # Columns would come back as the declared shape says; where the inputs differ, only the values themselves are right.
        self.context.emit(batch if batch.shape == shape else batch.with_values(shape, batch.values))
