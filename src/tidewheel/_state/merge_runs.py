"""Runs of a shard merged into one: read from state files alone, without a local copy, and written in files of bounded size."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import msgspec

from tidewheel._state.bounded_files import BoundedFiles, Store
from tidewheel._state.compaction import Merge, Merged
from tidewheel._state.newest_items import newest_items
from tidewheel._state.references import FileRef, PartRef, Stretch
from tidewheel._state.state_file import Item, StateFile, StateFileWriter, Table

Fetch = Callable[[FileRef], StateFile]

_STRETCHES = 8
"""How many runs a merged part lists as the makers of its commits. A local copy older than these is built again."""


def merged_items(shard: int, merge: Merge, fetch: Fetch) -> Iterator[tuple[Table, Iterator[Item]]]:
    """Yield what a merge comes to, table by table, ascending; of a key that comes twice, the newest value.

    Dropped keys stay dropped: older runs may have them. Only when all parts are merged is there nothing to be dropped from.
    """
    files = [fetch(run.file) for run in merge.runs]
    for table in sorted({table for file in files for table in file.tables(shard)}):
        items = newest_items(files, shard, table)
        yield table, (item for item in items if item[1] is not None) if merge.whole else items


class MergedFiles:
    """Writes merged runs of many shards into files of bounded size."""

    def __init__(self, store: Store, file_bytes: int | None = None) -> None:
        """Take the function that makes a file durable."""
        self._store = store
        self._files = BoundedFiles(store, 0, file_bytes)
        self._shards: set[int] = set()

    def add(self, shard: int, items: Iterable[tuple[Table, Iterable[Item]]]) -> None:
        """Take all of a shard; each shard once."""
        self._shards.add(shard)
        for table, run in items:
            self._files.add(shard, table, run)

    def finish(self) -> dict[int, list[PartRef]]:
        """Make all of it durable; return the parts by shard, not labelled yet. A shard without any key has an empty part."""
        parts = self._files.finish()
        empty = sorted(self._shards - parts.keys())
        if empty:
            ref = self._files.files[-1] if self._files.files else self._store(*StateFileWriter().finish())
            parts.update({shard: [PartRef(ref, 0, 0, 0)] for shard in empty})
        return parts


def labelled(merge: Merge, parts: Iterable[PartRef]) -> Merged:
    """Return what came of a merge, with the commits that it is of."""
    oldest, newest = merge.runs[0], merge.runs[-1]
    first = 1 if merge.whole else oldest.first or oldest.sequence
    made = _commits(merge.runs)
    labels = {"sequence": newest.sequence, "first": first, "made": made}
    return Merged(merge.runs, tuple(msgspec.structs.replace(part, **labels) for part in parts), merge.whole)


def _commits(runs: Iterable[PartRef]) -> tuple[Stretch, ...]:
    """Return the commits of several parts, with those of one run as one stretch; the newest `_STRETCHES` of them."""
    found: list[Stretch] = []
    for stretch in (each for run in runs for each in run.commits):
        if found and found[-1].run == stretch.run:
            found[-1] = Stretch(found[-1].first, stretch.last, stretch.run)
        else:
            found.append(stretch)
    return tuple(found[-_STRETCHES:])
