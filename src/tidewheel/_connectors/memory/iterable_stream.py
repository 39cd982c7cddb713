"""What Spark runs for `iterable`: a Python data source over a file of Arrow rows, by positions."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructType

from tidewheel._connectors.stream_reader import (
    DataSource,
    InputPartition,
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    StreamReader,
)
from tidewheel.errors import StateError

NAME = "tidewheel-iterable"


class IterableStream(DataSource):
    """The data source that Spark knows by its name."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return NAME

    def streamReader(self, schema: StructType) -> StreamReader:
        """Return the reader."""
        return IterableReader(self.options["path"], int(self.options["batch_size"]), int(self.options["partitions"]))


class IterablePartition(InputPartition):
    """One task's rows, which travel with it."""

    def __init__(self, data: bytes) -> None:
        """Take an Arrow stream."""
        super().__init__(None)
        self.data = data


class IterableReader(StreamReader):
    """Reads by positions: the same range gives the same rows."""

    def __init__(self, path: str, batch_size: int, partitions: int) -> None:
        """Take the file, which only the driver's planner opens, and how to cut it."""
        self.path, self.batch_size, self.slices = path, batch_size, partitions
        self._rows: pa.Table | None = None

    def initialOffset(self) -> dict[str, int]:
        """Begin with the first item."""
        return {"position": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the size of a batch."""
        return ReadMaxRows(self.batch_size) if self.batch_size else ReadAllAvailable()

    def batch_end(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        length = self._table().num_rows
        if start["position"] > length:
            raise StateError(
                f"the job has read {start['position']} items of an iterable that has {length}; a program that starts again "
                "must give the same items, and may add more behind them"
            )
        if isinstance(limit, ReadMaxRows):
            return {"position": min(start["position"] + limit.max_rows, length)}
        return {"position": length}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        """Cut the batch into slices, in order."""
        rows = self._table().slice(start["position"], end["position"] - start["position"])
        return [IterablePartition(_bytes(rows.slice(at, size))) for at, size in cuts(rows.num_rows, self.slices)]

    def size_of(self, partition: Any) -> int:
        return len(partition.data)

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        """Give a slice."""
        return iter(pa.ipc.open_stream(partition.data))

    def _table(self) -> pa.Table:
        if self._rows is None:
            with pa.memory_map(self.path) as file:
                self._rows = pa.ipc.open_file(file).read_all()
        return self._rows

    def __getstate__(self) -> dict[str, Any]:
        """Leave the rows behind: a task gets its own."""
        return {**self.__dict__, "_rows": None}


def cuts(length: int, slices: int) -> list[tuple[int, int]]:
    """Return where to cut and how long each piece is: at most `slices` pieces, none empty, as even as can be.

    >>> cuts(5, 2), cuts(1, 3)
    ([(0, 3), (3, 2)], [(0, 1)])
    """
    edges = [-(-length * number // slices) for number in range(slices + 1)]
    return [(low, high - low) for low, high in itertools.pairwise(edges) if high > low]


def _bytes(rows: pa.Table) -> bytes:
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, rows.schema) as writer:
        writer.write_table(rows)
    return bytes(out.getvalue())
