"""inspect_frontier: call a function with each epoch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tidewheel._operators.base import Context, Operator, Process
from tidewheel._time.duration import moment
from tidewheel._values import Batch, Shape


@dataclass(frozen=True)
class InspectFrontier(Operator):
    """Call the function with each epoch; messages pass unchanged.

    The function runs in every task of its level and outside the commit. If a batch runs again, it is called again.
    """

    function: Callable[[Any], Any]
    kind = "inspect_frontier"

    def start(self, context: Context) -> Process:
        return _Inspecting(self.function, context)

    def shapes(self, inputs: tuple[Shape, ...]) -> tuple[Shape, ...]:
        return inputs

    def schemas(self, inputs: tuple[pa.Schema | None, ...]) -> tuple[pa.Schema | None, ...]:
        return inputs

    @property
    def driven_by_time(self) -> bool:
        return True


class _Inspecting(Process):
    def __init__(self, function: Callable[[Any], Any], context: Context) -> None:
        self.function, self.context = function, context

    def on_batch(self, batch: Batch, port: int) -> None:
        self.context.emit(batch)

    def on_epoch(self, epoch: int) -> None:
        self.function(moment(epoch) if self.context.timestamps else epoch)
