"""Output staged in the job's own store, for sinks whose work is done in the driver: Arrow streams, checked when read back.

A task's output is in files of bounded size, and the driver reads one after the other, the next ones ahead: neither has a batch's
output in memory as a whole.

Whoever may write to the store could change what is staged and the tokens that name it. So both are read as a stranger's
input: a token names a staged file and nothing else, and the columns are checked before anybody relies on them.
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
from tidewheel.errors import CorruptError, OperatorError, StorageError

T = TypeVar("T")

FILE_BYTES = 16 << 20
"""About how many bytes of columns a staged file holds."""

_AHEAD_BYTES = 32 << 20
_READERS = 4
_STAGED = re.compile(r"staged/\d{20}-[A-Za-z0-9_.]+-\d+-\d+-[^\0]+")


class StagedRef(msgspec.Struct, frozen=True, array_like=True):
    """A staged file: its name below the job's folder, and what it must hold. No other name can be in one."""

    name: str
    size: int
    checksum: int
    rows: int
    more: tuple[StagedRef, ...] = ()
    """The files that go on where this one ends."""

    @property
    def files(self) -> tuple[StagedRef, ...]:
        """The file and those that go on, in order."""
        return (self, *self.more)

    def __post_init__(self) -> None:
        if not _STAGED.fullmatch(self.name) or ".." in self.name.split("/") or self.rows < 0:
            raise ValueError(f"{self.name!r} is not the name of a staged file")


def read_token(token: bytes, kind: type[T], sink: str) -> T:
    """Return what a token says, or refuse it: it was not made by the sink's own tasks."""
    try:
        return msgspec.msgpack.decode(token, type=kind)
    except UNDECODABLE as error:
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


class StagedRecords(SinkPartition):
    """Stages rows that are Python values when they are published."""

    def __init__(self, staging: Staging) -> None:
        self._staged = StagedBatches(staging)

    def write(self, columns: pa.RecordBatch) -> None:
        check_readable(columns)
        self._staged.write(columns)

    def prepare(self) -> bytes | None:
        return self._staged.prepare()


class StagedBatches(SinkPartition):
    """Stages a task's rows, in order, as Arrow, in files of bounded size."""

    def __init__(self, staging: Staging) -> None:
        self._staging = staging
        self._who = f"sink {staging.sink!r}"
        self._batches: list[pa.RecordBatch] = []
        self._bytes = 0
        self._files: list[StagedRef] = []
        self._schema: pa.Schema | None = None

    def check_schema(self, columns: pa.Schema) -> None:
        """Refuse columns that cannot be in one table with those before, where all rows have to be."""
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
        # No other sink of the attempt can have this suffix: theirs end with "arrow", or have a name of their own before it.
        suffix = f"arrow-{len(self._files)}" if self._files else "arrow"
        rows = sum(batch.num_rows for batch in self._batches)
        self._files.append(stage(self._staging, suffix, to_arrow(self._batches), rows))
        self._batches, self._bytes = [], 0


def _pieces(columns: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield the rows in batches that a staged file takes."""
    rows = columns.num_rows
    step = ceil(rows / ceil(columns.nbytes / FILE_BYTES)) if columns.nbytes > FILE_BYTES else max(rows, 1)
    return (columns.slice(start, step) for start in range(0, rows, step))


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


def staged_files(publication: Publication, tokens: Iterable[bytes] | None = None) -> list[StagedRef]:
    """Return the files that the tasks staged, task by task, in each task's order; of some tokens, if they are given."""
    tokens = publication.tokens if tokens is None else tokens
    return [file for token in tokens for file in read_token(token, StagedRef, publication.sink).files]


def published_batches(publication: Publication, tokens: Iterable[bytes] | None = None) -> Iterator[pa.RecordBatch]:
    """Yield what the tasks staged, task by task, in each task's order; of some tokens, if they are given.

    A few files are in memory at a time: whoever keeps no batch needs no memory for all of them.
    """
    for file, data in _read_ahead(publication.store, staged_files(publication, tokens)):
        try:
            yield from from_arrow(data)
        except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
            raise CorruptError(
                f"sink {publication.sink!r}: {file.name} at {publication.store.url} does not hold columns ({error}); restore the "
                "file from a copy of the store"
            ) from None


def _read_ahead(store: Store, files: Sequence[StagedRef]) -> Iterator[tuple[StagedRef, bytes]]:
    """Yield the files in order; those that come next are read meanwhile, several at once."""
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
    """A publication's rows, to be gone through more than once: kept in memory if they are few, else read again each time."""

    def __init__(self, publication: Publication) -> None:
        self._publication = publication
        self._kept: list[pa.RecordBatch] | None = None

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        if self._kept is not None:
            yield from self._kept
            return
        kept: list[pa.RecordBatch] | None = []
        size = 0
        for batch in published_batches(self._publication):
            size += batch.nbytes
            if kept is not None:
                kept.append(batch)
                kept = kept if size <= FILE_BYTES else None
            yield batch
        self._kept = kept

    def schemas(self) -> list[pa.Schema]:
        """Return the columns that there are, each kind once."""
        return list({batch.schema.serialize().to_pybytes(): batch.schema for batch in self}.values())

    def tables(self) -> Iterator[list[pa.Table]]:
        """Yield all rows, in order, as tables of which some are together in memory."""
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
    """Return one table of all rows; columns that only some have are null in the others."""
    try:
        return pa.concat_tables(tables, promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise _unlike(sink, error) from error


def common_schema(schemas: list[pa.Schema], sink: str) -> pa.Schema:
    """Return the columns of the one table that rows with these columns make."""
    try:
        return pa.unify_schemas(schemas, promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise _unlike(sink, error) from error


def _unlike(sink: str, error: Exception) -> OperatorError:
    return OperatorError(
        f"sink {sink!r}: the records of one batch have columns of types that do not go together: {error}. Declare what the "
        "operator before it returns (returns=…)"
    )


def typed(columns: pa.RecordBatch) -> pa.RecordBatch:
    """Leave out columns that have no type because nothing in them has a value: they would clash with other batches' types."""
    known = [field.name for field in columns.schema if not pa.types.is_null(field.type)]
    return columns.select(known) if known else columns
