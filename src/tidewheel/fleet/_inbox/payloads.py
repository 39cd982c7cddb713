"""Parse payloads of events into columns, and find those that cannot be parsed."""

from __future__ import annotations

from typing import Literal, NamedTuple

import pyarrow as pa
from pyarrow import json

from tidewheel.errors import ConfigError

Payload = Literal["raw", "columns", "plain"]
"""The columns of a payload: its text, its fields, or the one column `value`."""


_TYPES = {
    "string": pa.string(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "timestamp": pa.timestamp("us", "UTC"),
    "date": pa.date32(),
}


class BadPayload(NamedTuple):
    """A payload that cannot be parsed: its index, and the reason."""

    place: int
    error: str


def simple_schema(declared: str) -> pa.Schema:
    """Return the columns of a text such as 'user string, amount long', without a Spark to ask.

    >>> simple_schema("user string, amount long").names
    ['user', 'amount']
    """
    columns = [column.split() for column in declared.split(",")]
    if not all(len(column) == 2 and column[1].lower() in _TYPES for column in columns):
        raise ConfigError(
            f"the schema {declared!r} is not a list of columns with simple types, such as 'user string, amount "
            "long'; the types "
            f"are {', '.join(_TYPES)}"
        )
    return pa.schema([(name, _TYPES[kind.lower()]) for name, kind in columns])


def read_payloads(
    payloads: list[bytes], schema: pa.Schema, payload: Payload
) -> tuple[pa.RecordBatch, list[BadPayload]]:
    """Return the columns of the payloads that can be parsed, and the others."""
    lines = _lines(payloads, payload)
    try:
        return _read(lines, len(payloads), schema), []
    except (pa.ArrowException, ValueError):
        bad = list(_bad(payloads, 0, schema, payload))
        indices = {each.place for each in bad}
        good = [line for index, line in enumerate(payloads) if index not in indices]
        return _read(_lines(good, payload), len(good), schema), bad


def _bad(payloads: list[bytes], first: int, schema: pa.Schema, payload: Payload) -> list[BadPayload]:
    """Find the payloads that cannot be parsed, by bisection."""
    try:
        _read(_lines(payloads, payload), len(payloads), schema)
        return []
    except (pa.ArrowException, ValueError) as error:
        if len(payloads) == 1:
            return [BadPayload(first, str(error))]
    middle = len(payloads) // 2
    return [
        *_bad(payloads[:middle], first, schema, payload),
        *_bad(payloads[middle:], first + middle, schema, payload),
    ]


def _lines(payloads: list[bytes], payload: Payload) -> bytes:
    if payload == "plain":
        return b"\n".join(b'{"value":%s}' % line for line in payloads)
    return b"\n".join(payloads)


def _read(lines: bytes, count: int, schema: pa.Schema) -> pa.RecordBatch:
    lines.decode()  # Arrow does not check that text is valid UTF-8.
    if not count:
        return pa.RecordBatch.from_pylist([], schema=schema)
    parse = json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    read = json.ReadOptions(use_threads=False, block_size=max(len(lines) + 1, 1024))
    table = json.read_json(pa.BufferReader(lines), read, parse).select(schema.names).combine_chunks()
    if table.num_rows != count:
        raise ValueError(
            "a payload must be one JSON object" if count == 1 else f"{count} payloads gave {table.num_rows} rows"
        )
    return table.to_batches()[0]
