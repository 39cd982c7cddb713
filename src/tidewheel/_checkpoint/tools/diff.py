"""The differences between two checkpoints, by step and key."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from heapq import merge
from itertools import groupby
from operator import itemgetter

import msgspec

from tidewheel._checkpoint.manifest import Manifest
from tidewheel._checkpoint.state_files import opener
from tidewheel._checkpoint.tools.fork import shared_parts
from tidewheel._state.references import ShardParts
from tidewheel._state.shard_contents import shard_items, shard_tables
from tidewheel._storage import Store


class Change(msgspec.Struct, frozen=True):
    """One key's encoded state in both checkpoints; None where it has none."""

    key: bytes
    """The stored key; see `keys.from_stored`."""
    before: bytes | None
    after: bytes | None


class TableDiff(msgspec.Struct, frozen=True):
    """The changes of one step's state, with the first few in the order of shards and keys."""

    table: str
    added: int
    changed: int
    dropped: int
    samples: tuple[Change, ...]


def diff(
    store: Store, before: Manifest, after: Manifest, samples: int = 5, former: Mapping[str, str] | None = None
) -> list[TableDiff]:
    """Compare the state of two checkpoints, of one job or of a job and its fork; return only tables with changes.

    Shards that have the same files in both are not read. `former` has, for renamed steps of `after`, their names in `before`.
    """
    present = {old: new for new, old in (former or {}).items()}
    fetch_before = opener(store, before.id.stream_id)
    fetch_after = opener(store, after.id.stream_id)
    changes: dict[str, list[Change]] = {}
    counts: dict[str, list[int]] = {}
    for shard in sorted(before.shards.keys() | after.shards.keys()):
        old, new = before.shards.get(shard, ShardParts()), after.shards.get(shard, ShardParts())
        if old == new or shared_parts(before.id.stream_id, old) == shared_parts(after.id.stream_id, new):
            continue
        was = {_renamed(table, present): table for table in shard_tables(old, shard, fetch_before)}
        for table in sorted(was.keys() | shard_tables(new, shard, fetch_after)):
            old_items = shard_items(old, shard, fetch_before, was[table]) if table in was else ()
            for key, before_value, after_value in _unequal(old_items, shard_items(new, shard, fetch_after, table)):
                change = Change(key, before_value, after_value)
                count = counts.setdefault(table, [0, 0, 0])
                count[0 if change.before is None else 2 if change.after is None else 1] += 1
                shown = changes.setdefault(table, [])
                if len(shown) < samples:
                    shown.append(change)
    return [
        TableDiff(table, added, changed, dropped, tuple(changes[table]))
        for table, (added, changed, dropped) in sorted(counts.items())
    ]


def _renamed(table: str, present: Mapping[str, str]) -> str:
    """Return the current name of a table: the current name of its step, and its suffix."""
    step, slash, rest = table.partition("/")
    return f"{present.get(step, step)}{slash}{rest}"


def _unequal(
    was: Iterable[tuple[str, bytes, bytes]], now: Iterable[tuple[str, bytes, bytes]]
) -> Iterator[tuple[bytes, bytes | None, bytes | None]]:
    """Yield the differences of the entries of one table, sorted by key: the key, and the value in each."""
    sides = merge(((key, 0, value) for _, key, value in was), ((key, 1, value) for _, key, value in now))
    for key, found in groupby(sides, key=itemgetter(0)):
        values = {side: value for _, side, value in found}
        if values.get(0) != values.get(1):
            yield key, values.get(0), values.get(1)
