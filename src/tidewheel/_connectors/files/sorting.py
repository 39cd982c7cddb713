"""Sort the rows of a data file by the sort order of its table, with a part of them in memory."""

from __future__ import annotations

import mmap
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import IO, Any

import numpy as np
import pyarrow as pa

from tidewheel._connectors.files.formats import GROUP_BYTES, GROUP_ROWS, CheckedFile, EncodedRows, ParquetWriter
from tidewheel._connectors.staging import from_arrow_file, to_arrow

Positions = np.ndarray[Any, np.dtype[np.uint64]]


@dataclass(frozen=True)
class RowOrder:
    """How to sort the rows of a file."""

    fields: tuple[str, ...]
    """A text for each field of the sort order."""
    positions: Callable[[Sequence[pa.RecordBatch]], Positions]
    """Return the positions of all rows in the order in which to write them."""


class HeldBatches:
    """Batches in order: in memory, and earlier ones in a temporary file."""

    def __init__(self) -> None:
        self.bytes = 0
        """The size of all batches in memory."""
        self._batches: list[pa.RecordBatch] = []
        self._held = 0
        self._file: IO[bytes] | None = None

    def append(self, batch: pa.RecordBatch) -> None:
        """Add a batch."""
        if not batch.num_rows:
            return
        self._batches.append(batch)
        self._held += batch.nbytes
        self.bytes += batch.nbytes
        if self._held > GROUP_BYTES:
            self._file = self._file or tempfile.TemporaryFile(prefix="tidewheel-")  # noqa: SIM115
            self._file.write(to_arrow(self._batches, compression=None))
            self._batches, self._held = [], 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Yield the batches. Those in the file are mapped into memory."""
        if self._file is not None:
            self._file.flush()
            mapped = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)
            yield from from_arrow_file(pa.BufferReader(pa.py_buffer(mapped)), len(mapped))
        yield from self._batches

    def __del__(self) -> None:
        # A failed task leaves its files to the garbage collector; its worker continues and must not run out of descriptors.
        if self._file is not None:
            self._file.close()


class SortedParquetWriter(ParquetWriter):
    """Parquet whose rows are sorted when the file is closed."""

    def __init__(self, file: CheckedFile, schema: pa.Schema, compression: str, order: RowOrder) -> None:
        super().__init__(file, schema, compression)
        self._order, self._unsorted = order, HeldBatches()

    @property
    def size(self) -> int:
        return self._unsorted.bytes

    def write(self, rows: EncodedRows) -> None:
        self._unsorted.append(rows.columns)

    def close(self) -> None:
        batches = list(self._unsorted)
        if batches:
            positions = self._order.positions(batches)
            step = min(GROUP_ROWS, len(positions) * GROUP_BYTES // max(self.size, 1) + 1)
            for start in range(0, len(positions), step):
                super().write(EncodedRows(_taken(batches, positions[start : start + step])))
        super().close()


def _taken(batches: Sequence[pa.RecordBatch], positions: Positions) -> pa.RecordBatch:
    """Return the rows at these positions. Arrow's own `take` would first copy all text columns into one array."""
    order = np.argsort(positions)
    ascending = positions[order]
    starts = np.cumsum([0, *(batch.num_rows for batch in batches)], dtype=np.uint64)
    bounds = np.searchsorted(ascending, starts)
    parts = [
        batch.take(pa.array(ascending[first:end] - start))
        for batch, start, first, end in zip(batches, starts, bounds, bounds[1:], strict=False)
        if end > first
    ]
    return pa.concat_batches(parts).take(pa.array(np.argsort(order)))
