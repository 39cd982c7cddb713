"""map: one value in, one value out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from tidewheel._core.fields_added import FieldsAdded, fields_added
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
        added = fields_added(self.function)
        if added is not None and shape.kind in ("dict", "any"):
            return Reads(added.read.names, (0,), made=added.names)
        return reads_of_function(fields_read(self.function, 0), shape)


class _Mapping(Process):
    def __init__(self, operator: Map, context: Context) -> None:
        self.function, self.context = operator.function, context
        self.read = fields_read(operator.function, 0)
        self.added = fields_added(operator.function)

    def on_batch(self, batch: Batch, port: int) -> None:
        if self.added is not None and batch.can_add(self.added.read):
            self._add(batch, self.added)
            return
        out, rejected = each(self.context, batch, self.function, self.read)
        self.context.emit(without(batch, rejected).with_values(self.context.shapes[0], out))

    def _add(self, batch: Batch, added: FieldsAdded) -> None:
        """Give the function what it reads, and go on with the columns as they are and the fields that it adds."""
        out, rejected = each(self.context, batch, self.function, added.read)
        fields = {name: list(map(itemgetter(name), out)) for name in added.names}
        self.context.emit(without(batch, rejected).with_added(self.context.shapes[0], fields))
