"""filter: keep the values a function says yes to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tidewheel._core.fields_read import fields_read
from tidewheel._operators.base import Context, Operator, Process, Reads, each, reads_of_function, without
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

    def schemas(self, inputs: tuple[pa.Schema | None, ...]) -> tuple[pa.Schema | None, ...]:
        return inputs

    def reads_by_code(self, shape: Shape) -> Reads | None:
        return reads_of_function(fields_read(self.function, 0), shape, (0,))


class _Filtering(Process):
    def __init__(self, function: Callable[[Any], Any], context: Context) -> None:
        self.function, self.context = function, context
        self.read = fields_read(function, 0)

    def on_batch(self, batch: Batch, port: int) -> None:
        verdicts, rejected = each(self.context, batch, self._verdict, self.read)
        batch = without(batch, rejected)
        if not all(verdicts):
            batch = batch.take(np.flatnonzero(np.fromiter(verdicts, bool, len(verdicts))))
        self.context.emit(batch)

    def _verdict(self, value: Any) -> bool:
        # An answer may be something that is neither true nor false, such as an array.
        return bool(self.function(value))
