"""The format of shuffled rows: rows that each carry a block of many messages to one task.

Messages travel in blocks, so the JVM's cost is per block and not per message. A row names the task attempt that produced its
block, and the place of the block in that attempt's output. A receiving task takes the blocks in the order of (level, partition,
number), so messages of one key arrive in the order of their source; and a batch that mixes two attempts of a task is detected
(`commit.check_reports`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Generic, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from tidewheel._core import pickling
from tidewheel._core.keys import from_stored, to_stored
from tidewheel._engine.report import Attempt
from tidewheel._engine.shards import shards_of, task_of_each
from tidewheel._values import Batch, Shape
from tidewheel._values.columns import with_used_values

SCHEMA = pa.schema(
    [
        ("target", pa.int32()),
        ("edge", pa.int32()),
        ("level", pa.int32()),
        ("partition", pa.int32()),
        ("attempt", pa.int64()),
        ("number", pa.int64()),
        ("payload", pa.binary()),
    ]
)
ORDER = ("level", "partition", "number")
"""The columns by which a receiving task's rows are sorted."""
REPORT = -1
"""The edge of a row that carries a task's report to the driver."""

_COLUMNS, _EXACT, _PICKLED = b"C", b"E", b"P"
_PLAIN_KEYS, _STORED_KEYS, _TIMED, _NONE = b"k", b"s", b"t", b"-"

_FORM = b"form"

_LARGE = 256 * 1024
"""From this many bytes on a block is compressed: a byte less is one less to copy into the JVM, through its shuffle, and back."""

Payload = TypeVar("Payload", bytes, pa.Buffer)


class Row(NamedTuple, Generic[Payload]):
    """A block on its way to a task."""

    target: int
    """The number of the task that it is for."""
    edge: int
    origin: Attempt
    """The task attempt that produced the block. A task that only forwards it leaves this as it is."""
    number: int
    """The place of the block in the output of that attempt."""
    payload: Payload

    @property
    def order(self) -> tuple[int, int, int]:
        """The columns by which the incoming rows of a task are sorted."""
        return self.origin.level, self.origin.partition, self.number


def blocks(batch: Batch, keyed: bool, n_shards: int, parallelism: int, task: int) -> Iterator[tuple[int, bytes]]:
    """Yield a batch in blocks, each with the task of its keys; messages without a key stay with this task's number."""
    if len(batch) == 0:
        return
    # Before it is divided: taking from columns costs less than taking from lists.
    batch = batch.exact()
    if not keyed:
        yield task % parallelism, encode(batch)
        return
    batch = batch.with_key_codes()
    if parallelism == 1:
        # It stays in its process.
        yield 0, encode(batch, compresses=False)
    else:
        targets = task_of_each(shards_of(batch, n_shards), parallelism)
        for target in range(parallelism):
            positions = np.flatnonzero(targets == target)
            if len(positions) == len(batch):
                yield target, encode(batch)
            elif len(positions):
                yield target, encode(batch.take(positions))


def record_batch(pending: Iterable[Row[bytes]]) -> pa.RecordBatch:
    """Return wire rows as Spark takes them."""
    rows = [(row.target, row.edge, *row.origin, row.number, row.payload) for row in pending]
    columns = zip(*rows, strict=True) if rows else [()] * len(SCHEMA)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def unpacked(batches: Iterable[pa.RecordBatch]) -> Iterator[Row[pa.Buffer]]:
    """Yield the rows that `record_batch` gave."""
    for batch in batches:
        *numbers, payloads = batch.columns
        plain = zip(*(column.to_pylist() for column in numbers), strict=True)
        for (target, edge, level, partition, attempt, number), payload in zip(plain, payloads, strict=True):
            yield Row(target, edge, Attempt(level, partition, attempt), number, payload.as_buffer())


def reports_in(batches: Iterable[pa.RecordBatch]) -> list[bytes]:
    """Return the encoded reports among wire rows."""
    return [row.payload.to_pybytes() for row in unpacked(batches) if row.edge == REPORT]


def encode(batch: Batch, *, compresses: bool = True) -> bytes:
    """Return the messages as bytes, compressed if they are many and it is asked for.

    Columns if they came as columns; plain values of one type, and dicts, rows and records of one kind that have nothing but
    plain fields, as columns too; all else as a pickle.
    """
    form, columns = _value_columns(batch)
    if columns is None:
        keys = batch.keys if batch.keyed else None
        return _PICKLED + pickling.dumps((keys, batch.values, batch.times))
    # Columns that are not values follow the values and are found by position: a user's column may have any name.
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
    # Copy: a payload can begin at any address, and Arrow needs aligned numbers.
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
