"""flat_map and filter_map: one value in, any number out, or one at most."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from tidewheel._core.fields_read import FieldsRead, fields_read
from tidewheel._operators.annotations import item_of, returned
from tidewheel._operators.base import Context, Operator, Process, Reads, each, reads_of_function, without
from tidewheel._values import Batch, Shape, shape_of
from tidewheel._values.shape import unwrap_optional
from tidewheel.errors import OperatorError


@dataclass(frozen=True)
class FlatMap(Operator):
    """Replace each value by the items of what the function returns, in their order."""

    function: Callable[[Any], Iterable[Any]]
    returns: Any = None
    kind = "flat_map"

    def start(self, context: Context) -> Process:
        return _Flattening(self.all_items, fields_read(self.function, 0), context)

    def shapes(self, inputs: tuple[Shape, ...]) -> tuple[Shape, ...]:
        """Take the declared type of an item, or the function's annotation."""
        return (shape_of(self.returns or item_of(returned(self.function))),)

    def reads_by_code(self, shape: Shape) -> Reads | None:
        return reads_of_function(fields_read(self.function, 0), shape)

    def all_items(self, value: Any) -> list[Any]:
        """Return the items of one value as a list, so that a generator fails here, where the record is known."""
        items = self.function(value)
        if not isinstance(items, Iterable) or isinstance(items, str | bytes):
            raise OperatorError(f"the function must return an iterable of values, not {type(items).__name__}")
        return list(items)


@dataclass(frozen=True)
class FilterMap(Operator):
    """Replace each value by what the function returns, and leave it out where that is None."""

    function: Callable[[Any], Any]
    returns: Any = None
    kind = "filter_map"

    def start(self, context: Context) -> Process:
        return _Flattening(self.at_most_one, fields_read(self.function, 0), context)

    def shapes(self, inputs: tuple[Shape, ...]) -> tuple[Shape, ...]:
        """Take the declared type, or T where the function is annotated to return T or None: None is left out."""
        return (shape_of(self.returns or unwrap_optional(returned(self.function))[0]),)

    def reads_by_code(self, shape: Shape) -> Reads | None:
        return reads_of_function(fields_read(self.function, 0), shape)

    def at_most_one(self, value: Any) -> list[Any]:
        """Return the value as a list of one, or of none."""
        result = self.function(value)
        return [] if result is None else [result]


class _Flattening(Process):
    def __init__(self, function: Callable[[Any], list[Any]], read: FieldsRead | None, context: Context) -> None:
        self.function, self.read, self.context = function, read, context

    def on_batch(self, batch: Batch, port: int) -> None:
        lists, rejected = each(self.context, batch, self.function, self.read)
        batch = without(batch, rejected)
        origin = [position for position, items in enumerate(lists) for _ in items]
        out = [item for items in lists for item in items]
        self.context.emit(batch.take(origin).with_values(self.context.shapes[0], out))
