"""sink: where records leave the program."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from tidewheel._connectors.sink import Sink
from tidewheel._operators.accepted import OF_THE_RUN, accepted, accepted_places
from tidewheel._operators.base import Context, Operator, Process, columns_of
from tidewheel._values import Batch, Shape
from tidewheel._values.records import field_names, has_fields
from tidewheel.errors import StepError


@dataclass(frozen=True)
class SinkOperator(Operator):
    """Write the columns of the values; on a keyed stream the key comes first, unless the values have that column."""

    sink: Sink
    key_name: str | None = None
    """The name of the key's column; None does not write the key."""
    named: bool = False
    """Whether the program chose the name: then the values must not have a column of that name."""
    kind = "sink"
    ports = 0

    def start(self, context: Context) -> Process:
        return _Writing(self, context)

    def shapes(self, inputs: tuple[Shape, ...]) -> tuple[Shape, ...]:
        return ()


class _Writing(Process):
    def __init__(self, operator: SinkOperator, context: Context) -> None:
        self.operator, self.context = operator, context

    def on_batch(self, batch: Batch, port: int) -> None:
        if len(batch) == 0:
            return
        for alike in _alike(batch) if self.operator.sink.distinguishes_absent_fields else (batch,):
            for part, columns in accepted(self.context, alike, self._columns):
                self._write(part, columns)

    def _write(self, batch: Batch, columns: pa.RecordBatch) -> None:
        def attempt(_: Batch, place: slice) -> None:
            # Slice the existing columns: columns inferred from fewer records might have other types.
            self.context.write(columns[place])

        for _ in accepted_places(self.context, batch, attempt, (*OF_THE_RUN, OSError)):
            pass

    def _columns(self, batch: Batch) -> pa.RecordBatch:
        name = self.operator.key_name
        columns = columns_of(batch, fieldless=batch.keyed and name is not None)
        if self.operator.named and name in columns.schema.names:
            raise StepError(
                f"key={name!r} names the column of the key, but the values already have a column {name!r}; choose "
                "another name"
            )
        if batch.keyed and name is not None and name not in columns.schema.names:
            arrays = [self._keys(batch), *columns.columns]
            columns = pa.RecordBatch.from_arrays(arrays, [name, *columns.schema.names])
        return columns

    def _keys(self, batch: Batch) -> pa.Array:
        try:
            return batch.written_keys()
        except (TypeError, ValueError, OverflowError) as error:
            raise StepError(
                f"the keys do not fit into a column of one type: {error}; convert them to one type in key_by"
            ) from error


def _alike(batch: Batch) -> Iterator[Batch]:
    """Divide the batch into runs of consecutive records with the same fields."""
    if batch.has_columns or batch.shape.kind == "record":
        yield batch
        return
    fields = [frozenset(field_names(value)) if has_fields(type(value)) else None for value in batch.values]
    edges = [0, *(at for at in range(1, len(fields)) if fields[at] != fields[at - 1]), len(fields)]
    for begin, end in itertools.pairwise(edges):
        yield batch if len(edges) == 2 else batch.take(list(range(begin, end)))
