"""split, branch: divide one stream into several."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tidewheel._core.bytecode_reads import FieldsRead, analyse_reads
from tidewheel._operators.base import Context, Operator, Process, Reads, each, reads_of_function, without
from tidewheel._values import Batch, Shape
from tidewheel.errors import StepError


@dataclass(frozen=True)
class Split(Operator):
    """Send each message to the outputs whose numbers the function returns: one, several or none.

    A message without an output is dropped and counted.
    """

    function: Callable[[Any], int | Iterable[int]]
    outputs: int
    kind = "split"

    @property
    def ports(self) -> int:  # type: ignore[override]
        """The number of outputs."""
        return self.outputs

    @property
    def step(self) -> str:
        return "branch" if isinstance(self.function, Chooser) else self.kind

    def start(self, context: Context) -> Process:
        return _Splitting(self, context)

    def shapes(self, inputs: tuple[Shape, ...]) -> tuple[Shape, ...]:
        return (inputs[0],) * self.outputs

    def schemas(self, inputs: tuple[pa.Schema | None, ...]) -> tuple[pa.Schema | None, ...]:
        return (inputs[0],) * self.outputs

    def fields_read(self) -> FieldsRead | None:
        """Return the fields of a value that the function reads; None if it may use the whole value."""
        return self.function.fields_read() if isinstance(self.function, Chooser) else analyse_reads(self.function, 0)

    def reads_by_code(self, shape: Shape) -> Reads | None:
        return reads_of_function(self.fields_read(), shape, tuple(range(self.outputs)))


@dataclass(frozen=True)
class Chooser:
    """The function of a `branch`: returns the numbers of the predicates that are true."""

    predicates: tuple[Callable[[Any], Any], ...]

    def __call__(self, value: Any) -> list[int]:
        """Return the outputs for a value."""
        return [number for number, predicate in enumerate(self.predicates) if predicate(value)]

    def fields_read(self) -> FieldsRead | None:
        """Return the fields of a value that the predicates read together."""
        together = [analyse_reads(predicate, 0) for predicate in self.predicates]
        ways = {read.by for read in together if read is not None and read.by is not None}
        if None in together or len(ways) > 1:
            return None
        names = frozenset(name for read in together if read is not None for name in read.names)
        return FieldsRead(names, next(iter(ways), None))


class _Splitting(Process):
    def __init__(self, operator: Split, context: Context) -> None:
        self.operator, self.context = operator, context
        self.read = operator.fields_read()

    def on_batch(self, batch: Batch, port: int) -> None:
        chosen, rejected = each(self.context, batch, self._outputs, self.read)
        batch = without(batch, rejected)
        dropped = sum(not outputs for outputs in chosen)
        if dropped:
            self.context.count("dropped", dropped)
        for output in range(self.operator.outputs):
            positions = [position for position, outputs in enumerate(chosen) if output in outputs]
            if len(positions) == len(batch):
                self.context.emit(batch, output)
            elif positions:
                self.context.emit(batch.take(positions), output)

    def _outputs(self, value: Any) -> tuple[int, ...]:
        result = self.operator.function(value)
        if isinstance(result, int):
            result = (int(result),)
        try:
            outputs = tuple(result)
        except TypeError:
            raise StepError(f"the function must return the numbers of outputs, not {result!r}") from None
        for output in outputs:
            if output not in range(self.operator.outputs):
                raise StepError(f"there is no output {output!r}; there are 0 to {self.operator.outputs - 1}")
        return outputs
