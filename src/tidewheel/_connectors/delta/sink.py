"""delta: rows in a Delta Lake table, exactly once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tidewheel._connectors.delta.columns import check_partitions, check_types, created, fitted
from tidewheel._connectors.delta.table import TableLocation, client
from tidewheel._connectors.files import hive
from tidewheel._connectors.sink import Publication, Sink, SinkPartition, Staging
from tidewheel._connectors.staging import PublishedRows, StagedBatches, common_schema, typed
from tidewheel._core.urls import Url
from tidewheel._storage.file import FileStore
from tidewheel.errors import ConfigError

if TYPE_CHECKING:
    from deltalake import DeltaTable


def delta(url: str, *, partition_by: str | Sequence[str] = (), create: bool = True) -> Delta:
    """Add records to a Delta Lake table. Exactly once: a commit's records are one commit of the table, under the commit's number.

    `url` is a local folder or a place in an object store, `s3://bucket/table?endpoint=…&region=…`, with the credentials in the
    environment. Of the store it takes conditional puts. A table that is not there is made by the first batch from the types of
    the records, which the operator before declares (`returns=…`), partitioned by the columns `partition_by`; with `create=False`
    it must be there. Records that the table cannot take, or only by cutting something off, fail their batch before it is
    committed.

    Only the driver writes: the output passes through it. Readers see a commit's records all at once.
    """
    return Delta(url, partition_by, create)


class Delta(Sink):
    """Exactly once: a batch is one commit of the table, with the batch's number as its transaction identifier."""

    guarantee = "exactly once"

    def __init__(self, url: str, partition_by: str | Sequence[str] = (), create: bool = True) -> None:
        client()
        # A local path means the same wherever the driver stands later.
        self.location = TableLocation(FileStore.from_url(url).url if "://" not in url else url)
        self.location.resolved()
        self.partition_by = (partition_by,) if isinstance(partition_by, str) else tuple(partition_by)
        self.create = create
        self.schema: pa.Schema | None = None
        """The table's columns when the job started; tasks check their records by it."""
        self._table: DeltaTable | None = None

    def describe(self) -> str:
        return f"Delta table at {self.location.url}"

    def place(self) -> str:
        return f"Delta table at {Url(self.location.url)}"

    def start(self, job: str) -> None:
        table = self.location.open("the delta sink")
        if table is None:
            if not self.create:
                raise ConfigError(
                    f"there is no Delta table at {self.location.url}; make it, or let the sink do so (create=True)"
                )
            return
        partitions = tuple(table.metadata().partition_columns)
        if self.partition_by and partitions != self.partition_by:
            raise ConfigError(
                f"the Delta table at {self.location.url} is partitioned by {', '.join(partitions) or 'nothing'}, and "
                f"partition_by is {', '.join(self.partition_by)}; leave it out, or write to another table"
            )
        self.schema = pa.schema(table.schema())

    def open(self, staging: Staging) -> SinkPartition:
        return _DeltaPartition(self, staging)

    def publish(self, publication: Publication) -> None:
        if not publication.tokens:
            return
        who = f"sink {publication.sink!r}"
        rows = PublishedRows(publication)
        # Kept open: it knows what we added. What others did meanwhile shows when a commit meets theirs.
        table, self._table = self._table or self.location.open(who), None
        if table is None:
            schema = created(common_schema(rows.schemas(), publication.sink))
            table = self.location.create(who, schema, self.partition_by)
        schema = self.schema = pa.schema(table.schema())
        self.location.add(
            table, schema, lambda: (fitted(batch, schema, who, "the table", rounds=True) for batch in rows), publication
        )
        self._table = table

    def __getstate__(self) -> dict[str, Any]:
        # The open table stays in the driver.
        return {**self.__dict__, "_table": None}


class _DeltaPartition(StagedBatches):
    """A task's rows, in the table's own types."""

    def __init__(self, sink: Delta, staging: Staging) -> None:
        super().__init__(staging)
        self._sink = sink

    def write(self, columns: pa.RecordBatch) -> None:
        if not columns.num_rows:
            return
        columns = typed(columns)
        check_types(columns.schema, self._who)
        if self._sink.partition_by:
            check_partitions(columns.schema.names, self._sink.partition_by, self._who)
        schema = self._sink.schema or created(columns.schema)
        for _ in hive.split(columns, self._sink.partition_by) if self._sink.partition_by else ():
            pass
        fitting = _fitted(columns, schema, self._who)
        self.check_schema(fitting.schema)
        super().write(fitting)


def _fitted(columns: pa.RecordBatch, schema: pa.Schema, who: str) -> pa.RecordBatch:
    return fitted(columns, schema, who, "the table")
