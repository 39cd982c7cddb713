"""Read a shard's state from its files alone, without a local copy and without Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tidewheel._state.newest_items import newest_items
from tidewheel._state.references import FileRef, ShardParts
from tidewheel._state.state_file import Absent, StateFile

Fetch = Callable[[FileRef], StateFile]


def shard_items(
    parts: ShardParts, shard: int, fetch: Fetch, table: str | None = None
) -> Iterator[tuple[str, bytes, bytes]]:
    """Yield (table, stored key, encoded state) of one shard, in that order, as of the commit of the parts.

    Memory use does not depend on the size of the shard.
    """
    for name in sorted(shard_tables(parts, shard, fetch)) if table is None else (table,):
        for key, value in newest_items(_files(parts, fetch), shard, name):
            if value is not None:
                yield name, key, value


def shard_tables(parts: ShardParts, shard: int, fetch: Fetch) -> set[str]:
    """Return the tables in the parts of a shard."""
    return {table for file in _files(parts, fetch) for table in file.tables(shard)}


def shard_get(parts: ShardParts, shard: int, table: str, key: bytes, fetch: Fetch) -> bytes | None:
    """Return one key's encoded state, or None; reads the newest part first, and at most one block of each."""
    for part in (*reversed(parts.deltas), parts.snapshot):
        if part is None:
            continue
        state = fetch(part.file).get(shard, table, key)
        if state is Absent.DROPPED:
            return None
        if state is not Absent.MISSING:
            return state
    return None


def _files(parts: ShardParts, fetch: Fetch) -> list[StateFile]:
    """Open the files of a shard, oldest first."""
    return [fetch(part.file) for part in (parts.snapshot, *parts.deltas) if part is not None]
