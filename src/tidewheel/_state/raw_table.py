"""The state of one step as stored keys and encoded bytes, for one task and batch."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tidewheel._state.key_run import KeyRun
from tidewheel._state.state_file import MISSING, Items

if TYPE_CHECKING:
    from tidewheel._state.task_state import TaskState


class RawTable:
    """One table's state, for steps that merge whole arrays at once."""

    def __init__(self, task: TaskState, table: str) -> None:
        """Create a table; called by `TaskState.raw`."""
        self.n_shards = task.n_shards
        self._task, self._table = task, table
        self._read: dict[int, list[KeyRun]] = {}
        """The entries that were read from each shard, run by run."""
        self._changed: dict[int, list[KeyRun]] = {}
        """The entries that were written to each shard, run by run; later runs take precedence."""

    def get_many(self, shard: int, stored: list[bytes]) -> list[bytes | None]:
        """Return the state of each stored key; the keys must be sorted."""
        states = self._task.reader(shard).get_many(self._table, stored)
        self._read.setdefault(shard, []).append(KeyRun(stored, states))
        changed = _merged(self._changed.get(shard, ()))
        return states if not changed else [changed.get(key, raw) for key, raw in zip(stored, states, strict=True)]

    def put(self, shard: int, stored: list[bytes], states: list[bytes | None]) -> None:
        """Set the states of stored keys, which must be sorted."""
        self._changed.setdefault(shard, []).append(KeyRun(stored, states))

    def touched(self) -> set[int]:
        """Return the shards with changes."""
        return set(self._changed)

    def changes(self, shard: int) -> Items:
        """Return the sorted stored keys of the shard whose state has changed."""
        changed, read = self._changed.get(shard, []), self._read.get(shard, [])
        if len(changed) == len(read) == 1 and changed[0].keys == read[0].keys:
            return KeyRun.changed(changed[0].keys, changed[0].values, read[0].values)
        before = _merged(read)
        return [item for item in sorted(_merged(changed).items()) if item[1] != before.get(item[0], MISSING)]

    def grown(self, shard: int) -> int:
        """Return by how many the shard's keys with state have grown in this batch."""
        runs, read_runs = self._changed.get(shard, []), self._read.get(shard, [])
        if len(runs) == len(read_runs) == 1 and runs[0].keys == read_runs[0].keys:
            return read_runs[0].values.count(None) - runs[0].values.count(None)
        read, changed = _merged(read_runs), _merged(runs)
        after = sum(state is not None for state in changed.values())
        before = sum(read.get(stored) is not None for stored in changed)
        return after - before - self._task.there(shard, self._table, sorted(changed.keys() - read.keys()))

    def close(self) -> None:
        """Do nothing: no resources are open."""


def _merged(runs: Iterable[KeyRun]) -> dict[bytes, bytes | None]:
    """Return the last value of each key."""
    return {key: value for run in runs for key, value in run}
