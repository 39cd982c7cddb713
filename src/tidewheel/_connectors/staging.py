"""Output staged in the job's own store, for sinks whose work is done in the driver: Arrow streams, checked when read back."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

import msgspec
import pyarrow as pa
from xxhash import xxh64_intdigest

from tidewheel._checkpoint.names import staged_file
from tidewheel._connectors.sink import SinkPartition, Staging
from tidewheel._storage import Store
from tidewheel.errors import CorruptError, OperatorError, StorageError


class StagedRef(msgspec.Struct, frozen=True, array_like=True):
    """A staged file: its name below the job's folder, and what it must hold."""

    name: str
    size: int
    checksum: int
    rows: int


def staged_name(staging: Staging, suffix: str) -> str:
    """Return the name under which this attempt stages; no other attempt, sink or sequence has it."""
    run, task, attempt = staging.attempt.rsplit("-", 2)
    return staged_file(staging.sequence, run, int(task), int(attempt), f"{staging.sink}.{suffix}")


def stage(staging: Staging, suffix: str, data: bytes, rows: int) -> StagedRef:
    """Write bytes to the store, durable, under the attempt's own name."""
    name = staged_name(staging, suffix)
    if not staging.store.create(name, data):
        raise StorageError(
            f"sink {staging.sink!r}: {name} at {staging.store.url} holds other output; two attempts of one task have one name"
        )
    return StagedRef(name, len(data), int(xxh64_intdigest(data)), rows)


def unstage(store: Store, ref: StagedRef) -> bytes:
    """Return what was staged, or raise a `CorruptError` if it is not that any more."""
    data = store.read(ref.name)
    if len(data) != ref.size or xxh64_intdigest(data) != ref.checksum:
        raise CorruptError(
            f"{ref.name} at {store.url} is not what was staged there: {ref.size} bytes with checksum {ref.checksum:016x} were, "
            f"{len(data)} bytes are found; restore the file from a copy of the store"
        )
    return data


class StagedBatches(SinkPartition):
    """Keeps a task's rows, in order, and stages them as Arrow."""

    def __init__(self, staging: Staging) -> None:
        """Begin with nothing."""
        self._staging = staging
        self._batches: list[pa.RecordBatch] = []

    def write(self, columns: pa.RecordBatch) -> None:
        """Keep the rows."""
        if columns.num_rows:
            self._batches.append(columns)

    def prepare(self) -> bytes | None:
        """Stage them in the job's store."""
        if not self._batches:
            return None
        rows = sum(batch.num_rows for batch in self._batches)
        return msgspec.msgpack.encode(stage(self._staging, "arrow", to_arrow(self._batches), rows))


def to_arrow(batches: list[pa.RecordBatch]) -> bytes:
    """Return batches as Arrow streams, one after the other: a stream has one schema, and inferred columns may change theirs."""
    out = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    for schema, alike in itertools.groupby(batches, key=lambda batch: batch.schema):
        with pa.ipc.new_stream(out, schema, options=options) as writer:
            for batch in alike:
                writer.write_batch(batch)
    return bytes(out.getvalue())


def from_arrow(data: bytes) -> Iterator[pa.RecordBatch]:
    """Yield the batches that `to_arrow` wrote."""
    source = pa.BufferReader(data)
    while source.tell() < len(data):
        yield from pa.ipc.open_stream(source)


def published_batches(store: Store, tokens: Iterable[bytes]) -> Iterator[pa.RecordBatch]:
    """Yield what the tasks staged, task by task, in each task's order."""
    for token in tokens:
        yield from from_arrow(unstage(store, msgspec.msgpack.decode(token, type=StagedRef)))


def together(tables: list[pa.Table], sink: str) -> pa.Table:
    """Return one table of all rows; columns that only some have are null in the others."""
    try:
        return pa.concat_tables(tables, promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise OperatorError(
            f"sink {sink!r}: the records of one batch have columns of types that do not go together: {error}. Declare what the "
            "operator before it returns (returns=…)"
        ) from error


def typed(columns: pa.RecordBatch) -> pa.RecordBatch:
    """Leave out columns that have no type because nothing in them has a value: they would clash with other batches' types."""
    known = [field.name for field in columns.schema if not pa.types.is_null(field.type)]
    return columns.select(known) if known else columns
