"""Exact rows: stored bytes of keys and states that the columns of an exported file cannot represent exactly.

A struct has all fields, so a dict that lacks one comes back with None there; a tuple comes back as a list. For such a
row the export adds the stored bytes, and the import uses them unless the row's columns were changed since.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import pyarrow as pa
from xxhash import xxh64_intdigest

from tidewheel._checkpoint.tools.columns import KEY, Columns
from tidewheel._core.keys import from_stored
from tidewheel._core.undecodable import UNDECODABLE
from tidewheel._state.codec import codec_named
from tidewheel._state.stored_types import same
from tidewheel._values.shape import DICT, VALUE

EXACT = "~exact"
"""The name of the column."""


class _Exact(msgspec.Struct, array_like=True):
    digest: int
    """The hash of the row's columns at the export."""
    key: bytes
    state: bytes


def with_exact(batch: pa.RecordBatch, stored: Sequence[tuple[bytes, bytes]], values: Sequence[Any]) -> pa.RecordBatch:
    """Return a batch with the column of exact rows; `stored` has the stored key and state of each row."""
    cells: list[bytes | None] = []
    for row, (key, raw), value in zip(rows_of(batch), stored, values, strict=True):
        is_same = same(from_stored(key), plain_key(row[KEY])) and same(value, value_of(row))
        cells.append(None if is_same else msgspec.msgpack.encode(_Exact(_digest(row), key, raw)))
    return batch.append_column(EXACT, pa.array(cells, pa.binary()))


def exact_of(cell: bytes | None, row: dict[str, Any]) -> tuple[Any, Any] | None:
    """Return the key and the state of an exact row; None if its columns must be used."""
    if cell is None:
        return None
    try:
        exact = msgspec.msgpack.decode(cell, type=_Exact)
    except UNDECODABLE:
        return None
    if exact.digest != _digest(row):
        return None  # The columns were changed after the export.
    return from_stored(exact.key), codec_named("msgpack").decode(exact.state)


def rows_of(batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    """Return the rows as dicts, as an import reads them."""
    return iter(DICT.values(batch))


def plain_key(key: Any) -> Any:
    """Convert a struct back to the tuple that was exported."""
    return tuple(map(plain_key, key.values())) if isinstance(key, dict) else key


def value_of(row: dict[str, Any]) -> Any:
    """Return the state in the columns of a row, without the key."""
    fields = {name: value for name, value in row.items() if name != KEY}
    return fields[VALUE] if list(fields) == [VALUE] else fields


def needs_exact(columns: Columns, kind: str) -> bool:
    """Return whether an export needs the column: some rows may not be read back exactly, and the state can be imported."""
    return kind in ("stateful_map", "stateful_op", "reduce") and not columns.is_exact and columns.shape.schema() is None


def _digest(row: dict[str, Any]) -> int:
    return xxh64_intdigest(repr(list(row.items())).encode(errors="surrogatepass"))
