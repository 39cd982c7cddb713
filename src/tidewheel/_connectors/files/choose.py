"""Which files a batch takes: pure functions of the listed files, the files taken before, and the limits."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from itertools import accumulate
from typing import Literal, NamedTuple

Order = Literal["time", "name"]


class ListedFile(NamedTuple):
    """A file of a listing."""

    path: str
    """The path, or the URL in an object store: the identity of the file."""
    modified_ms: int
    """When it was changed last, in milliseconds since 1970, by the clock of the disk or store."""
    size: int


class Limits(NamedTuple):
    """Which files a source takes, and how much of them a batch has."""

    max_files: int | None = None
    max_bytes: int | None = None
    """A batch has at least one file, however large."""
    max_age_ms: int | None = None
    """Files that are older than the newest one by more than this are never taken; None: age does not matter."""
    settle_ms: int = 0
    """A file is taken when it has not changed for this long."""
    newest_first: bool = False
    order: Order = "time"
    divided_bytes: int = 32 * 1024 * 1024
    """Files of at least this many bytes may be read by several tasks."""


def in_order(files: Iterable[ListedFile], order: Order) -> list[ListedFile]:
    """Return files in the order of a source: by time and then path, or by path alone."""
    return sorted(files, key=lambda file: (file.modified_ms, file.path) if order == "time" else (0, file.path))


def waiting(
    listed: Iterable[ListedFile],
    taken: Container[str],
    limits: Limits,
    now_ms: int,
    not_before_ms: int | None = None,
) -> list[ListedFile]:
    """Return the files that batches may take, in the order in which they take them. Pure.

    `taken` are the paths that earlier batches have. Files from before `not_before_ms` are left out: the job may have taken and
    forgotten them.

    >>> files = [ListedFile("b", 1, 10), ListedFile("a", 2, 10), ListedFile("c", 1, 10)]
    >>> [file.path for file in waiting(files, {"c"}, Limits(), now_ms=9)]
    ['b', 'a']
    """
    fresh = in_order(
        (
            file
            for file in listed
            if (not limits.settle_ms or file.modified_ms <= now_ms - limits.settle_ms)
            and (not_before_ms is None or file.modified_ms >= not_before_ms)
            and file.path not in taken
        ),
        limits.order,
    )
    return fresh[::-1] if limits.newest_first else fresh


def first_batch(files: Sequence[ListedFile], limits: Limits) -> int:
    """Return how many of the files that wait the next batch takes: at least one, however large, if there is one. Pure.

    >>> first_batch([ListedFile("b", 1, 10), ListedFile("a", 2, 10), ListedFile("c", 1, 10)], Limits(max_bytes=20))
    2
    """
    most = len(files) if limits.max_files is None else min(limits.max_files, len(files))
    if limits.max_bytes is None:
        return most
    sizes = accumulate(file.size for file in files[:most])
    return next((count for count, size in enumerate(sizes) if count and size > limits.max_bytes), most)
