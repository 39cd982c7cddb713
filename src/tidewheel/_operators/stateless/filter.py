"""filter: keep the values for which a function returns a true value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidewheel._core.bytecode_reads import analyse_reads
from tidewheel._operators.base import Context, Operator, Process, Reads, each, reads_of_function, without
from tidewheel._operators.field_getter import check_field
from tidewheel._values import Batch, Shape

Judged = Callable[[Context, Batch, npt.NDArray[np.bool_]], None]
"""Handles messages together with the result of a condition for each."""


def keep_true(context: Context, batch: Batch, kept: npt.NDArray[np.bool_]) -> None:
    """Pass on the messages for which the condition is true."""
    context.emit(batch if kept.all() else batch.take(np.flatnonzero(kept)))


@dataclass(frozen=True)
class Filter(Operator):
    """Keep the values for which the function returns a true value."""

    function: Callable[..., Any]
    with_key: bool = False
    """Whether the function is called with key and value."""
    kind = "filter"

    def start(self, context: Context) -> Process:
        return self.judge(context, keep_true)

    def judge(self, context: Context, judged: Judged) -> Process:
        """Return a process that finds out for which messages the function is true, and passes that to `judged`."""
        return _Filtering(self, context, judged)

    @property
    def spelled(self) -> str:
        """The name of the function, for messages; empty for a lambda."""
        name: str = getattr(self.function, "__name__", type(self.function).__name__)
        return "" if name == "<lambda>" else name

    def check(self, inputs: tuple[Shape, ...]) -> None:
        check_field(self.function, inputs[0])

    def shapes(self, inputs: tuple[Shape, ...]) -> tuple[Shape, ...]:
        return inputs

    def schemas(self, inputs: tuple[pa.Schema | None, ...]) -> tuple[pa.Schema | None, ...]:
        return inputs

    def reads_by_code(self, shape: Shape) -> Reads | None:
        return reads_of_function(analyse_reads(self.function, int(self.with_key)), shape, (0,))


class _Filtering(Process):
    def __init__(self, operator: Filter, context: Context, judged: Judged) -> None:
        self.function, self.context, self.judged = operator.function, context, judged
        self.with_key = operator.with_key
        self.read = analyse_reads(self.function, int(self.with_key))

    def on_batch(self, batch: Batch, port: int) -> None:
        verdicts, rejected = each(self.context, batch, self._verdict, self.read, self.with_key)
        self.judged(self.context, without(batch, rejected), np.fromiter(verdicts, bool, len(verdicts)))

    def _verdict(self, *given: Any) -> bool:
        # A result may have no truth value, such as an array.
        return bool(self.function(*given))
