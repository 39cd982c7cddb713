"""Rows of fixed width that a process keeps in memory from one batch to the next, shard by shard.

A batch that touches most keys of a shard would otherwise apply its changes to the local copy key by key and read them again
in the next batch. The rows of a shard are kept with the commit that they are of. A batch uses them only if that commit is the
newest of the shard in the batch's base manifest, so rows of a batch that failed, or that ran elsewhere, are never used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from tidewheel._state.key_order import FixedKeys, alike
from tidewheel._state.missing_parts import Applied
from tidewheel._state.references import PartRef, ShardParts

MOST_KEYS = 1_000_000
"""The maximum number of keys whose rows a process keeps: about 50 MB."""

Rows = npt.NDArray[np.void]
Found = npt.NDArray[np.bool_]
Place = tuple[str, str, int, bytes]
"""The folder of the job's local copies, a table, a shard, and the first letter of the stored keys."""


class ResidentRows:
    """The rows of all keys of one shard and table, ascending by key."""

    def __init__(self, keys: FixedKeys, rows: Rows, commit: Applied | None) -> None:
        """Use rows that were read as of a commit; None if the shard had no state."""
        self._keys, self._rows = keys, rows
        self._commit = commit
        self._file: str | None = None
        """The delta file that has the latest rows; whether it was committed is not known yet."""

    def __len__(self) -> int:
        return len(self._keys)

    def is_as_of(self, parts: ShardParts | None) -> bool:
        """Return whether these are the rows of a shard that has these parts."""
        newest = newest_parts(parts)
        if self._file is not None and any(part.file.name == self._file for part in newest):
            self._file, self._commit = None, Applied.of(newest[-1])
        return self._file is None and self._commit == (Applied.of(newest[-1]) if newest else None)

    def find(self, keys: FixedKeys) -> tuple[Rows, Found]:
        """Return the row of each key, and whether it has one; the keys must ascend."""
        mine, keys = alike(self._keys, keys)
        if not len(mine):
            return np.empty(len(keys), self._rows.dtype), np.zeros(len(keys), bool)
        places = np.minimum(np.searchsorted(mine, keys), len(mine) - 1)
        return self._rows[places], mine[places] == keys

    def put(self, keys: FixedKeys, rows: Rows, found: Found, file: str) -> None:
        """Set the rows of ascending keys. `found` is the result of `find` for them, `file` the delta file that has the rows."""
        self._keys, keys = alike(self._keys, keys)
        places = np.searchsorted(self._keys, keys)
        self._rows[places[found]] = rows[found]
        fresh = ~found
        if fresh.any():
            self._keys = np.insert(self._keys, places[fresh], keys[fresh])
            self._rows = np.insert(self._rows, places[fresh], rows[fresh])
        self._file = file


def newest_parts(parts: ShardParts | None) -> Sequence[PartRef]:
    """Return the parts of a shard's newest commit; nothing if it has no state."""
    if parts is None or (parts.snapshot is None and not parts.deltas):
        return ()
    if not parts.deltas:
        assert parts.snapshot is not None
        return (parts.snapshot,)
    return [part for part in parts.deltas if part.sequence == parts.deltas[-1].sequence]


_kept: dict[Place, ResidentRows] = {}


def take(place: Place, parts: ShardParts | None) -> ResidentRows | None:
    """Return the rows of a shard and forget them; None if there are none of the shard's newest commit."""
    rows = _kept.pop(place, None)
    return rows if rows is not None and rows.is_as_of(parts) else None


def keep(shards: Mapping[Place, ResidentRows]) -> None:
    """Keep the rows of shards for the next batch, as many as fit."""
    keys = sum(map(len, _kept.values()))
    for place, rows in shards.items():
        keys += len(rows)
        if keys <= MOST_KEYS:
            _kept[place] = rows
