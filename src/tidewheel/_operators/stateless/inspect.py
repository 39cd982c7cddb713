"""inspect: look at values as they pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tidewheel._core.fields_read import fields_read
from tidewheel._operators.base import Context, Operator, Process, each, without
from tidewheel._values import Batch, Shape


@dataclass(frozen=True)
class Inspect(Operator):
    """Call the function with each value; values pass unchanged.

    It runs in the tasks and outside the commit: a batch that runs again after a failure is inspected again.
    """

    function: Callable[[Any], Any]
    kind = "inspect"

    def start(self, context: Context) -> Process:
        return _Inspecting(self.function, context)

    def shapes(self, inputs: tuple[Shape, ...]) -> tuple[Shape, ...]:
        return inputs

    def schemas(self, inputs: tuple[pa.Schema | None, ...]) -> tuple[pa.Schema | None, ...]:
        return inputs


class _Inspecting(Process):
    def __init__(self, function: Callable[[Any], Any], context: Context) -> None:
        self.function, self.context = function, context
        self.read = fields_read(function, 0)

    def on_batch(self, batch: Batch, port: int) -> None:
        _, rejected = each(self.context, batch, self.function, self.read)
        self.context.emit(without(batch, rejected))
