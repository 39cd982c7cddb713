"""What crosses a shuffle: rows of (target task, edge, payload), a payload being many messages at once.

Messages travel in blocks, so the JVM's cost is per block and not per message. Blocks of one map task keep their order.
"""

from __future__ import annotations

import pickle
import typing
from collections.abc import Iterator
from typing import Any

import cloudpickle
import numpy as np
import pyarrow as pa

from tidewheel.runtime.shards import shards_of
from tidewheel.values import Batch, Shape

SCHEMA = pa.schema([("target", pa.int32()), ("edge", pa.int32()), ("payload", pa.binary())])
SPARK_SCHEMA = "target int, edge int, payload binary"
REPORT = -1
"""The edge of a row that carries a task's report to the driver."""

_COLUMNS, _VALUES, _PICKLED = b"C", b"V", b"P"
_KEY, _TIME = "~key", "~time"
_PLAIN = (int, str, float, bytes, bool)

Row = tuple[int, int, bytes]


def rows(batch: Batch, edge: int, keyed: bool, n_shards: int, parallelism: int, task: int) -> Iterator[Row]:
    """Yield the rows that carry a batch to the tasks of its keys; messages without a key stay with this task's number."""
    if len(batch) == 0:
        return
    if not keyed:
        yield task % parallelism, edge, encode(batch)
    elif parallelism == 1:
        yield 0, edge, encode(batch)
    else:
        targets = shards_of(batch, n_shards) % parallelism
        for target in range(parallelism):
            positions = np.flatnonzero(targets == target)
            if len(positions) == len(batch):
                yield target, edge, encode(batch)
            elif len(positions):
                yield target, edge, encode(batch.take(positions.tolist()))


def record_batch(pending: list[Row]) -> pa.RecordBatch:
    """Return wire rows as Spark takes them."""
    return pa.RecordBatch.from_arrays(
        [
            pa.array([row[0] for row in pending], pa.int32()),
            pa.array([row[1] for row in pending], pa.int32()),
            pa.array([row[2] for row in pending], pa.binary()),
        ],
        schema=SCHEMA,
    )


def unpacked(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, int, pa.Buffer]]:
    """Yield (target, edge, payload) of the wire rows that Spark gives."""
    for batch in batches:
        targets, edges, payloads = (batch.column(position) for position in range(3))
        for target, edge, payload in zip(targets.to_pylist(), edges.to_pylist(), payloads, strict=True):
            yield target, edge, payload.as_buffer()


def encode(batch: Batch) -> bytes:
    """Return the messages as bytes: columns where there are any, plain values of one type as a column, else a pickle."""
    keys = _key_array(batch)
    kinds = set() if batch.has_columns else set(map(type, batch.values))
    plain = len(kinds) == 1 and next(iter(kinds)) in _PLAIN
    if (batch.keyed and keys is None) or not (batch.has_columns or plain):
        return _pickled(batch)
    try:
        columns = (
            batch.columns if batch.has_columns else pa.RecordBatch.from_arrays([pa.array(batch.values)], ["value"])
        )
    except (pa.ArrowInvalid, OverflowError):
        return _pickled(batch)
    arrays, names = list(columns.columns), list(columns.schema.names)
    if keys is not None:
        arrays.append(keys)
        names.append(_KEY)
    if batch.times is not None:
        arrays.append(pa.array(batch.times, pa.int64()))
        names.append(_TIME)
    out = pa.BufferOutputStream()
    whole = pa.RecordBatch.from_arrays(arrays, names)
    with pa.ipc.new_stream(out, whole.schema) as writer:
        writer.write_batch(whole)
    body: bytes = out.getvalue().to_pybytes()
    return (_COLUMNS if batch.has_columns else _VALUES) + body


def decode(payload: pa.Buffer, shape: Shape) -> Batch:
    """Return the messages that `encode` gave."""
    form, body = payload[:1].to_pybytes(), payload.slice(1)
    if form == _PICKLED:
        keys, values, times = pickle.loads(body)
        return Batch(shape, keys=keys, values=values, times=times)
    whole = pa.ipc.open_stream(body).read_next_batch()
    names = whole.schema.names
    keys_at, times_at = whole.schema.get_field_index(_KEY), whole.schema.get_field_index(_TIME)
    key_column = whole.column(keys_at) if keys_at >= 0 else None
    times = whole.column(times_at).to_pylist() if times_at >= 0 else None
    columns = whole.select([name for name in names if name not in (_KEY, _TIME)])
    if form == _VALUES:
        return Batch(shape, values=columns.column(0).to_pylist(), key_column=key_column, times=times)
    return Batch(shape, columns=columns, key_column=key_column, times=times)


def _pickled(batch: Batch) -> bytes:
    keys = batch.keys if batch.keyed else None
    return _PICKLED + typing.cast(bytes, cloudpickle.dumps((keys, batch.values, batch.times), protocol=5))


def _key_array(batch: Batch) -> pa.Array | None:
    if batch.key_column is not None:
        return batch.key_column
    if not batch.keyed:
        return None
    kinds = set(map(type, batch.keys))
    if len(kinds) == 1 and next(iter(kinds)) in _PLAIN:
        return typing.cast(Any, pa.array(batch.keys))
    return None
