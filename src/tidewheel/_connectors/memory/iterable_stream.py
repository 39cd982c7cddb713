"""The reader of an iterable: its position is the number of items that were read."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from tidewheel._checkpoint.manifest import Position, SeenFile
from tidewheel._connectors.source import SourceReader, smaller
from tidewheel._connectors.split import Place, Split, fitted
from tidewheel.errors import StateError


@dataclass(frozen=True)
class IterableSplit(Split):
    """The items of one task, as an Arrow stream."""

    data: bytes
    size: int
    first: int
    """The number of the first item, from 0 on."""

    def read(self) -> Iterator[pa.RecordBatch]:
        return iter(pa.ipc.open_stream(self.data))

    def located(self) -> Iterator[tuple[pa.RecordBatch, list[Place]]]:
        number = self.first
        for columns in self.read():
            yield columns, [{"item": number + row} for row in range(columns.num_rows)]
            number += columns.num_rows


class IterableReader(SourceReader):
    """Read by positions. The same range always has the same items."""

    fixed_start = True

    def __init__(self, rows: pa.Table, batch_size: int | None, partitions: int) -> None:
        """Take the items as columns, the size of a batch (None: all), and the number of slices per batch."""
        self.schema, self._rows, self._batch_size, self._slices = rows.schema, rows, batch_size, partitions

    def start(self) -> Position:
        return 0

    def check(self, position: Position, last: SeenFile | None) -> None:
        at, length = _number(position), int(self._rows.num_rows)
        if at > length:
            raise StateError(
                f"it has read {at} items, and its iterable has {length} now; pass the same items as before, and perhaps more"
            )

    def end(self, start: Position) -> Position:
        self.check(start, None)
        at, length = _number(start), int(self._rows.num_rows)
        most = smaller(self._batch_size, self.limit)
        return length if most is None else min(at + most, length)

    def amount(self, start: Position, end: Position) -> int:
        return _number(end) - _number(start)

    def splits(self, start: Position, end: Position, tasks: int) -> list[Split]:
        rows = self._rows.slice(_number(start), _number(end) - _number(start))
        pieces = ((at, self._bytes(rows.slice(at, size))) for at, size in cuts(rows.num_rows, self._slices))
        return [IterableSplit(data, len(data), _number(start) + at) for at, data in pieces]

    def _bytes(self, rows: pa.Table) -> bytes:
        out = pa.BufferOutputStream()
        with pa.ipc.new_stream(out, self.schema) as writer:
            for batch in rows.to_batches():
                writer.write_batch(fitted(batch, self.schema))
        return bytes(out.getvalue())


def _number(position: Position) -> int:
    assert isinstance(position, int)
    return position


def cuts(length: int, slices: int) -> list[tuple[int, int]]:
    """Return start and length of at most `slices` pieces of nearly equal length, none of them empty.

    >>> cuts(5, 2), cuts(1, 3)
    ([(0, 3), (3, 2)], [(0, 1)])
    """
    edges = [-(-length * number // slices) for number in range(slices + 1)]
    return [(low, high - low) for low, high in itertools.pairwise(edges) if high > low]
