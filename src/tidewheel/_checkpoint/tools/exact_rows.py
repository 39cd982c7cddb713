"""Exact rows: keys and states that columns cannot hold as they are, beside the columns of an exported file.

A struct has all fields, so a dict that lacks one comes back with None there; a tuple comes back as a list. For such a row the
export adds the stored bytes, and the import takes these, unless somebody has changed the row's columns since.
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
    """Of the row's columns, as they were exported."""
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
    """Return the key and the state of an exact row; None where its columns say what it is."""
    if cell is None:
        return None
    try:
        exact = msgspec.msgpack.decode(cell, type=_Exact)
    except UNDECODABLE:
        return None
    if exact.digest != _digest(row):
        return None  # Somebody has changed the columns since the export.
    return from_stored(exact.key), codec_named("msgpack").decode(exact.state)


def rows_of(batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    """Return the rows as dicts, as an import reads them."""
    return iter(DICT.values(batch))


def plain_key(key: Any) -> Any:
    """Make a struct the tuple that it was exported from."""
    return tuple(map(plain_key, key.values())) if isinstance(key, dict) else key


def value_of(row: dict[str, Any]) -> Any:
    """Return the state that the columns of a row beside the key say."""
    fields = {name: value for name, value in row.items() if name != KEY}
    return fields[VALUE] if list(fields) == [VALUE] else fields


def needs_exact(columns: Columns, kind: str) -> bool:
    """Tell whether an export needs the column: some rows may not be read back, and the state can be imported again."""
    return kind in ("stateful_map", "stateful_op", "reduce") and not columns.is_exact and columns.shape.schema() is None


def _digest(row: dict[str, Any]) -> int:
    return xxh64_intdigest(repr(list(row.items())).encode(errors="surrogatepass"))
