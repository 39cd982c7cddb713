"""Rows or encoded states that a process keeps in memory from one batch to the next, shard by shard.

A batch that touches most keys of a shard would otherwise apply its changes to the local copy key by key and read them again
in the next batch. The rows of a shard are kept with the commit that they are of. A batch uses them only if that commit is the
newest of the shard in the batch's base manifest, so rows of a batch that failed, or that ran elsewhere, are never used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tidewheel._state.key_order import FixedKeys, alike
from tidewheel._state.missing_parts import Applied
from tidewheel._state.references import PartRef, ShardParts

MOST_BYTES = 64 << 20
"""The approximate maximum size of the rows that a process keeps: aggregates of about two million keys."""
_OBJECT_BYTES = 48
"""The memory that a value needs in addition to its bytes, as an object of Python in an array."""
_SAMPLES = 32

Rows = npt.NDArray[Any]
"""Rows of one width, or values of any size as Python's bytes."""
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
        self._places: npt.NDArray[np.int64] = np.empty(0, np.int64)
        self._found: Found = np.empty(0, bool)

    def __len__(self) -> int:
        return len(self._keys)

    def is_as_of(self, parts: ShardParts | None) -> bool:
        """Return whether these are the rows of a shard that has these parts."""
        newest = newest_parts(parts)
        if self._file is not None and any(part.file.name == self._file for part in newest):
            self._file, self._commit = None, Applied.of(newest[-1])
        return self._file is None and self._commit == (Applied.of(newest[-1]) if newest else None)

    @property
    def value_bytes(self) -> int:
        """The bytes of keys and values; the length of values is estimated from a sample."""
        values = int(self._rows.nbytes)
        if self._rows.dtype == object and len(self._rows):
            sample = self._rows[:: len(self._rows) // _SAMPLES + 1]
            values = len(self._rows) * sum(map(len, sample)) // len(sample)
        return int(self._keys.nbytes) + values

    @property
    def nbytes(self) -> int:
        """About how much memory the rows take."""
        return self.value_bytes + (_OBJECT_BYTES * len(self._rows) if self._rows.dtype == object else 0)

    def find(self, keys: FixedKeys) -> tuple[Rows, Found]:
        """Return the row of each key, and whether it has one; the keys must ascend. A value that is missing is None."""
        mine, keys = alike(self._keys, keys)
        self._places = np.searchsorted(mine, keys)
        if not len(mine):
            self._found = np.zeros(len(keys), bool)
            return np.empty(len(keys), self._rows.dtype), self._found
        nearest = np.minimum(self._places, len(mine) - 1)
        self._found = mine[nearest] == keys
        rows = self._rows[nearest]
        if rows.dtype == object and not self._found.all():
            rows[~self._found] = None
        return rows, self._found

    def put(self, keys: FixedKeys, rows: Rows, file: str, present: Found | None = None) -> None:
        """Set the rows of the keys of the last `find`; `file` is the delta file that has the rows.

        `present` says which of the keys have a row; None means all. The others are deleted.
        """
        self._keys, keys = alike(self._keys, keys)
        places, found = self._places, self._found
        if found.all():
            self._rows[places] = rows
        else:
            self._rows[places[found]] = rows[found]
        fresh = ~found if present is None else ~found & present
        gone = np.empty(0, np.int64) if present is None else places[found & ~present]
        if len(gone) or fresh.any():
            # A place counts the rows before the change.
            left = np.ones(len(self._keys), bool)
            left[gone] = False
            places = places[fresh] if not len(gone) else np.concatenate([[0], np.cumsum(left)])[places[fresh]]
            self._keys = np.insert(self._keys[left] if len(gone) else self._keys, places, keys[fresh])
            self._rows = np.insert(self._rows[left] if len(gone) else self._rows, places, rows[fresh])
        self._file = file


def object_array(values: Sequence[bytes | None]) -> Rows:
    """Return values of any size as rows."""
    rows = np.empty(len(values), object)
    rows[:] = values
    return rows


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
    size = sum(rows.nbytes for rows in _kept.values())
    for place, rows in shards.items():
        size += rows.nbytes
        if size <= MOST_BYTES:
            _kept[place] = rows


_unfit: set[tuple[str, str]] = set()
"""The tables by folder whose last batch accessed single keys: their rows would not be kept."""


def set_fit(folder: str, table: str, fit: bool) -> None:
    """Remember whether the rows of a table can be kept from one batch to the next."""
    (_unfit.discard if fit else _unfit.add)((folder, table))


def is_fit(folder: str, table: str) -> bool:
    """Return whether the rows of a table could be kept after its last batch."""
    return (folder, table) not in _unfit
