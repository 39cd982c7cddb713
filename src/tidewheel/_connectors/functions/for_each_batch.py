"""for_each_batch: a function per commit, over a Spark DataFrame."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
from xxhash import xxh64_intdigest

from tidewheel._connectors.files.formats import encoded
from tidewheel._connectors.sink import Publication, Sink, SinkPartition, Staging
from tidewheel._connectors.staging import StagedRef, read_token, stage, together, unstage
from tidewheel._core.pandas_warning import ignore_pandas_warning
from tidewheel._core.transient import is_transient
from tidewheel._core.user_code import described
from tidewheel._storage.file import FileStore
from tidewheel.errors import ConfigError, Retry, StepError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_GLOB = re.compile(r"[*?\[\]{}\\]")


def for_each_batch(function: Callable[[Any, int], Any], *, retry: tuple[type[Exception], ...] = ()) -> ForEachBatch:
    """Call `function(dataframe, sequence)` with each commit's output, read back from the committed files; not for an empty one.

    At least once: after a crash, the function may be called again with the same rows and the same sequence. Sequences only
    grow, so a function that stores the sequence together with its output can skip repeated calls:

        def write(frame, sequence):
            with database.begin() as transaction:
                done = transaction.scalar("select sequence from marks where sink = 'totals' for update")
                if sequence > done:
                    transaction.insert("totals", frame.toArrow())
                    transaction.execute("update marks set sequence = ? where sink = 'totals'", sequence)

    Or replace the output of the same sequence: `frame.write.mode("overwrite").parquet(f"out/{sequence}")`.

    In a fleet, several runs commit in parallel, and sequences grow within each run: keep a mark for each run, which is
    `sequence >> 32`.

    Connection errors, time-outs and errors of the classes in `retry` restart the run; any other error stops the run if it
    occurs again.
    """
    return ForEachBatch(function, retry)


class ForEachBatch(Sink):
    """At least once, unless the function is idempotent by the sequence."""

    guarantee = "at least once"

    def __init__(self, function: Callable[[Any, int], Any], retry: tuple[type[Exception], ...] = ()) -> None:
        """Take the function and its transient errors."""
        self.retry = retry
        self.function: Callable[[Any, int], Any] | None = function

    def open(self, staging: Staging) -> SinkPartition:
        return _StagedParquet(staging)

    def publish(self, publication: Publication) -> None:
        if not publication.tokens:
            return
        assert self.function is not None
        frame = _frame(publication)
        try:
            self.function(frame, publication.sequence)
        except Exception as error:
            raise (Retry if is_transient(error, self.retry) else StepError)(
                f"sink {publication.sink!r}: its function failed on sequence {publication.sequence}: "
                f"{described(error)}. The output is committed, and the next start calls the function again"
            ) from error

    def __getstate__(self) -> dict[str, Any]:
        """Leave the function in the driver: it may hold connections, and no task calls it."""
        return {"function": None, "retry": self.retry}


class _Token(msgspec.Struct, frozen=True, array_like=True):
    ref: StagedRef
    schema: int
    """A digest of the columns; 0 if Spark could not read them from the file."""


class _StagedParquet(SinkPartition):
    def __init__(self, staging: Staging) -> None:
        self._staging = staging
        self._tables: list[pa.Table] = []
        self._schema: pa.Table | None = None
        """The columns of all tables, without rows. Tables with incompatible columns are rejected at once."""

    def write(self, columns: pa.RecordBatch) -> None:
        if columns.num_rows:
            encoded("parquet", columns)
            table = pa.Table.from_batches([columns])
            empty = [table[:0]] if self._schema is None else [self._schema, table[:0]]
            self._schema = together(empty, self._staging.sink)
            self._tables.append(table)

    def prepare(self) -> bytes | None:
        if not self._tables:
            return None
        from pyarrow import parquet

        table = together(self._tables, self._staging.sink)
        out = pa.BufferOutputStream()
        parquet.write_table(table, out, compression="zstd")
        ref = stage(self._staging, "parquet", bytes(out.getvalue()), table.num_rows)
        unknown = any(pa.types.is_null(field.type) for field in table.schema)
        digest = 0 if unknown else int(xxh64_intdigest(str(table.schema.remove_metadata()).encode()))
        return msgspec.msgpack.encode(_Token(ref, digest))


def _frame(publication: Publication) -> DataFrame:
    spark = publication.spark
    if spark is None:
        raise ConfigError(
            f"sink {publication.sink!r}: for_each_batch needs Spark for its DataFrame, which is not available here; "
            "use for_each or collect"
        )
    tokens = [read_token(token, _Token, publication.sink) for token in publication.tokens]
    digests = {token.schema for token in tokens}
    store = publication.store
    if isinstance(store, FileStore) and len(digests) == 1 and 0 not in digests and not _GLOB.search(store.root):
        return spark.read.parquet(*(f"file:{store.root}/{token.ref.name}" for token in tokens))
    from pyarrow import parquet

    tables = [parquet.read_table(pa.BufferReader(unstage(store, token.ref))) for token in tokens]
    ignore_pandas_warning()
    return spark.createDataFrame(together(tables, publication.sink))
