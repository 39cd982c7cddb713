"""What waits in a job's sources, over all of them."""

from __future__ import annotations

from typing import NamedTuple

from tidewheel._observe.records import CommitRecord, LagRecord

_REMEMBERED = 100_000


class Backlog(NamedTuple):
    """What waited in the sources when somebody looked. None: no source can tell."""

    rows: int | None = None
    files: int | None = None
    """Of sources that are files, whose rows nobody has counted."""
    seconds: float | None = None
    """For how long the oldest of it had waited."""


_NOT_TOLD = Backlog()


def backlog(record: CommitRecord | LagRecord) -> Backlog:
    """Return what waited, over all sources and their partitions."""
    if not record.behind:
        return _NOT_TOLD
    rows, files, seconds = 0, None, 0.0
    counts_rows = False
    # A plain loop: a chart looks at every partition of every commit.
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
    """Remembers what waited at each commit: charts ask for all of them, again and again. For use by several threads."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[CommitRecord, Backlog]] = {}

    def __call__(self, record: CommitRecord) -> Backlog:
        """Return what waited when the commit was made."""
        known = self._known.get(id(record))
        # A record that is held here keeps its id; of one that is not, another may have had it.
        if known is not None and known[0] is record:
            return known[1]
        if len(self._known) >= _REMEMBERED:
            self._known = {}
        waited = backlog(record)
        self._known[id(record)] = (record, waited)
        return waited
