"""RowTable: one table's state as rows of one width, read and written for all keys of a batch at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tidewheel._state.key_batch import KeyBatch
from tidewheel._state.key_order import FixedKeys, fixed_keys
from tidewheel._state.key_run import KeyRun
from tidewheel._state.packed_run import PackedRun
from tidewheel._state.references import PartRef
from tidewheel._state.resident_rows import Rows
from tidewheel._state.resident_shards import ResidentShards
from tidewheel._state.shard_reader import ShardReader
from tidewheel.errors import StateError

if TYPE_CHECKING:
    from tidewheel._state.raw_table import RawTable


class RowTable:
    """The rows of one table for one task and batch: read once, and written at most once.

    Rows of shards of which a batch touches most keys stay in memory for the next batch; their local copies are then updated by
    the first batch that needs them.
    """

    def __init__(
        self,
        table: str,
        n_shards: int,
        resident: ResidentShards,
        reader: Callable[[int], ShardReader],
    ) -> None:
        """Create a table; called by `TaskState.rows`."""
        self.table, self.n_shards = table, n_shards
        self._reader = reader
        self._keys: KeyBatch | None = None
        self._fixed: FixedKeys | None = None
        self._old: Rows = np.empty(0, "V1")
        self._new: Rows | None = None
        self._found: npt.NDArray[np.bool_] = np.empty(0, bool)
        self.resident = resident
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
            if self._fixed is not None:
                rows = self.resident.rows(shard, part.stop - part.start, kind, self._as_rows)
                if rows is not None:
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

    def written(self, parts: Mapping[int, Sequence[PartRef]]) -> None:
        """Keep the rows in memory for the next batch: the batch's changes are in these parts of its delta."""
        if self._keys is not None and self._new is not None and self._fixed is not None:
            for shard in self.resident.shards() & parts.keys():
                part = self._keys.shards[shard]
                self.resident.put(shard, self._fixed[part], self._new[part], parts[shard][-1].file.name)
        self.resident.keep()

    def close(self) -> None:
        """Release the rows that are not kept: the task's objects refer to each other, and are freed later."""
        self._keys = self._fixed = self._new = self._changes = None
        self._old = np.empty(0, "V1")
        self.resident.release()

    def _as_rows(self, rows: list[bytes]) -> Rows | None:
        width = self._old.dtype.itemsize
        return None if any(len(row) != width for row in rows) else self._joined(rows).copy()

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
