"""Messages of a topic as records with given columns."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from tidewheel._codecs.base import PayloadCodec
from tidewheel._codecs.decode_all import decode_all
from tidewheel._connectors.bad_lines import BadLine, with_bad_lines
from tidewheel._connectors.split import fitted
from tidewheel._core.transient import is_transient
from tidewheel._values.records import field_names, has_fields, optional_field

_UNFIT = (pa.ArrowInvalid, TypeError, ValueError, OverflowError)
"""Errors of values that do not fit a column."""


def decoded_columns(
    messages: pa.RecordBatch, codec: PayloadCodec[Any], columns: pa.Schema, required: str | None = None
) -> pa.RecordBatch:
    """Return the records of messages. A column that a record lacks is that of its message, such as the offset, or null.

    Messages that do not decode, do not fit the columns, or have a null in the column `required` become bad lines.
    """
    payloads = messages.column("value").to_pylist()
    records, errors = decode_all(codec, payloads, _raise_transient)
    bad = [_bad_line(messages, position, None, error, payloads[position]) for position, error in errors.items()]
    if errors:
        good = [position for position in range(len(payloads)) if position not in errors]
        messages = messages.take(pa.array(good, pa.int64()))
    return _that_fit(
        messages, lambda at, end: _columns(messages.slice(at, end - at), records[at:end], columns), bad, required
    )


def fitted_columns(messages: pa.RecordBatch, columns: pa.Schema) -> pa.RecordBatch:
    """Return these columns of messages. Messages that do not fit them become bad lines."""
    return _that_fit(messages, lambda at, end: fitted(messages.slice(at, end - at), columns), [])


def _that_fit(
    messages: pa.RecordBatch,
    records: Callable[[int, int], pa.RecordBatch],
    bad: Sequence[BadLine],
    required: str | None = None,
) -> pa.RecordBatch:
    """Return the records of messages, and bad lines. `records` returns those between two positions."""

    def valid(at: int, end: int) -> pa.RecordBatch:
        found = records(at, end)
        if required is not None and found.column(required).null_count:
            raise ValueError(f"the column {required!r} is null, so the record is on no side of the seam")
        return found

    with contextlib.suppress(*_UNFIT):
        return with_bad_lines(valid(0, messages.num_rows), bad)
    fitting, unfit = [valid(0, 0)], []
    for position in range(messages.num_rows):
        try:
            fitting.append(valid(position, position + 1))
        except _UNFIT as error:
            payload = messages.column("value")[position].as_py()
            reason = f"it does not fit the columns of the history: {error}"
            unfit.append(_bad_line(messages, position, None, reason, payload))
    return with_bad_lines(pa.concat_batches(fitting), [*bad, *unfit])


def _columns(messages: pa.RecordBatch, records: list[Any], columns: pa.Schema) -> pa.RecordBatch:
    for record in records:
        if not has_fields(type(record)):
            raise TypeError(f"the codec returned {record!r}, which has no columns")
    arrays = [
        _column(messages, records, column)
        if column.name in messages.schema.names
        else pa.array([optional_field(record, column.name) for record in records], column.type)
        for column in columns
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=columns)


def _column(messages: pa.RecordBatch, records: list[Any], column: pa.Field) -> pa.Array:
    """Return a column that messages have too, for records that lack it."""
    own = [column.name in field_names(record) for record in records]
    if not any(own):
        return messages.column(column.name).cast(column.type)
    lacking = messages.column(column.name).filter(pa.array([not each for each in own]))
    rest = iter(lacking.cast(column.type).to_pylist())
    values = [
        optional_field(record, column.name) if has else next(rest) for record, has in zip(records, own, strict=True)
    ]
    return pa.array(values, column.type)


def _bad_line(
    messages: pa.RecordBatch, position: int, column: str | None, reason: str, payload: bytes | None
) -> BadLine:
    topic, partition, offset = (messages.column(name)[position].as_py() for name in ("topic", "partition", "offset"))
    text = (payload or b"").decode(errors="backslashreplace")
    return BadLine(f"{topic}/{partition}", offset, column, reason, text)


def _raise_transient(error: Exception) -> None:
    if is_transient(error):
        raise error
