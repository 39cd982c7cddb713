"""flat_map and filter_map: any number of values, or at most one, for each value."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from tidewheel._core.bytecode_reads import analyse_reads
from tidewheel._operators.annotations import item_of, returned
from tidewheel._operators.base import Context, Operator, Process, Reads, each, reads_of_function, without
from tidewheel._operators.field_getter import check_field
from tidewheel._values import Batch, Shape, shape_of
from tidewheel._values.shape import unwrap_optional
from tidewheel.errors import StepError


@dataclass(frozen=True)
class FlatMap(Operator):
    """Replace each value by the items of the iterable that the function returns, in order."""

    function: Callable[..., Iterable[Any]]
    returns: Any = None
    with_key: bool = False
    """Whether the function is called with key and value."""
    kind = "flat_map"

    def start(self, context: Context) -> Process:
        return _Flattening(self.all_items, self, context)

    def check(self, inputs: tuple[Shape, ...]) -> None:
        check_field(self.function, inputs[0])

    def shapes(self, inputs: tuple[Shape, ...]) -> tuple[Shape, ...]:
        """Take the declared type of an item, or the function's annotation."""
        return (shape_of(self.returns or item_of(returned(self.function))),)

    def reads_by_code(self, shape: Shape) -> Reads | None:
        return reads_of_function(analyse_reads(self.function, int(self.with_key)), shape)

    def all_items(self, *given: Any) -> list[Any]:
        """Return the items as a list, so that a generator fails here, where the record is known."""
        items = self.function(*given)
        if not isinstance(items, Iterable) or isinstance(items, str | bytes):
            raise StepError(f"the function must return an iterable of values, not {type(items).__name__}")
        return list(items)


@dataclass(frozen=True)
class FilterMap(Operator):
    """Replace each value by the result of the function, and drop it if the result is None."""

    function: Callable[..., Any]
    returns: Any = None
    with_key: bool = False
    """Whether the function is called with key and value."""
    kind = "filter_map"

    def start(self, context: Context) -> Process:
        return _Flattening(self.at_most_one, self, context)

    def check(self, inputs: tuple[Shape, ...]) -> None:
        check_field(self.function, inputs[0])

    def shapes(self, inputs: tuple[Shape, ...]) -> tuple[Shape, ...]:
        """The declared type, or T if the function is annotated to return T or None."""
        return (shape_of(self.returns or unwrap_optional(returned(self.function))[0]),)

    def reads_by_code(self, shape: Shape) -> Reads | None:
        return reads_of_function(analyse_reads(self.function, int(self.with_key)), shape)

    def at_most_one(self, *given: Any) -> list[Any]:
        """Return the value in a list, or an empty list for None."""
        result = self.function(*given)
        return [] if result is None else [result]


class _Flattening(Process):
    def __init__(self, function: Callable[..., list[Any]], operator: FlatMap | FilterMap, context: Context) -> None:
        self.function, self.with_key, self.context = function, operator.with_key, context
        self.read = analyse_reads(operator.function, int(self.with_key))

    def on_batch(self, batch: Batch, port: int) -> None:
        lists, rejected = each(self.context, batch, self.function, self.read, self.with_key)
        batch = without(batch, rejected)
        origin = [position for position, items in enumerate(lists) for _ in items]
        out = [item for items in lists for item in items]
        self.context.emit(batch.take(origin).with_values(self.context.shapes[0], out))
