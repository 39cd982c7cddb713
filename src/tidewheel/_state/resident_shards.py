"""ResidentShards: the shards of one table whose rows one task has in memory during a batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import pyarrow as pa

from tidewheel._state import resident_rows
from tidewheel._state.key_order import FixedKeys, fixed_keys
from tidewheel._state.missing_parts import Applied
from tidewheel._state.references import ShardParts
from tidewheel._state.resident_rows import Found, Place, ResidentRows, Rows
from tidewheel._state.shard_reader import ShardReader

_SPARSE = 2
"""A shard with more than this many times the keys of a batch is read key by key."""
_ENTRY_BYTES = 10
"""The bytes that a key takes in a local copy in addition to itself and its value."""


class ResidentShards:
    """Takes the rows of shards from memory, or loads them, and keeps them for the next batch."""

    def __init__(
        self,
        table: str,
        folder: str,
        parts: Mapping[int, ShardParts],
        reader: Callable[[int], ShardReader],
    ) -> None:
        """Use the folder of the local copies, the parts of the base manifest, and readers of committed state."""
        self._table, self._folder, self._parts, self._reader = table, folder, parts, reader
        self._taken: dict[int, tuple[Place, ResidentRows]] = {}
        self._sizes: dict[int, tuple[int, int]] = {}

    def rows(
        self, shard: int, keys: int, kind: bytes, as_rows: Callable[[list[bytes]], Rows | None]
    ) -> ResidentRows | None:
        """Return the rows of a shard, if they are in memory or worth loading for this many keys.

        `kind` is the first letter of the stored keys. `as_rows` converts all values of a shard, or returns None.
        """
        if shard in self._taken:
            return self._taken[shard][1]
        place = (self._folder, self._table, shard, kind)
        rows = resident_rows.take(place, self._parts.get(shard)) or self._loaded(shard, keys, kind, as_rows)
        if rows is not None:
            self._taken[shard], self._sizes[shard] = (place, rows), (len(rows), rows.value_bytes)
        return rows

    def _loaded(
        self, shard: int, keys: int, kind: bytes, as_rows: Callable[[list[bytes]], Rows | None]
    ) -> ResidentRows | None:
        reader = self._reader(shard)
        if reader.count(self._table) > _SPARSE * keys:
            return None
        items = list(reader.items(self._table))
        rows = as_rows([row for _, row in items])
        if rows is None or any(key[:1] != kind for key, _ in items):
            return None
        fixed = fixed_keys(pa.array([key for key, _ in items], pa.binary()))
        if fixed is None:
            return None
        newest = resident_rows.newest_parts(self._parts.get(shard))
        return ResidentRows(fixed, rows, Applied.of(newest[-1]) if newest else None)

    def put(self, shard: int, keys: FixedKeys, rows: Rows, file: str, present: Found | None = None) -> None:
        """Set the rows of the keys that were found last in a shard; do nothing if its rows are not in memory."""
        if shard in self._taken:
            self._taken[shard][1].put(keys, rows, file, present)

    @property
    def are_useful(self) -> bool:
        """Whether rows could be kept after the last batch, so that loading them is worthwhile."""
        return resident_rows.is_fit(self._folder, self._table)

    def keep(self) -> None:
        """Keep the rows for the next batch."""
        resident_rows.keep(dict(self._taken.values()))
        resident_rows.set_fit(self._folder, self._table, True)

    def drop(self) -> None:
        """Forget the rows, and load none in the next batch."""
        resident_rows.set_fit(self._folder, self._table, False)

    def shards(self) -> set[int]:
        """Return the shards whose rows are in memory."""
        return set(self._taken)

    def sizes(self) -> Iterator[tuple[int, str, int, int]]:
        """Yield shard, table, keys and estimated bytes of each shard in its local copy, as of the base."""
        for shard, (keys, used) in self._sizes.items():
            yield shard, self._table, keys, used + keys * _ENTRY_BYTES

    def release(self) -> None:
        """Release the rows that are not kept."""
        self._taken.clear()
