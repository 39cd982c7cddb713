"""Which files a batch takes: a pure function of what is there, what was taken before, and the limits."""

from __future__ import annotations

from collections.abc import Callable, Iterable
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


def in_order(files: Iterable[ListedFile], order: Order) -> list[ListedFile]:
    """Return files in the order of a source: by time and then path, or by path alone."""
    return sorted(files, key=lambda file: (file.modified_ms, file.path) if order == "time" else (0, file.path))


def chosen(
    listed: Iterable[ListedFile],
    is_taken: Callable[[str], bool],
    limits: Limits,
    now_ms: int,
    not_before_ms: int | None = None,
) -> list[ListedFile]:
    """Return the files of the next batch, in their order. Pure.

    `is_taken` says which paths earlier batches have. Files from before `not_before_ms` are not taken: what of them was taken may
    be forgotten.

    >>> files = [ListedFile("b", 1, 10), ListedFile("a", 2, 10), ListedFile("c", 1, 10)]
    >>> [file.path for file in chosen(files, {"c"}.__contains__, Limits(max_files=1), now_ms=9)]
    ['b']
    """
    fresh = in_order(
        (
            file
            for file in listed
            if (not limits.settle_ms or file.modified_ms <= now_ms - limits.settle_ms)
            and (not_before_ms is None or file.modified_ms >= not_before_ms)
            and not is_taken(file.path)
        ),
        limits.order,
    )
    if limits.newest_first:
        fresh.reverse()
    count, size = 0, 0
    for file in fresh:
        size += file.size
        if count and limits.max_bytes is not None and size > limits.max_bytes:
            break
        if limits.max_files is not None and count == limits.max_files:
            break
        count += 1
    return in_order(fresh[:count], limits.order)
