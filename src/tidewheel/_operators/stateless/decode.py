"""decode: payloads become records. Payloads that do not decode go to a separate stream."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tidewheel._codecs.base import ABSENT, PayloadCodec
from tidewheel._codecs.decode_all import decode_all
from tidewheel._operators.accepted import accepted
from tidewheel._operators.base import Context, Operator, Process, columns_of
from tidewheel._values import ROW, Batch, Shape
from tidewheel.errors import GraphError, StepError

DECODED, DEAD = 0, 1
ERROR = "error"
"""The column of a broken message that holds the error."""


@dataclass(frozen=True)
class Decode(Operator):
    """Decode one column of each message into a record. Messages that do not decode go to the second output.

    Keys and timestamps stay with their messages.
    """

    codec: PayloadCodec
    column: str
    kind = "decode"
    ports = 2
    output_names = ("", "dead")
    required = (DEAD,)

    def start(self, context: Context) -> Process:
        return _Decoding(self, context)

    def shapes(self, inputs: tuple[Shape, ...]) -> tuple[Shape, ...]:
        """The records of the codec, and the unchanged broken messages with their errors."""
        return (self.codec.shape, ROW)

    def check(self, inputs: tuple[Shape, ...]) -> None:
        """Raise a `GraphError` if the declared type has no such column."""
        known = inputs[0].columns()
        if known is not None and self.column not in known:
            raise GraphError(f"there is no column {self.column!r} to decode; the columns are {', '.join(known)}")


class _Decoding(Process):
    def __init__(self, operator: Decode, context: Context) -> None:
        self.operator, self.context = operator, context

    def on_batch(self, batch: Batch, port: int) -> None:
        for part, payloads in accepted(self.context, batch, self._payloads):
            self._decode(part, payloads)

    def _decode(self, batch: Batch, payloads: list[Any]) -> None:
        decoded, errors = decode_all(self.operator.codec, payloads, self.context.check_transient)
        shape = self.context.shapes[DECODED]
        if not errors:
            self.context.emit(batch.with_values(shape, decoded), DECODED)
            return
        good = [position for position in range(len(payloads)) if position not in errors]
        if good:
            self.context.emit(batch.take(good).with_values(shape, decoded), DECODED)
        self.context.count("dead", len(errors))
        dead = batch.take(list(errors))
        explained = columns_of(dead).append_column(ERROR, pa.array(list(errors.values()), pa.string()))
        self.context.emit(dead.with_columns(self.context.shapes[DEAD], explained), DEAD)

    def _payloads(self, batch: Batch) -> list[Any]:
        """Return the payloads or, if the codec needs other columns too, tuples of a payload and the values of these columns."""
        columns = columns_of(batch)
        at = columns.schema.get_field_index(self.operator.column)
        if at < 0:
            raise StepError(
                f"there is no column {self.operator.column!r} to decode; the columns are "
                f"{', '.join(columns.schema.names)}"
            )
        column = columns.column(at)
        if not any(check(column.type) for check in (pa.types.is_binary, pa.types.is_string, pa.types.is_null)):
            raise StepError(
                f"the column {self.operator.column!r} has the type {column.type}; decode needs bytes or text"
            )
        payloads: list[bytes | None] = column.cast(pa.binary()).to_pylist()
        others = [
            _bytes_for_text(columns.column(name)).to_pylist()
            if name in columns.schema.names
            else itertools.repeat(ABSENT)
            for name in self.operator.codec.message_columns
        ]
        return list(zip(payloads, *others, strict=False)) if others else payloads


def _bytes_for_text(column: pa.Array) -> pa.Array:
    return column.cast(pa.binary()) if pa.types.is_string(column.type) else column
