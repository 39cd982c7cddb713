"""filter: keep the values a function says yes to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tidewheel._operators.base import Context, Operator, Process, each, without
from tidewheel._values import Batch, Shape


@dataclass(frozen=True)
class Filter(Operator):
    """Keep the values for which the function returns something true."""

    function: Callable[[Any], Any]
    kind = "filter"

    def start(self, context: Context) -> Process:
        return _Filtering(self.function, context)

    def shapes(self, inputs: tuple[Shape, ...]) -> tuple[Shape, ...]:
        return inputs


class _Filtering(Process):
    def __init__(self, function: Callable[[Any], Any], context: Context) -> None:
        self.function, self.context = function, context

    def on_batch(self, batch: Batch, port: int) -> None:
        verdicts, rejected = each(self.context, batch, self.function)
        batch = without(batch, rejected)
        if not all(verdicts):
            batch = batch.take([position for position, keep in enumerate(verdicts) if keep])
        self.context.emit(batch)
