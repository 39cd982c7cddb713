"""State as data: what a shard's parts hold, read from the files alone, without a local copy and without Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tidewheel._state.references import FileRef, ShardParts
from tidewheel._state.state_file import Absent, StateFile

Fetch = Callable[[FileRef], StateFile]


def shard_items(
    parts: ShardParts, shard: int, fetch: Fetch, table: str | None = None
) -> Iterator[tuple[str, bytes, bytes]]:
    """Yield (table, stored key, encoded state) of one shard, in that order, as of the commit that the parts are of."""
    held: dict[tuple[str, bytes], bytes] = {}
    for part in (parts.snapshot, *parts.deltas):
        if part is None:
            continue
        for name, key, value in fetch(part.file).items(shard, table):
            if value is None:
                held.pop((name, key), None)
            else:
                held[name, key] = value
    for (name, key), value in sorted(held.items()):
        yield name, key, value


def shard_table(parts: ShardParts, shard: int, fetch: Fetch, table: str) -> dict[bytes, bytes]:
    """Return one table of a shard, encoded state by stored key: in no order, and in a third of the time of `shard_items`."""
    held: dict[bytes, bytes] = {}
    for part in (parts.snapshot, *parts.deltas):
        if part is None:
            continue
        for block in fetch(part.file).blocks(shard, table):
            held.update(zip(block.keys, block.values, strict=True))
            for key in block.dropped:
                held.pop(key, None)
    return held


def shard_tables(parts: ShardParts, shard: int, fetch: Fetch) -> set[str]:
    """Return the tables that the parts of a shard name."""
    known = (part for part in (parts.snapshot, *parts.deltas) if part is not None)
    return {table for part in known for table in fetch(part.file).tables(shard)}


def shard_get(parts: ShardParts, shard: int, table: str, key: bytes, fetch: Fetch) -> bytes | None:
    """Return one key's encoded state, or None; newest part first, one block of each at most."""
    for part in (*reversed(parts.deltas), parts.snapshot):
        if part is None:
            continue
        state = fetch(part.file).get(shard, table, key)
        if state is Absent.DROPPED:
            return None
        if state is not Absent.MISSING:
            return state
    return None
