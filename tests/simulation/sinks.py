"""Sinks of simulated jobs: the files sink that ships, and a table of a simulated database.

The rows of a batch are the numbers of its events, so that a check knows which rows must be there.
"""

from __future__ import annotations

import copy
import dataclasses
import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from xxhash import xxh64_intdigest

from simulation.primitives import scheduler
from simulation.sometimes import sometimes
from tidewheel import Job
from tidewheel._connectors.files.places import place_at
from tidewheel._connectors.files.sink import Files
from tidewheel._connectors.files.target_folder import OutputFile, TargetFolder
from tidewheel._connectors.over_runs import over_stream_of
from tidewheel._connectors.sink import Publication, Sink, SinkPartition, Staging
from tidewheel._connectors.staging import read_token, stage, staged_files, unstage
from tidewheel._engine.plan import Plan
from tidewheel._operators.stateless.sink import SinkOperator
from tidewheel.errors import StorageError

if TYPE_CHECKING:
    from simulation.world import World

FILES, TABLE = "out", "rows"


class Database:
    """The rows of each job and sink by sequence, and the markers, which change with the rows in one transaction."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.rows: dict[str, dict[int, list[int]]] = {}
        self.markers: dict[str, int] = {}
        self.void: dict[str, list[tuple[int, int]]] = {}
        """What was taken back: a run that was overtaken may come with it once more."""
        self.over: dict[str, int] = {}
        self.on_insert: list[Callable[[str, int, list[int]], None]] = []

    def insert(self, stream: str, sequence: int, rows: list[int]) -> None:
        """Insert the rows of a commit, unless it or a later one is there."""
        over = over_stream_of(stream)
        if sequence <= self.markers.get(stream, 0) or (
            over is not None and self._run(stream) <= self.over.get(over, 0)
        ):
            sometimes("table had the rows already")
            return
        if any(after < sequence < before for after, before in self.void.get(stream, ())):
            sometimes("overtaken run came with output that was taken back")
            return
        for look in self.on_insert:
            look(stream, sequence, rows)
        self.rows.setdefault(stream, {})[sequence] = rows
        self.markers[stream] = sequence

    def retract(self, stream: str, after: int, before: int) -> int:
        """Delete the rows of void commits."""
        self.void.setdefault(stream, []).append((after, before))
        void = [sequence for sequence in self.rows.get(stream, {}) if after < sequence < before]
        for sequence in void:
            del self.rows[stream][sequence]
        if after < self.markers.get(stream, 0) < before:
            self.markers[stream] = after
        return len(void)

    def forget(self, job: str, runs: Sequence[int]) -> None:
        """Delete the markers of runs that are over."""
        over = over_stream_of(f"{job}/1")
        assert over is not None
        self.over[over] = max(self.over.get(over, 0), *runs)
        for run in runs:
            self.markers.pop(f"{job}/{run}", None)

    def call(self, name: str, effect: Callable[[], Any], changes: bool = False) -> Any:
        """Send a request to the database."""
        return self.world.network.call(f"database {name}", effect, StorageError, changes)

    @staticmethod
    def _run(stream: str) -> int:
        return int(stream.rpartition("/")[2])


def _database() -> Database:
    return scheduler().database  # type: ignore[attr-defined,no-any-return]


class Table(Sink):  # type: ignore[type-arg]
    """Rows and marker in one transaction, as the sinks of databases do it. What tasks stage is in the job's folder."""

    guarantee = "exactly once"
    retracts = True

    def open(self, staging: Staging) -> SinkPartition:
        raise NotImplementedError("simulated tasks stage rows themselves")

    def publish(self, publication: Publication) -> None:
        refs = staged_files(publication)
        if _database().call("marker", lambda: _database().markers.get(publication.job, 0)) >= publication.sequence:
            sometimes("publication found to be there already")
            return
        rows = [row for ref in refs for row in json.loads(unstage(publication.store, ref))]
        if rows:
            _database().call("insert", lambda: _database().insert(publication.job, publication.sequence, rows), True)

    def newest(self, job: str, sink: str) -> int | None:
        return int(_database().call("newest", lambda: _database().markers.get(job, 0)))

    def retract(self, job: str, sink: str, after: int, before: int) -> str | None:
        gone = _database().call("retract", lambda: _database().retract(job, after, before), True)
        return f"{gone} commits" if gone else None

    def forget(self, job: str, sink: str, runs: Sequence[int]) -> None:
        _database().call("forget", lambda: _database().forget(job, runs), True)


def with_one_plan(job: Job) -> Job:
    """Return a job that makes its plan once: all runs of all histories with its settings use that one."""
    plan = job.plan()
    job.plan = lambda: plan  # type: ignore[method-assign]
    return job


def with_own_sinks(plan: Plan) -> Plan:
    """Return a plan for one process: sinks remember what they publish, and histories share programs."""

    def own(node: Any) -> Any:
        if not isinstance(node.operator, SinkOperator):
            return node
        return dataclasses.replace(
            node, operator=dataclasses.replace(node.operator, sink=copy.copy(node.operator.sink))
        )

    return dataclasses.replace(plan, nodes=tuple(map(own, plan.nodes)))


def stage_table(staging: Staging, rows: list[int]) -> bytes:
    """Stage rows for the table; return the token."""
    return msgspec.msgpack.encode(stage(staging, "json", json.dumps(rows).encode(), len(rows)))


def stage_files(sink: Files, staging: Staging, rows: list[int], number: int = 0) -> OutputFile:
    """Stage rows for the files sink, as a task of it does; return what the token says."""
    folder = TargetFolder(place_at(sink.path), staging.job, staging.sink)
    data = json.dumps(rows).encode()
    staged = f"{staging.sequence:020}-{staging.attempt}-{number}.json"
    folder.place.store.write(f"{folder.staging}/{staged}", data)
    task = staging.attempt.split("-")[-2]
    final = folder.name(staging.sequence, task, number, "json")
    return OutputFile(staged, final, len(data), xxh64_intdigest(data), len(rows))


def files_of(token: bytes) -> list[OutputFile]:
    """Return what a token of the files sink says."""
    return read_token(token, list[OutputFile], FILES)
