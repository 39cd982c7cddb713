"""Readers of Python data sources, for every version of Spark 4.

Since 4.2 Spark tells a reader where a batch begins and how much it may take. Older versions ask for the newest offset alone: a
batch then takes all there is, and limits on its size are not kept.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from tidewheel._connectors.direct import DirectReader, ReadBySpark, SourceBatch
from tidewheel._connectors.split import Split

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

    HAS_LIMITS = True
else:
    try:
        from pyspark.sql.streaming.datasource import (
            ReadAllAvailable,
            ReadLimit,
            ReadMaxRows,
            SupportsTriggerAvailableNow,
        )

        HAS_LIMITS = True
    except ImportError:
        HAS_LIMITS = False

        class ReadLimit: ...

        class ReadAllAvailable(ReadLimit): ...

        @dataclass
        class ReadMaxRows(ReadLimit):
            max_rows: int

        class SupportsTriggerAvailableNow: ...


_UNKNOWN_SIZE = 1 << 20

__all__ = [
    "HAS_LIMITS",
    "DataSource",
    "DirectStream",
    "InputPartition",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxRows",
    "StreamReader",
]


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A reader that says where a batch ends. The same offsets give the same records."""

    @abstractmethod
    def batch_end(self, start: Any, limit: ReadLimit) -> Any:
        """Return where the batch that begins at `start` ends; `start` itself if there is nothing new."""

    def latestOffset(self, start: Any = None, limit: ReadLimit | None = None) -> Any:
        """Return the end of the next batch, or of all there is where Spark does not say where the batch begins."""
        if start is None or limit is None:
            return self.batch_end(self.initialOffset(), ReadAllAvailable())
        return self.batch_end(start, limit)

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return how much a batch takes: all there is."""
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Let nothing come that is not there now."""

    def size_of(self, partition: InputPartition) -> int:
        """Return about how many bytes a partition has."""
        return _UNKNOWN_SIZE


@dataclass(frozen=True)
class StreamSplit(Split):
    """A partition of a reader."""

    reader: StreamReader
    partition: InputPartition
    columns: pa.Schema
    size: int

    def read(self) -> Iterator[pa.RecordBatch]:
        batches: Iterator[pa.RecordBatch] = self.reader.read(self.partition)
        for batch in batches:
            arrays = [batch.column(field.name).cast(field.type) for field in self.columns]
            yield pa.RecordBatch.from_arrays(arrays, schema=self.columns)


class DirectStream(DirectReader):
    """Reads in the job's own tasks what a reader would read in tasks of Spark's Python data source."""

    def __init__(self, reader: StreamReader, columns: pa.Schema) -> None:
        """Take the reader and the columns that the job reads."""
        self.reader, self.columns = reader, columns
        self._first: Any = None
        """Where the first batch begins. It was asked for before Spark did, so that nothing is before it that Spark would read."""

    def begin(self) -> None:
        if self._first is None:
            self._first = self.reader.initialOffset()
            self.reader.stop()

    def end(self, start: Any) -> Any:
        """Return where the batch ends that begins at an offset; the offset itself if there is nothing new.

        None is the beginning of the first batch: of all that `begin` took note of.
        """
        return self.reader.batch_end(self._first if start is None else start, self.reader.getDefaultReadLimit())

    def splits(self, batch: SourceBatch, tasks: int) -> list[Split]:
        start = self._first if batch.start is None else batch.start
        if start is None:
            raise ReadBySpark("where the first batch begins is known to Spark alone")
        return [
            StreamSplit(self.reader, partition, self.columns, self.reader.size_of(partition))
            for partition in self.reader.partitions(start, batch.end)
        ]
