"""What changed between two checkpoints: which keys of which operator."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from tidewheel._checkpoint.manifest import Manifest
from tidewheel._checkpoint.state_files import opener
from tidewheel._state.references import ShardParts
from tidewheel._state.shard_contents import shard_items
from tidewheel._storage import Store


class Change(msgspec.Struct, frozen=True):
    """One key's encoded state in both checkpoints; None where it has none."""

    key: bytes
    """As it is stored; see `keys.from_stored`."""
    before: bytes | None
    after: bytes | None


class TableDiff(msgspec.Struct, frozen=True):
    """What changed in one operator's state, with the first few changes in the order of shards and keys."""

    table: str
    added: int
    changed: int
    dropped: int
    samples: tuple[Change, ...]


def diff(store: Store, before: Manifest, after: Manifest, samples: int = 5) -> list[TableDiff]:
    """Compare the state of two checkpoints, of one job or of a job and its fork; tables without changes are left out.

    Shards that both hold in the same files are not read.
    """
    fetch_before = opener(store, before.id.stream_id)
    fetch_after = opener(store, after.id.stream_id)
    changes: dict[str, list[Change]] = {}
    counts: dict[str, list[int]] = {}
    for shard in sorted(before.shards.keys() | after.shards.keys()):
        old, new = before.shards.get(shard, ShardParts()), after.shards.get(shard, ShardParts())
        if old == new:
            continue
        was = {(table, key): value for table, key, value in shard_items(old, shard, fetch_before)}
        now = {(table, key): value for table, key, value in shard_items(new, shard, fetch_after)}
        for table, key in sorted(_unequal(was, now)):
            change = Change(key, was.get((table, key)), now.get((table, key)))
            count = counts.setdefault(table, [0, 0, 0])
            count[0 if change.before is None else 2 if change.after is None else 1] += 1
            shown = changes.setdefault(table, [])
            if len(shown) < samples:
                shown.append(change)
    return [
        TableDiff(table, added, changed, dropped, tuple(changes[table]))
        for table, (added, changed, dropped) in sorted(counts.items())
    ]


def _unequal(was: dict[tuple[str, bytes], bytes], now: dict[tuple[str, bytes], bytes]) -> Iterable[tuple[str, bytes]]:
    return (place for place in was.keys() | now.keys() if was.get(place) != now.get(place))
