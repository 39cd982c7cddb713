"""RowTable: one table's state as rows of one width, read and written for all keys of a batch at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidewheel._state import resident_rows
from tidewheel._state.key_batch import KeyBatch
from tidewheel._state.key_order import FixedKeys, fixed_keys
from tidewheel._state.key_run import KeyRun
from tidewheel._state.missing_parts import Applied
from tidewheel._state.packed_run import PackedRun
from tidewheel._state.references import PartRef, ShardParts
from tidewheel._state.resident_rows import Place, ResidentRows, Rows
from tidewheel._state.shard_reader import ShardReader
from tidewheel.errors import StateError

if TYPE_CHECKING:
    from tidewheel._state.raw_table import RawTable

_SPARSE = 2
"""A shard with more than this many times the keys of a batch is read key by key."""
_ENTRY_BYTES = 10
"""The bytes that a key takes in a local copy in addition to itself and its value."""


class RowTable:
    """The rows of one table for one task and batch: read once, and written at most once.

    Rows of shards of which a batch touches most keys stay in memory for the next batch; their local copies are then updated by
    the first batch that needs them.
    """

    def __init__(
        self,
        table: str,
        n_shards: int,
        folder: str,
        parts: Mapping[int, ShardParts],
        reader: Callable[[int], ShardReader],
    ) -> None:
        """Create a table; called by `TaskState.rows`."""
        self.table, self.n_shards = table, n_shards
        self._folder, self._parts, self._reader = folder, parts, reader
        self._keys: KeyBatch | None = None
        self._fixed: FixedKeys | None = None
        self._old: Rows = np.empty(0, "V1")
        self._new: Rows | None = None
        self._found: npt.NDArray[np.bool_] = np.empty(0, bool)
        self._resident: dict[int, tuple[Place, ResidentRows]] = {}
        self._counts: dict[int, int] = {}
        self._changes: PackedRun | KeyRun | None = None
        self._ends: npt.NDArray[np.int64] = np.empty(0, np.int64)

    def read(self, keys: KeyBatch, nothing: bytes) -> Rows:
        """Return the row of each key, which is `nothing` if it has none."""
        assert self._keys is None, "the table is read once in a batch"
        self._keys, stored = keys, keys.stored_column()
        self._fixed = fixed_keys(stored)
        kind = stored[0].as_py()[:1] if len(stored) else b""
        self._old, self._found = np.empty(len(keys), f"V{len(nothing)}"), np.zeros(len(keys), bool)
        for shard, part in keys.shards.items():
            rows = self._rows_in_memory(shard, part.stop - part.start, kind)
            if rows is not None and self._fixed is not None:
                self._old[part], self._found[part] = rows.find(self._fixed[part])
                continue
            values = self._reader(shard).get_many(self.table, keys.stored[part])
            self._found[part] = [value is not None for value in values]
            self._old[part] = self._joined([value or nothing for value in values])
        self._old[~self._found] = np.void(nothing)
        return self._old

    def write(self, rows: Rows) -> None:
        """Set the rows of the keys that were read."""
        assert self._keys is not None, "the table is read before it is written"
        assert self._new is None, "the table is written once in a batch"
        self._new = rows
        width = rows.dtype.itemsize
        before, after = (array.view(np.uint8).reshape(len(array), width) for array in (self._old, rows))
        changed = ~self._found | (before != after).any(axis=1)
        run = PackedRun.of(self._keys.stored_column(), rows)
        if run is not None:
            self._changes = run if changed.all() else run.where(changed)
        else:
            pairs = zip(self._keys.stored, rows.tolist(), changed.tolist(), strict=True)
            self._changes = KeyRun.of([(key, row) for key, row, is_changed in pairs if is_changed])
        self._ends = np.concatenate([[0], np.cumsum(changed)])

    def touched(self) -> set[int]:
        """Return the shards with changes."""
        return set() if self._keys is None or self._new is None else set(self._keys.shards)

    def changes(self, shard: int) -> Sequence[tuple[bytes, bytes | None]]:
        """Return the sorted stored keys of a shard whose row has changed."""
        part = None if self._keys is None else self._keys.shards.get(shard)
        if part is None or self._changes is None:
            return ()
        return self._changes[int(self._ends[part.start]) : int(self._ends[part.stop])]

    def grown(self, shard: int) -> int:
        """Return by how many the shard's keys have grown in this batch."""
        part = None if self._keys is None else self._keys.shards.get(shard)
        return 0 if part is None or self._new is None else int(np.count_nonzero(~self._found[part]))

    def sizes(self) -> Iterator[tuple[int, str, int, int]]:
        """Yield shard, table, keys and estimated bytes of the shards whose rows were in memory, as of the base."""
        for shard, keys in self._counts.items():
            width = 0 if self._fixed is None else self._fixed.dtype.itemsize
            yield shard, self.table, keys, keys * (width + self._old.dtype.itemsize + _ENTRY_BYTES)

    def in_memory(self) -> set[int]:
        """Return the shards whose rows were in memory."""
        return set(self._counts)

    def written(self, parts: Mapping[int, Sequence[PartRef]]) -> None:
        """Keep the rows in memory for the next batch: the batch's changes are in these parts of its delta."""
        assert self._keys is not None or not self._resident, "rows are in memory after they were read"
        for shard, (_, rows) in self._resident.items():
            if self._keys is not None and self._new is not None and self._fixed is not None and shard in parts:
                part = self._keys.shards[shard]
                rows.put(self._fixed[part], self._new[part], self._found[part], parts[shard][-1].file.name)
        resident_rows.keep(dict(self._resident.values()))

    def close(self) -> None:
        """Do nothing: no resources are open."""

    def _rows_in_memory(self, shard: int, keys: int, kind: bytes) -> ResidentRows | None:
        """Return the rows of a shard, if they are in memory or worth loading for this many keys."""
        if self._fixed is None:
            return None
        place = (self._folder, self.table, shard, kind)
        rows = resident_rows.take(place, self._parts.get(shard)) or self._loaded(shard, keys, kind)
        if rows is not None:
            self._resident[shard], self._counts[shard] = (place, rows), len(rows)
        return rows

    def _loaded(self, shard: int, keys: int, kind: bytes) -> ResidentRows | None:
        reader = self._reader(shard)
        if reader.count(self.table) > _SPARSE * keys:
            return None
        items = list(reader.items(self.table))
        width = self._old.dtype.itemsize
        if any(key[:1] != kind or len(row) != width for key, row in items):
            return None
        fixed = fixed_keys(pa.array([key for key, _ in items], pa.binary()))
        if fixed is None:
            return None
        newest = resident_rows.newest_parts(self._parts.get(shard))
        rows = self._joined([row for _, row in items])
        return ResidentRows(fixed, rows.copy(), Applied.of(newest[-1]) if newest else None)

    def _joined(self, rows: list[bytes]) -> Rows:
        data = b"".join(rows)
        if len(data) != len(rows) * self._old.dtype.itemsize:
            raise StateError(
                f"step {self.table!r}: its stored state has other aggregates than the program; give the changed step a "
                "new name"
            )
        return np.frombuffer(data, self._old.dtype)


class RepeatedRows:
    """As a `RowTable`, for a batch that reads and writes the table several times: slower, and nothing stays in memory."""

    def __init__(self, table: RawTable) -> None:
        """Use a table of stored keys and bytes."""
        self.n_shards, self._table = table.n_shards, table
        self._keys: KeyBatch | None = None

    def read(self, keys: KeyBatch, nothing: bytes) -> Rows:
        """Return the row of each key, which is `nothing` if it has none."""
        self._keys = keys
        rows = [row for shard, part in keys.shards.items() for row in self._table.get_many(shard, keys.stored[part])]
        return np.frombuffer(b"".join(row or nothing for row in rows), f"V{len(nothing)}")

    def write(self, rows: Rows) -> None:
        """Set the rows of the keys that were read last."""
        assert self._keys is not None, "the table is read before it is written"
        for shard, part in self._keys.shards.items():
            self._table.put(shard, self._keys.stored[part], rows[part].tolist())
