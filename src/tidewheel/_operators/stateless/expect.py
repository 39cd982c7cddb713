"""expect: check a condition for each record, count the records that fail it, and treat them as the program says."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidewheel._operators.base import Context, Operator, Process, Reads
from tidewheel._operators.stateless.expressions import Where
from tidewheel._operators.stateless.filter import Filter, keep_true
from tidewheel._values import Batch, Shape
from tidewheel.errors import StepError

Otherwise = Literal["drop", "dead", "stop", "warn"]
FAILED = "failed"
"""The counter of records that do not meet an expectation, `name/failed` in the job's counts."""


@dataclass(frozen=True, eq=False)
class Expect(Operator):
    """Check the condition of a filter. Records that fail it are counted; `otherwise` says what else happens to them."""

    condition: Filter | Where
    otherwise: Otherwise
    kind = "expect"

    def start(self, context: Context) -> Process:
        return self.condition.judge(context, partial(_judged, self))

    def check(self, inputs: tuple[Shape, ...]) -> None:
        self.condition.check(inputs)

    def shapes(self, inputs: tuple[Shape, ...]) -> tuple[Shape, ...]:
        return inputs

    def schemas(self, inputs: tuple[pa.Schema | None, ...]) -> tuple[pa.Schema | None, ...]:
        return self.condition.schemas(inputs)

    def reads_of(self, columns: pa.Schema | None) -> Reads | None:
        return self.condition.reads_of(columns)

    def reads_by_code(self, shape: Shape) -> Reads | None:
        return self.condition.reads_by_code(shape)

    @property
    def needs_dead_letters(self) -> bool:
        return self.otherwise == "dead"

    @property
    def warns_of(self) -> str:
        return FAILED if self.otherwise == "warn" else ""


def _judged(operator: Expect, context: Context, batch: Batch, met: npt.NDArray[np.bool_]) -> None:
    if met.all():
        context.emit(batch)
        return
    failed = np.flatnonzero(~met)
    context.count(FAILED, len(failed))
    if operator.otherwise in ("dead", "stop"):
        for position in failed:
            error = StepError(f"it does not meet the expectation {operator.condition.spelled}".rstrip())
            context.reject(error, batch, int(position), stop=operator.otherwise == "stop")
    if operator.otherwise == "warn":
        context.emit(batch)
    else:
        keep_true(context, batch, met)
