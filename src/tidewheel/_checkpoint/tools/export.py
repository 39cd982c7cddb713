"""A step's state as Arrow and as a Parquet file."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidewheel._checkpoint.manifest import OperatorInfo
from tidewheel._checkpoint.tools.columns import Columns
from tidewheel._checkpoint.tools.exact_rows import EXACT, needs_exact, with_exact
from tidewheel._checkpoint.tools.state_reader import StateReader
from tidewheel._core.keys import from_stored
from tidewheel._state.bounded_files import chunked
from tidewheel._state.codec import StateCodec, decode_all, msgpack_codec
from tidewheel._values.shape import shape_of
from tidewheel.errors import StorageError

_ROWS = 65_536
"""The number of rows in a record batch, and so in a row group of a Parquet file."""


def columns_of(reader: StateReader, step: str, declared: Any = None) -> Columns:
    """Determine the columns of a step's state: by the declared type, or by reading all state once."""
    decode, shards = _codec(reader, step, declared), sorted(reader.manifest.shards)
    if shape_of(declared).schema() is not None:
        # The type is declared, and all keys have one type, so one chunk is enough.
        first = next((chunk for chunk in _chunks(reader, step, shards)), [])
        return Columns(declared, (), [([from_stored(key) for key, _ in first], [])])
    chunks = (
        ([from_stored(key) for key, _ in chunk], decode_all(decode, [value for _, value in chunk]))
        for chunk in _chunks(reader, step, shards)
    )
    return Columns(declared, _packed_names(reader.info(step)), chunks)


def batches(
    reader: StateReader,
    step: str,
    columns: Columns,
    shards: Iterable[int],
    declared: Any = None,
    exact: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Yield a step's state of some shards, in record batches that fit in memory.

    `exact`: add the column of rows that the other columns cannot represent exactly.
    """
    codec = _codec(reader, step, declared)
    for chunk in _chunks(reader, step, shards):
        values = decode_all(codec, [value for _, value in chunk])
        batch = columns.batch(_keys([key for key, _ in chunk]), values)
        yield with_exact(batch, chunk, values) if exact else batch


def export(reader: StateReader, step: str, path: str | os.PathLike[str], declared: Any = None) -> int:
    """Write a step's state to one Parquet file; return the number of keys."""
    from pyarrow import parquet

    columns = columns_of(reader, step, declared)
    exact = needs_exact(columns, reader.info(step).kind)
    schema = columns.schema.append(pa.field(EXACT, pa.binary())) if exact else columns.schema
    rows = 0
    try:
        with parquet.ParquetWriter(os.fspath(path), schema, compression="zstd") as writer:
            for batch in batches(reader, step, columns, sorted(reader.manifest.shards), declared, exact):
                writer.write_batch(batch)
                rows += batch.num_rows
    except OSError as error:
        raise StorageError(f"could not write {os.fspath(path)}: {error.strerror or error}") from error
    return rows


def _chunks(reader: StateReader, step: str, shards: Iterable[int]) -> Iterator[list[tuple[bytes, bytes]]]:
    for shard in shards:
        yield from chunked(reader.shard(step, shard), _ROWS)


def _codec(reader: StateReader, step: str, declared: Any) -> StateCodec:
    # Always call this: it rejects codecs that run code, and unknown steps.
    named = reader.codec(step)
    return named if declared is None else msgpack_codec(declared)


def _keys(stored: list[bytes]) -> list[Any] | pa.Array:
    """Return the keys; text and integers, the most common, as a column without a Python object for each."""
    column = pa.array(stored, pa.binary())
    letters = pc.binary_slice(column, 0, 1).unique().to_pylist()
    if letters == [b"s"]:
        return pc.binary_slice(column, 1, pc.max(pc.binary_length(column)).as_py()).cast(pa.string())
    if letters == [b"i"]:
        rows = np.frombuffer(b"".join(stored), np.uint8).reshape(len(stored), 9)
        return pa.array(np.ascontiguousarray(rows[:, 1:]).view("<i8").reshape(-1))
    return list(map(from_stored, stored))


def _packed_names(info: OperatorInfo) -> list[str]:
    """Return names for the numbers that an aggregate stores: `sum:amount` is `sum_amount`, `rows:` is `rows`."""
    if info.kind != "aggregate" or not all(number.is_number for number in info.layout.numbers):
        return []
    return [number.name.strip(":").replace(":", "_") for number in info.layout.numbers]
