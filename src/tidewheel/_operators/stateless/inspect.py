"""inspect: call a function with each value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tidewheel._core.bytecode_reads import analyse_reads
from tidewheel._operators.base import Context, Operator, Process, each, without
from tidewheel._values import Batch, Shape


@dataclass(frozen=True)
class Inspect(Operator):
    """Call the function with each value; values pass unchanged.

    The function runs in the tasks and outside the commit. If a batch runs again after a failure, it is called again.
    """

    function: Callable[..., Any]
    with_key: bool = False
    """Whether the function is called with key and value."""
    kind = "inspect"

    def start(self, context: Context) -> Process:
        return _Inspecting(self, context)

    def shapes(self, inputs: tuple[Shape, ...]) -> tuple[Shape, ...]:
        return inputs

    def schemas(self, inputs: tuple[pa.Schema | None, ...]) -> tuple[pa.Schema | None, ...]:
        return inputs


class _Inspecting(Process):
    def __init__(self, operator: Inspect, context: Context) -> None:
        self.function, self.with_key, self.context = operator.function, operator.with_key, context
        self.read = analyse_reads(self.function, int(self.with_key))

    def on_batch(self, batch: Batch, port: int) -> None:
        _, rejected = each(self.context, batch, self.function, self.read, self.with_key)
        self.context.emit(without(batch, rejected))
