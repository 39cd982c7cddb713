"""Output staged in the job's own store, for sinks whose work is done in the driver: Arrow streams, checked when read back.

Whoever may write to the store could change what is staged and the tokens that name it. So both are read as a stranger's
input: a token names a staged file and nothing else, and the columns are checked before anybody relies on them.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator
from typing import TypeVar

import msgspec
import pyarrow as pa
from xxhash import xxh64_intdigest

from tidewheel._checkpoint.names import staged_file
from tidewheel._connectors.sink import Publication, SinkPartition, Staging
from tidewheel._storage import Store
from tidewheel.errors import CorruptError, OperatorError, StorageError

T = TypeVar("T")

_STAGED = re.compile(r"staged/\d{20}-[A-Za-z0-9_.]+-\d+-\d+-[^\0]+")


class StagedRef(msgspec.Struct, frozen=True, array_like=True):
    """A staged file: its name below the job's folder, and what it must hold. No other name can be in one."""

    name: str
    size: int
    checksum: int
    rows: int

    def __post_init__(self) -> None:
        if not _STAGED.fullmatch(self.name) or ".." in self.name.split("/") or self.rows < 0:
            raise ValueError(f"{self.name!r} is not the name of a staged file")


def read_token(token: bytes, kind: type[T], sink: str) -> T:
    """Return what a token says, or refuse it: it was not made by the sink's own tasks."""
    try:
        return msgspec.msgpack.decode(token, type=kind)
    except msgspec.DecodeError as error:
        raise CorruptError(
            f"sink {sink!r}: a token of the commit is not one that its tasks made ({error}); something else has written to the "
            "state store. Nothing was published: restore the job to an earlier checkpoint"
        ) from None


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
        self._staging = staging
        self._who = f"sink {staging.sink!r}"
        self._batches: list[pa.RecordBatch] = []

    def write(self, columns: pa.RecordBatch) -> None:
        if columns.num_rows:
            self._batches.append(columns)

    def prepare(self) -> bytes | None:
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
    """Yield the batches that `to_arrow` wrote, each checked: Arrow itself trusts its offsets and texts."""
    source = pa.BufferReader(data)
    while source.tell() < len(data):
        for batch in pa.ipc.open_stream(source):
            batch.validate(full=True)
            _check_names(batch.schema)
            yield batch


def _check_names(fields: Iterable[pa.Field]) -> None:
    """Read the name of every column and of what is in it: one that is no text is a `ValueError`."""
    for field in fields:
        assert isinstance(field.name, str)
        _check_names(field.type.field(place) for place in range(field.type.num_fields))


def published_batches(publication: Publication, tokens: Iterable[bytes] | None = None) -> Iterator[pa.RecordBatch]:
    """Yield what the tasks staged, task by task, in each task's order; of some tokens, if they are given."""
    for token in publication.tokens if tokens is None else tokens:
        ref = read_token(token, StagedRef, publication.sink)
        try:
            yield from from_arrow(unstage(publication.store, ref))
        except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
            raise CorruptError(
                f"sink {publication.sink!r}: {ref.name} at {publication.store.url} does not hold columns ({error}); restore the "
                "file from a copy of the store"
            ) from None


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
