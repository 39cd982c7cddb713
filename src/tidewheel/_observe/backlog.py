"""The backlog of a job, over all its sources."""

from __future__ import annotations

from typing import NamedTuple

from tidewheel._observe.records import CommitRecord, LagRecord

_REMEMBERED = 100_000


class Backlog(NamedTuple):
    """The backlog of the sources at one moment. None: no source can report it."""

    rows: int | None = None
    files: int | None = None
    """The number of files of file sources, whose rows are not counted."""
    seconds: float | None = None
    """The waiting time of the oldest waiting data."""


_NOT_TOLD = Backlog()


def backlog(record: CommitRecord | LagRecord) -> Backlog:
    """Return the backlog over all sources and their partitions."""
    if not record.behind:
        return _NOT_TOLD
    rows, files, seconds = 0, None, 0.0
    counts_rows = False
    # A plain loop, because a chart reads every partition of every commit.
    for partitions in record.behind.values():
        for each in partitions.values():
            if each.files is None:
                rows += each.rows
                counts_rows = True
            else:
                files = each.files + (files or 0)
            if each.seconds > seconds:
                seconds = each.seconds
    return Backlog(rows if counts_rows else None, files, seconds)


class Backlogs:
    """A cache of the backlog at each commit, because charts read all of them repeatedly. Thread-safe."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[CommitRecord, Backlog]] = {}

    def __call__(self, record: CommitRecord) -> Backlog:
        """Return the backlog at the time of the commit."""
        known = self._known.get(id(record))
        # Compare the record too: the id of a record that is no longer held may be reused.
        if known is not None and known[0] is record:
            return known[1]
        if len(self._known) >= _REMEMBERED:
            self._known = {}
        waited = backlog(record)
        self._known[id(record)] = (record, waited)
        return waited
