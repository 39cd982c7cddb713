"""Merge runs of a shard, using only state files and no local copy, and write files of bounded size."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import msgspec

from tidewheel._state.bounded_files import BoundedFiles, Store
from tidewheel._state.compaction import Merge, Merged
from tidewheel._state.key_run import KeyRun
from tidewheel._state.newest_items import newest_items
from tidewheel._state.references import FileRef, PartRef, Stretch
from tidewheel._state.state_file import Item, StateFile, StateFileWriter, Table

Fetch = Callable[[FileRef], StateFile]

_STRETCHES = 8
"""The maximum number of stretches of commits that a merged part lists. An older local copy is rebuilt."""


def merged_items(shard: int, merge: Merge, fetch: Fetch) -> Iterator[tuple[Table, Iterable[Item]]]:
    """Yield the merged items, table by table, ascending, with the newest value of each key.

    Deleted keys stay marked as deleted, because older runs may have them, unless all parts are merged.
    """
    files = [fetch(run.file) for run in merge.runs]
    for table in sorted({table for file in files for table in file.tables(shard)}):
        items = newest_items(files, shard, table)
        yield table, _present(items) if merge.whole else items


def _present(items: Iterable[Item]) -> Iterable[Item]:
    """Return the items without deleted keys."""
    if isinstance(items, KeyRun) and None not in items.values:
        return items
    return (item for item in items if item[1] is not None)


class MergedFiles:
    """Writes merged runs of many shards to files of bounded size."""

    def __init__(self, store: Store, file_bytes: int | None = None) -> None:
        """Use the function that stores a file durably."""
        self._store = store
        self._files = BoundedFiles(store, 0, file_bytes)
        self._shards: set[int] = set()

    def add(self, shard: int, items: Iterable[tuple[Table, Iterable[Item]]]) -> None:
        """Add all items of a shard, in one call per shard."""
        self._shards.add(shard)
        for table, run in items:
            self._files.add(shard, table, run)

    def finish(self) -> dict[int, list[PartRef]]:
        """Store everything durably; return unlabelled parts by shard. A shard without keys has an empty part."""
        parts = self._files.finish()
        empty = sorted(self._shards - parts.keys())
        if empty:
            ref = self._files.files[-1] if self._files.files else self._store(*StateFileWriter().finish())
            parts.update({shard: [PartRef(ref, 0, 0, 0)] for shard in empty})
        return parts


def labelled(merge: Merge, parts: Iterable[PartRef]) -> Merged:
    """Return the result of a merge, labelled with its commits."""
    oldest, newest = merge.runs[0], merge.runs[-1]
    first = 1 if merge.whole else oldest.first or oldest.sequence
    made = _commits(merge.runs)
    labels = {"sequence": newest.sequence, "first": first, "made": made}
    return Merged(merge.runs, tuple(msgspec.structs.replace(part, **labels) for part in parts), merge.whole)


def _commits(runs: Iterable[PartRef]) -> tuple[Stretch, ...]:
    """Return the newest `_STRETCHES` stretches of the parts' commits; commits of one run form one stretch."""
    found: list[Stretch] = []
    for stretch in (each for run in runs for each in run.commits):
        if found and found[-1].run == stretch.run:
            found[-1] = Stretch(found[-1].first, stretch.last, stretch.run)
        else:
            found.append(stretch)
    return tuple(found[-_STRETCHES:])
