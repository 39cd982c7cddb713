"""A split: the part of a batch that one task reads, and how splits are divided among tasks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal

import pyarrow as pa

_MOST_READERS = 4
"""Up to this many tasks each read the whole batch, whatever its size. With more, a shuffle of a large batch is less work."""
_MOST_BYTES = 16 << 20
"""More tasks each read the whole batch if together they read at most this: the query of a shuffle alone takes longer."""


Place = Mapping[str, Any]
"""The place of a record in its source, such as a file and a line, or a partition and an offset."""


class Split(ABC):
    """A part of a batch that one task reads. A split is small and can be pickled."""

    size: int
    """The estimated work in bytes. Splits are divided among tasks by it."""
    reading: ClassVar[Literal["once", "dear", "cheap"]] = "once"
    """Whether several tasks may read this split: never, at the cost of reading it again, or cheaper than a shuffle."""

    @abstractmethod
    def read(self) -> Iterator[pa.RecordBatch]:
        """Yield the records in the order of the source, with the columns of the source."""

    @property
    def where(self) -> Place:
        """The common part of the places of all its records."""
        return {}

    def located(self) -> Iterator[tuple[pa.RecordBatch, list[Place]]]:
        """Yield the same records as `read`, with the place of each. By default, its number in the split, from 1 on."""
        number = 1
        for columns in self.read():
            yield columns, [{**self.where, "record": number + row} for row in range(columns.num_rows)]
            number += columns.num_rows

    def narrowed(self, names: Collection[str]) -> Split:
        """Return a split that reads only these columns if that is less work; otherwise return this one."""
        return self

    def with_codes(self, column: str) -> Split:
        """Return a split that may read this text column dictionary-encoded if that is less work; otherwise return this one."""
        return self


def may_be_shared(splits: Sequence[Split], tasks: int) -> bool:
    """Return whether it is faster that each task reads all splits than to read each split once and shuffle."""
    if tasks < 2:
        return False
    cheap = all(split.reading == "cheap" for split in splits)
    if tasks > _MOST_READERS:
        return cheap and tasks * sum(split.size for split in splits) <= _MOST_BYTES
    # With a single split, the other tasks would wait for the one that reads.
    return cheap or (len(splits) == 1 and splits[0].reading != "once")


def dealt(sizes: Sequence[int], tasks: int) -> list[range]:
    """Divide the positions of these sizes into at most `tasks` ranges whose largest sum is as small as possible.

    Ranges keep the order of the source: everything that one task reads comes before everything that the next one reads.

    >>> dealt([5, 9, 1, 4], 2)
    [range(0, 2), range(2, 4)]
    >>> dealt([1, 1, 1], 5)
    [range(0, 1), range(1, 2), range(2, 3)]
    """
    weights = [size + 1 for size in sizes]
    low, high = max(weights, default=0), sum(weights)
    while low < high:
        most = (low + high) // 2
        low, high = (low, most) if len(_ranges(weights, most)) <= tasks else (most + 1, high)
    return _ranges(weights, low)


def _ranges(weights: Sequence[int], most: int) -> list[range]:
    """Return the fewest ranges whose weights sum up to at most this much each."""
    ranges, start, total = [], 0, 0
    for position, weight in enumerate(weights):
        if total + weight > most and position > start:
            ranges.append(range(start, position))
            start, total = position, 0
        total += weight
    return [*ranges, range(start, len(weights))] if weights else []


def fitted(batch: pa.RecordBatch, columns: pa.Schema) -> pa.RecordBatch:
    """Return a batch with only these columns, in this order and with these types."""
    arrays = [batch.column(field.name).cast(field.type) for field in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=columns)
