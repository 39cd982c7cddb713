"""Output staged in the job's store, for sinks that write in the driver: Arrow streams, checked when they are read back.

A task writes its output to files of bounded size. The driver reads them one by one and prefetches the next ones, so that
neither holds the whole output of a batch in memory.

Anyone who can write to the store could change staged files and the tokens that name them. So both are treated as untrusted
input: a token can only name a staged file, and the columns are validated before they are used.
"""

from __future__ import annotations

import itertools
import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from math import ceil
from typing import TypeVar

import msgspec
import pyarrow as pa
from xxhash import xxh64_intdigest

from tidewheel._checkpoint.names import staged_file
from tidewheel._connectors.sink import Publication, SinkPartition, Staging
from tidewheel._core.undecodable import UNDECODABLE
from tidewheel._storage import Store
from tidewheel._values.columns import check_readable
from tidewheel.errors import CorruptError, StepError, StorageError

T = TypeVar("T")

FILE_BYTES = 16 << 20
"""The approximate size of a staged file in bytes."""

_AHEAD_BYTES = 32 << 20
_READERS = 4
_STAGED = re.compile(r"staged/\d{20}-[A-Za-z0-9_.]+-\d+-\d+-[^\0]+")


class StagedRef(msgspec.Struct, frozen=True, array_like=True):
    """A staged file: its name below the job's folder, its size and checksum. Other names are rejected."""

    name: str
    size: int
    checksum: int
    rows: int
    more: tuple[StagedRef, ...] = ()
    """The following files of the same task."""

    @property
    def files(self) -> tuple[StagedRef, ...]:
        """The file and the following files, in order."""
        return (self, *self.more)

    def __post_init__(self) -> None:
        if not _STAGED.fullmatch(self.name) or ".." in self.name.split("/") or self.rows < 0:
            raise ValueError(f"{self.name!r} is not the name of a staged file")


def read_token(token: bytes, kind: type[T], sink: str) -> T:
    """Decode a token; raise a `CorruptError` if the sink's tasks did not create it."""
    try:
        return msgspec.msgpack.decode(token, type=kind)
    except UNDECODABLE as error:
        raise CorruptError(
            f"sink {sink!r}: a token of the commit is invalid ({error}); another program has written to the "
            "state store. Nothing was published: restore the job to an earlier checkpoint"
        ) from None


def staged_name(staging: Staging, suffix: str) -> str:
    """Return the name of the staged file, which is unique to the attempt, the sink and the sequence."""
    run, task, attempt = staging.attempt.rsplit("-", 2)
    return staged_file(staging.sequence, run, int(task), int(attempt), f"{staging.sink}.{suffix}")


def stage(staging: Staging, suffix: str, data: bytes, rows: int) -> StagedRef:
    """Write bytes durably to the store, under the name of the attempt."""
    name = staged_name(staging, suffix)
    if not staging.store.create(name, data):
        raise StorageError(
            f"sink {staging.sink!r}: {name} at {staging.store.url} has different content; two attempts of one task "
            "used the same name"
        )
    return StagedRef(name, len(data), int(xxh64_intdigest(data)), rows)


def unstage(store: Store, ref: StagedRef) -> bytes:
    """Return the staged bytes; raise a `CorruptError` if they have changed."""
    data = store.read(ref.name)
    if len(data) != ref.size or xxh64_intdigest(data) != ref.checksum:
        raise CorruptError(
            f"{ref.name} at {store.url} has changed since it was staged: expected {ref.size} bytes with checksum "
            f"{ref.checksum:016x}, "
            f"found {len(data)} bytes; restore the file from a backup of the store"
        )
    return data


class StagedRecords(SinkPartition):
    """Stage rows that are published as Python values."""

    def __init__(self, staging: Staging) -> None:
        self._staged = StagedBatches(staging)

    def write(self, columns: pa.RecordBatch) -> None:
        check_readable(columns)
        self._staged.write(columns)

    def prepare(self) -> bytes | None:
        return self._staged.prepare()


class StagedBatches(SinkPartition):
    """Stage the rows of a task as Arrow, in order, in files of bounded size."""

    def __init__(self, staging: Staging, suffix: str = "arrow") -> None:
        """Take the suffix of the files. It distinguishes several of one attempt."""
        self._staging, self._suffix = staging, suffix
        self._who = f"sink {staging.sink!r}"
        self._batches: list[pa.RecordBatch] = []
        self._bytes = 0
        self._files: list[StagedRef] = []
        self._schema: pa.Schema | None = None

    def check_schema(self, columns: pa.Schema) -> None:
        """Raise an error if columns cannot be in one table with the earlier ones, for sinks that need one table."""
        known = columns if self._schema is None else common_schema([self._schema, columns], self._staging.sink)
        self._schema = known

    def write(self, columns: pa.RecordBatch) -> None:
        for some in _pieces(columns):
            if self._batches and self._bytes + some.nbytes > FILE_BYTES:
                self._stage()
            self._batches.append(some)
            self._bytes += some.nbytes

    def prepare(self) -> bytes | None:
        if self._batches:
            self._stage()
        if not self._files:
            return None
        first, *more = self._files
        return msgspec.msgpack.encode(msgspec.structs.replace(first, more=tuple(more)))

    def _stage(self) -> None:
        # The name is unique in the attempt: those of other sinks begin with the name of their sink.
        suffix = f"{self._suffix}-{len(self._files)}" if self._files else self._suffix
        rows = sum(batch.num_rows for batch in self._batches)
        self._files.append(stage(self._staging, suffix, to_arrow(self._batches), rows))
        self._batches, self._bytes = [], 0


def _pieces(columns: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield the rows in batches that fit into a staged file."""
    rows = columns.num_rows
    step = ceil(rows / ceil(columns.nbytes / FILE_BYTES)) if columns.nbytes > FILE_BYTES else max(rows, 1)
    return (columns.slice(start, step) for start in range(0, rows, step))


def to_arrow(batches: list[pa.RecordBatch], compression: str | None = "lz4") -> bytes:
    """Return batches as concatenated Arrow streams. A stream has one schema, and inferred schemas may differ."""
    out = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    for schema, alike in itertools.groupby(batches, key=lambda batch: batch.schema):
        with pa.ipc.new_stream(out, schema, options=options) as writer:
            for batch in alike:
                writer.write_batch(batch)
    return bytes(out.getvalue())


def from_arrow(data: bytes) -> Iterator[pa.RecordBatch]:
    """Yield the batches that `to_arrow` wrote, each validated, because Arrow trusts offsets and texts."""
    for batch in from_arrow_file(pa.BufferReader(data), len(data)):
        batch.validate(full=True)
        _check_names(batch.schema)
        yield batch


def from_arrow_file(file: pa.NativeFile, size: int) -> Iterator[pa.RecordBatch]:
    """Yield the batches that `to_arrow` wrote to a file of our own, without validation."""
    while file.tell() < size:
        yield from pa.ipc.open_stream(file)


def _check_names(fields: Iterable[pa.Field]) -> None:
    """Read the names of all columns and nested fields. Raise a `ValueError` for a name that is not text."""
    for field in fields:
        assert isinstance(field.name, str)
        _check_names(field.type.field(place) for place in range(field.type.num_fields))


def staged_files(publication: Publication, tokens: Iterable[bytes] | None = None) -> list[StagedRef]:
    """Return the staged files of all tokens or of the given ones, task by task, in the order of each task."""
    tokens = publication.tokens if tokens is None else tokens
    return [file for token in tokens for file in read_token(token, StagedRef, publication.sink).files]


def published_batches(publication: Publication, tokens: Iterable[bytes] | None = None) -> Iterator[pa.RecordBatch]:
    """Yield the staged batches of all tokens or of the given ones, task by task, in the order of each task.

    Only a few files are in memory at a time, unless the caller keeps the batches.
    """
    for file, data in _read_ahead(publication.store, staged_files(publication, tokens)):
        try:
            yield from from_arrow(data)
        except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
            raise CorruptError(
                f"sink {publication.sink!r}: {file.name} at {publication.store.url} is not a valid Arrow file "
                f"({error}); restore the "
                "file from a backup of the store"
            ) from None


def _read_ahead(store: Store, files: Sequence[StagedRef]) -> Iterator[tuple[StagedRef, bytes]]:
    """Yield the files in order, and read the next ones in parallel."""
    if len(files) < 2:
        yield from ((file, unstage(store, file)) for file in files)
        return
    coming = deque(files)
    reading: deque[tuple[StagedRef, Future[bytes]]] = deque()
    with ThreadPoolExecutor(_READERS, thread_name_prefix="tidewheel-staged") as readers:
        while coming or reading:
            ahead = sum(file.size for file, _ in reading)
            while coming and (not reading or (len(reading) < _READERS and ahead + coming[0].size <= _AHEAD_BYTES)):
                file = coming.popleft()
                reading.append((file, readers.submit(unstage, store, file)))
                ahead += file.size
            file, data = reading.popleft()
            yield file, data.result()


class PublishedRows:
    """The rows of a publication, for repeated iteration: in memory if there are few, otherwise read again each time."""

    def __init__(self, publication: Publication) -> None:
        self.publication = publication
        self._kept: list[pa.RecordBatch] | None = None

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        if self._kept is not None:
            yield from self._kept
            return
        kept: list[pa.RecordBatch] | None = []
        size = 0
        for batch in published_batches(self.publication):
            size += batch.nbytes
            if kept is not None:
                kept.append(batch)
                kept = kept if size <= FILE_BYTES else None
            yield batch
        self._kept = kept

    def schemas(self) -> list[pa.Schema]:
        """Return the distinct schemas."""
        return list({batch.schema.serialize().to_pybytes(): batch.schema for batch in self}.values())

    def tables(self) -> Iterator[list[pa.Table]]:
        """Yield all rows in order as tables. Only some tables are in memory at a time."""
        some: list[pa.Table] = []
        size = 0
        for batch in self:
            some.append(pa.Table.from_batches([batch]))
            size += batch.nbytes
            if size >= FILE_BYTES:
                yield some
                some, size = [], 0
        if some:
            yield some


def together(tables: list[pa.Table], sink: str) -> pa.Table:
    """Return one table of all rows; columns that a row does not have are null."""
    try:
        return pa.concat_tables(tables, promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise _unlike(sink, error) from error


def common_schema(schemas: list[pa.Schema], sink: str) -> pa.Schema:
    """Return the common schema of rows with these schemas."""
    try:
        return pa.unify_schemas(schemas, promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise _unlike(sink, error) from error


def _unlike(sink: str, error: Exception) -> StepError:
    return StepError(
        f"sink {sink!r}: the records of one batch have columns of incompatible types: {error}. Declare the type that "
        "the "
        "previous step returns (returns=…)"
    )


def typed(columns: pa.RecordBatch) -> pa.RecordBatch:
    """Drop columns without a type, which have only nulls and would conflict with the types of other batches."""
    known = [field.name for field in columns.schema if not pa.types.is_null(field.type)]
    return columns.select(known) if known else columns
