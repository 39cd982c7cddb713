"""A split: the part of a batch that one task reads, and how splits are divided among tasks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Sequence
from typing import ClassVar, Literal

import pyarrow as pa

_MOST_READERS = 4
"""Up to this many tasks may each read the whole batch: the work of reading grows with them, that of a shuffle does not."""


class Split(ABC):
    """A part of a batch that one task reads. A split is small and can be pickled."""

    size: int
    """The estimated work in bytes. Splits are divided among tasks by it."""
    reading: ClassVar[Literal["once", "dear", "cheap"]] = "once"
    """Whether several tasks may each read this split: never, at the cost of reading it again, or for less than a shuffle."""

    @abstractmethod
    def read(self) -> Iterator[pa.RecordBatch]:
        """Yield the records in the order of the source, with the columns of the source."""

    def narrowed(self, names: Collection[str]) -> Split:
        """Return a split that reads only these columns if that is less work; otherwise return this one."""
        return self


def may_be_shared(splits: Sequence[Split], tasks: int) -> bool:
    """Return whether it is faster if each of so many tasks reads all splits than if each split is read once and shuffled."""
    if not 1 < tasks <= _MOST_READERS:
        return False
    # With a single split, the other tasks would wait for the one that reads.
    alone = len(splits) == 1 and splits[0].reading != "once"
    return alone or all(split.reading == "cheap" for split in splits)


def dealt(sizes: Sequence[int], tasks: int) -> list[list[int]]:
    """Divide the positions of these sizes into at most `tasks` groups of about equal sum, each in ascending order.

    The largest size goes first, each to the group that is smallest so far.

    >>> dealt([5, 9, 1, 4], 2)
    [[1, 2], [0, 3]]
    """
    groups: list[list[int]] = [[] for _ in range(min(tasks, len(sizes)))]
    sums = [0] * len(groups)
    for position in sorted(range(len(sizes)), key=lambda position: (-sizes[position], position)):
        smallest = sums.index(min(sums))
        groups[smallest].append(position)
        sums[smallest] += sizes[position] + 1
    return [sorted(group) for group in groups]
