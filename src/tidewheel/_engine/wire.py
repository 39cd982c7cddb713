"""What crosses a shuffle: rows of (target task, edge, payload). A payload holds many messages.

Messages travel in blocks, so the JVM's cost is per block and not per message. Blocks of one map task keep their order.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import numpy as np
import pyarrow as pa

from tidewheel._core import pickling
from tidewheel._core.keys import from_stored, to_stored
from tidewheel._engine.shards import shards_of, task_of_each
from tidewheel._values import Batch, Shape
from tidewheel._values.columns import with_used_values

SCHEMA = pa.schema([("target", pa.int32()), ("edge", pa.int32()), ("payload", pa.binary())])
SPARK_SCHEMA = "target int, edge int, payload binary"
REPORT = -1
"""The edge of a row that carries a task's report to the driver."""

_COLUMNS, _EXACT, _PICKLED = b"C", b"E", b"P"
_PLAIN_KEYS, _STORED_KEYS, _TIMED, _NONE = b"k", b"s", b"t", b"-"

_FORM = b"form"

_LARGE = 256 * 1024
"""From this many bytes on a block is compressed: a byte less is one less to copy into the JVM, through its shuffle, and back."""

Row = tuple[int, int, bytes]


def rows(batch: Batch, edge: int, keyed: bool, n_shards: int, parallelism: int, task: int) -> Iterator[Row]:
    """Yield the rows that carry a batch to the tasks of its keys; messages without a key stay with this task's number."""
    if len(batch) == 0:
        return
    # Before it is divided: taking from columns costs less than taking from lists.
    batch = batch.exact()
    if not keyed:
        yield task % parallelism, edge, encode(batch)
        return
    batch = batch.with_key_codes()
    if parallelism == 1:
        # It stays in its process.
        yield 0, edge, encode(batch, compresses=False)
    else:
        targets = task_of_each(shards_of(batch, n_shards), parallelism)
        for target in range(parallelism):
            positions = np.flatnonzero(targets == target)
            if len(positions) == len(batch):
                yield target, edge, encode(batch)
            elif len(positions):
                yield target, edge, encode(batch.take(positions))


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


def encode(batch: Batch, *, compresses: bool = True) -> bytes:
    """Return the messages as bytes, compressed if they are many and it is asked for.

    Columns if they came as columns; plain values of one type, and dicts, rows and records of one kind that have nothing but
    plain fields, as columns too; all else as a pickle.
    """
    form, columns = _value_columns(batch)
    if columns is None:
        keys = batch.keys if batch.keyed else None
        return _PICKLED + pickling.dumps((keys, batch.values, batch.times))
    # What is not a value stands behind the values, and is found by its place: a user's column may have any name.
    arrays, names = list(columns.columns), list(columns.schema.names)
    key_form, keys = _key_array(batch)
    if keys is not None:
        arrays.append(keys)
        names.append("key")
    if batch.times is not None:
        arrays.append(pa.array(batch.times, pa.int64()))
        names.append("time")
    out = pa.BufferOutputStream()
    whole = pa.RecordBatch.from_arrays(arrays, names, metadata=columns.schema.metadata)
    compression = "lz4" if compresses and whole.nbytes >= _LARGE else None
    with pa.ipc.new_stream(out, whole.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_batch(whole)
    body: bytes = out.getvalue().to_pybytes()
    return form + key_form + (_TIMED if batch.times is not None else _NONE) + body


def decode(payload: pa.Buffer, shape: Shape) -> Batch:
    """Return the messages that `encode` gave."""
    form = payload[:1].to_pybytes()
    if form == _PICKLED:
        keys, values, times = pickling.loads(payload.slice(1))
        return Batch(shape, keys=keys, values=values, times=times)
    key_form, timed = payload[1:2].to_pybytes(), payload[2:3].to_pybytes() == _TIMED
    # A copy: a payload begins anywhere, and Arrow computes on aligned numbers only.
    whole = pa.ipc.open_stream(payload.slice(3).to_pybytes()).read_next_batch()
    arrays = whole.columns
    times = arrays.pop().to_pylist() if timed else None
    keys = [from_stored(key) for key in arrays.pop().to_pylist()] if key_form == _STORED_KEYS else None
    key_column = arrays.pop() if key_form == _PLAIN_KEYS else None
    columns = pa.RecordBatch.from_arrays(arrays, whole.schema.names[: len(arrays)])
    values_form = _form_of(whole.schema.metadata[_FORM]) if form == _EXACT else None
    return Batch(shape, columns=columns, form=values_form, keys=keys, key_column=key_column, times=times)


def _value_columns(batch: Batch) -> tuple[bytes, pa.RecordBatch | None]:
    batch = batch.exact()
    if batch.carried is None:
        return _PICKLED, None
    if batch.form is None:
        return _COLUMNS, batch.carried.replace_schema_metadata(None)
    return _EXACT, batch.carried.replace_schema_metadata({_FORM: _form_bytes(batch.form)})


@lru_cache(maxsize=64)
def _form_bytes(form: Shape) -> bytes:
    return pickling.dumps(form)


@lru_cache(maxsize=64)
def _form_of(data: bytes) -> Shape:
    form: Shape = pickling.loads(data)
    return form


def _key_array(batch: Batch) -> tuple[bytes, pa.Array | None]:
    if not batch.keyed:
        return _NONE, None
    column = batch.key_data if batch.key_data is not None else batch.key_array()
    if column is not None:
        # Each target has just its part of the dictionary.
        return _PLAIN_KEYS, with_used_values(column) if pa.types.is_dictionary(column.type) else column
    return _STORED_KEYS, pa.array([to_stored(key) for key in batch.keys], pa.binary())
