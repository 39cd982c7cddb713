"""A job that is not running: restore an earlier checkpoint; list, remove and add the state of keys.

`interrogate` lists the keys that are there; `collect` takes a key's state out of every step; `acquire` puts it in.
Nothing counts before `commit`, which is a commit as any other: one record in the job's chain.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from itertools import groupby
from types import TracebackType
from typing import Any, Self

import msgspec

from tidewheel._cells import open_cells
from tidewheel._checkpoint.manifest import Manifest
from tidewheel._checkpoint.state_files import opener
from tidewheel._checkpoint.store import StreamCheckpoints
from tidewheel._checkpoint.tools.restore import restore
from tidewheel._checkpoint.tools.savepoint import At
from tidewheel._checkpoint.tools.state_reader import StateReader
from tidewheel._core.keys import from_stored, shard_of_stored, to_stored
from tidewheel._engine.claim import ClaimTerms
from tidewheel._engine.delta_files import DeltaFiles
from tidewheel._engine.job_lease import JobLease
from tidewheel._engine.job_run import JobRun
from tidewheel._engine.program_job import ProgramJob
from tidewheel._state.auxiliary_tables import is_auxiliary, owner, reassigned
from tidewheel._state.references import ShardParts
from tidewheel._state.segments import SUFFIX as SEGMENTS
from tidewheel._state.shard_contents import shard_get, shard_items, shard_tables
from tidewheel._state.timers import THERE, is_timers
from tidewheel._storage import Store
from tidewheel.errors import StateError

Collected = dict[str, bytes]
"""One key's encoded state by step; its timers by `step/timers`, and segments of its state by `step/segments`."""


def states(store: Store, manifest: Manifest) -> dict[str, dict[Any, bytes]]:
    """Return every step's encoded state by key, as of a commit."""
    fetch, reader = opener(store, manifest.id.stream_id), StateReader(store, manifest)
    values: dict[str, dict[Any, bytes]] = {}
    for shard, parts in sorted(manifest.shards.items()):
        for table in sorted(shard_tables(parts, shard, fetch)):
            if not is_auxiliary(table):
                for key, value in reader.shard(table, shard):
                    values.setdefault(table, {})[from_stored(key)] = value
    return values


def restore_stopped(
    checkpoints: StreamCheckpoints, cells_url: str, at: At, keep_output: bool, take_over: bool
) -> Manifest:
    """Restore unless a run holds the job; with `take_over` that run finds itself fenced at its next commit."""
    with (
        open_cells(cells_url) as connection,
        JobLease(connection, secrets.token_hex(6)).held(checkpoints.stream_id, take_over),
    ):
        return restore(checkpoints, at, keep_output=keep_output)


class StoppedJob:
    """A claimed job that is not running. The state of its keys can be listed, removed and added.

    with StoppedJob(job) as stopped:
        state = stopped.collect("ada")
        stopped.acquire("bob", state)
        stopped.commit()
    """

    def __init__(self, job: ProgramJob, take_over: bool = False) -> None:
        """Claim the job; a `HeldError` if it runs."""
        self._run = JobRun(job, job.plan(), ClaimTerms(take_over))
        try:
            self._run.begin()
        except BaseException:
            self._run.release()
            raise
        self._fetch = opener(self._run.store, job.name)
        self._changes: dict[tuple[int, str, bytes], bytes | None] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._run.release()

    def interrogate(self, shards: Iterable[int] | None = None) -> set[Any]:
        """Return the keys that have state in any step, of some shards or of all; dropped keys are not among them."""
        manifest = self._run.head
        chosen = manifest.shards if shards is None else {s: manifest.shards[s] for s in shards if s in manifest.shards}
        held = {
            (shard, table, key)
            for shard, parts in chosen.items()
            for table, key, _ in shard_items(parts, shard, self._fetch)
        }
        mine = {change: value for change, value in self._changes.items() if shards is None or change[0] in chosen}
        held |= {change for change, value in mine.items() if value is not None}
        held -= {change for change, value in mine.items() if value is None}
        return {from_stored(key) for _, table, key in held if not is_auxiliary(table)}

    def collect(self, key: Any) -> Collected:
        """Take a key's state out of every step and return it; empty if there is none."""
        stored, shard = self._placed(key)
        parts = self._run.head.shards.get(shard, ShardParts())
        states: Collected = {}
        for table in sorted(shard_tables(parts, shard, self._fetch)):
            if is_auxiliary(table):
                self._collect_entries(shard, table, stored, states)
                continue
            at = (shard, table, stored)
            value = self._changes[at] if at in self._changes else shard_get(parts, shard, table, stored, self._fetch)
            if value is not None:
                states[table] = value
                self._changes[at] = None
        return states

    def _collect_entries(self, shard: int, table: str, stored: bytes, taken: Collected) -> None:
        """Take the key's entries out of a table in which they have keys of their own."""
        parts = self._run.head.shards.get(shard, ShardParts())
        there: dict[bytes, bytes | None] = {
            key: value for _, key, value in shard_items(parts, shard, self._fetch, table)
        }
        there |= {key: value for (s, t, key), value in self._changes.items() if (s, t) == (shard, table)}
        mine = sorted((entry, value) for entry, value in there.items() if value and owner(table, entry) == stored)
        if mine:
            taken[table] = msgspec.msgpack.encode([entry for entry, _ in mine] if is_timers(table) else mine)
            self._changes.update({(shard, table, entry): None for entry, _ in mine})

    def acquire(self, key: Any, state: Collected) -> None:
        """Replace a key's state; the next message of that key sees the new one."""
        stored, shard = self._placed(key)
        known = {node.name for node in self._run.plan.nodes if node.operator.stateful}
        there = shard_tables(self._run.head.shards.get(shard, ShardParts()), shard, self._fetch)
        for table in state:
            if table.partition("/")[0] not in known:
                raise StateError(
                    f"there is no step {table!r} with state to acquire; there are {', '.join(sorted(known))}"
                )
            segments = f"{table}/{SEGMENTS}"
            if segments in there:
                # No state would refer to the old segments any more.
                self._collect_entries(shard, segments, stored, {})
        for table, value in state.items():
            if is_auxiliary(table):
                for entry, content in _entries(table, value):
                    self._changes[shard, table, reassigned(table, entry, stored)] = content
            else:
                self._changes[shard, table, stored] = value

    def commit(self) -> None:
        """Commit all collected and acquired state at once."""
        if not self._changes:
            return
        run = self._run
        spec = run.spec(run.head.parallelism, "")
        files = DeltaFiles(run.store, run.head, run.token)
        for (shard, table), items in groupby(sorted(self._changes.items()), key=lambda change: change[0][:2]):
            files.add(shard, table, ((key, value) for (_, _, key), value in items))
        run.commit(spec, files.reports(), "handover", None)
        self._changes.clear()

    def _placed(self, key: Any) -> tuple[bytes, int]:
        stored = to_stored(key)
        return stored, shard_of_stored(stored, self._run.job.n_shards)


def _entries(table: str, collected: bytes) -> list[tuple[bytes, bytes]]:
    if is_timers(table):
        return [(entry, THERE) for entry in msgspec.msgpack.decode(collected, type=list[bytes])]
    return msgspec.msgpack.decode(collected, type=list[tuple[bytes, bytes]])
