"""map: one value in, one value out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from tidewheel._core.bytecode_reads import analyse_reads
from tidewheel._core.bytecode_update import DictUpdate, analyse_update
from tidewheel._operators.annotations import returned
from tidewheel._operators.base import Context, Operator, Process, Reads, each, reads_of_function, without
from tidewheel._operators.field_getter import check_field
from tidewheel._values import Batch, Shape, shape_of


@dataclass(frozen=True)
class Map(Operator):
    """Replace each value by the result of the function."""

    function: Callable[..., Any]
    returns: Any = None
    with_key: bool = False
    """Whether the function is called with key and value."""
    kind = "map"

    def start(self, context: Context) -> Process:
        return _Mapping(self, context)

    def check(self, inputs: tuple[Shape, ...]) -> None:
        check_field(self.function, inputs[0])

    def shapes(self, inputs: tuple[Shape, ...]) -> tuple[Shape, ...]:
        """Take the declared type, or the function's annotation."""
        return (shape_of(self.returns or returned(self.function)),)

    def reads_by_code(self, shape: Shape) -> Reads | None:
        added = None if self.with_key else analyse_update(self.function)
        if added is not None and shape.kind in ("dict", "any"):
            return Reads(added.read.names, (0,), made=added.names)
        return reads_of_function(analyse_reads(self.function, int(self.with_key)), shape)


class _Mapping(Process):
    def __init__(self, operator: Map, context: Context) -> None:
        self.function, self.context, self.with_key = operator.function, context, operator.with_key
        self.read = analyse_reads(operator.function, int(self.with_key))
        self.added = None if self.with_key else analyse_update(operator.function)

    def on_batch(self, batch: Batch, port: int) -> None:
        if self.added is not None and batch.can_add(self.added.read):
            self._add(batch, self.added)
            return
        out, rejected = each(self.context, batch, self.function, self.read, self.with_key)
        self.context.emit(without(batch, rejected).with_values(self.context.shapes[0], out))

    def _add(self, batch: Batch, added: DictUpdate) -> None:
        """Call the function with the fields that it reads; keep the columns and append the fields that it adds."""
        out, rejected = each(self.context, batch, self.function, added.read)
        fields = {name: list(map(itemgetter(name), out)) for name in added.names}
        self.context.emit(without(batch, rejected).with_added(self.context.shapes[0], fields))
