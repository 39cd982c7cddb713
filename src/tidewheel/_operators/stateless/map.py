"""map: one value in, one value out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tidewheel._core.fields_read import fields_read
from tidewheel._operators.annotations import returned
from tidewheel._operators.base import Context, Operator, Process, Reads, each, reads_of_function, without
from tidewheel._values import Batch, Shape, shape_of


@dataclass(frozen=True)
class Map(Operator):
    """Replace each value by what the function returns for it."""

    function: Callable[[Any], Any]
    returns: Any = None
    kind = "map"

    def start(self, context: Context) -> Process:
        return _Mapping(self, context)

    def shapes(self, inputs: tuple[Shape, ...]) -> tuple[Shape, ...]:
        """Take the declared type, or the function's annotation."""
        return (shape_of(self.returns or returned(self.function)),)

    def reads_by_code(self, shape: Shape) -> Reads | None:
        return reads_of_function(fields_read(self.function, 0), shape)


class _Mapping(Process):
    def __init__(self, operator: Map, context: Context) -> None:
        self.function, self.context = operator.function, context
        self.read = fields_read(operator.function, 0)

    def on_batch(self, batch: Batch, port: int) -> None:
        out, rejected = each(self.context, batch, self.function, self.read)
        self.context.emit(without(batch, rejected).with_values(self.context.shapes[0], out))
