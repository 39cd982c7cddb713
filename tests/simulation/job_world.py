"""Jobs that run alone: several processes start, take over, run, stop, restore, fork, name, collect and read them.

A job counts events of a log. What a commit stands for follows from its position in that log, whatever has happened. Tasks are
simulated: they read state from the store, write deltas and stage output, as those of Spark do. All the rest is what ships.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from simulation.job_checks import JobChecks
from simulation.scheduler import SECOND, Host
from simulation.sinks import FILES, TABLE, Database, Table, stage_files, stage_table
from simulation.sometimes import sometimes
from simulation.world import FAULTS_S, PATIENCE_S, World
from support.internals import ShardParts, to_stored
from tidewheel import Job, StoredJob, sinks
from tidewheel._checkpoint.garbage import collect
from tidewheel._checkpoint.state_files import opener
from tidewheel._connectors.sink import Staging
from tidewheel._core.keys import shard_of_stored
from tidewheel._engine.claim import ClaimTerms
from tidewheel._engine.commit import SourceProgress
from tidewheel._engine.delta_files import DeltaFiles
from tidewheel._engine.report import Staged
from tidewheel._engine.run import JobRun
from tidewheel._state.codec import msgpack_codec
from tidewheel._state.shard_contents import shard_get
from tidewheel.errors import (
    CorruptError,
    FencedError,
    HeldError,
    NotFound,
    StateError,
    StorageError,
    TidewheelError,
)

KEYS = ("ada", "bob", "cyd", "dan", "eve")
CELLS = "s3://sim/cells?poll_s=20"
_CODEC = msgpack_codec(int)
_jobs: dict[tuple[Any, ...], Job] = {}


class JobWorld(World):
    """One job and its forks."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        draw = self.random
        self.database = Database(self)
        self.checks = JobChecks(self)
        self.events = [draw.choice(KEYS) for _ in range(draw.randrange(10, 40))]
        self.first = {"main": 0}
        """The first event that each job publishes."""
        self.savepoints: dict[str, list[str]] = {"main": []}
        self.settings = {
            "n_shards": draw.choice([1, 2, 4]),
            "keep": draw.choice([1, 2, 4]),
            "collect_every": draw.choice([2, 3]),
            "grace": 0,
            "snapshot_every": draw.choice([None, 2, 3]),
        }
        self.names = iter(range(1, 10**6))

    def play(self) -> None:
        """Play the whole history."""
        try:
            for number in range(self.random.choice([1, 2, 2, 3])):
                self.start(f"runner-{number}", lambda: self._runner("main"), self.hosts[number])
            self.start("tools", self._tools)
            self.spawn(self.trouble, self.outside, "trouble")
            self.spawn(self._supervise, self.outside, "supervisor")
            self.run(limit=FAULTS_S * SECOND)
            self.heal()
            self._converge()
        finally:
            self.end()

    def _supervise(self) -> None:
        """Start runners and tools again that were killed."""
        while not self.stopping:
            self.pause(self.random.randrange(5 * SECOND, 30 * SECOND))
            jobs = list(self.first)
            for name, work in (("tools", self._tools), *((f"runner-{n}", self._runner) for n in range(2))):
                if not any(each.name == name and not each.dead and each.tasks for each in self.processes):
                    job = self.random.choice(jobs)
                    self.start(name, (lambda job=job: self._runner(job)) if work == self._runner else work)

    def _converge(self) -> None:
        """Let one fresh run of each job finish the events, collect, and compare."""
        # What was sent before may arrive, and what was paused may wake up.
        self.run(limit=self.now + 240 * SECOND)
        for each in self.processes:
            self.kill(each)
        begun = self.now
        for job in list(self.first):
            if self.checks.head(job) is None and job != "main":
                continue
            done: list[bool] = []
            host = Host("fresh", 0, 0)
            self.start(f"last-{job}", lambda job=job, done=done: self._finish(job, done), host)
            ended = self.run(lambda done=done: bool(done), self.now + PATIENCE_S * SECOND)
            self.check(ended, f"{job} has not come to its end {PATIENCE_S} s after the last fault")
            self.run(lambda done=done: len(done) > 1, self.now + 4 * 3600 * SECOND)
            self.check(len(done) > 1, f"{job} could not be collected")
            self.checks.finally_exact(job)
            self.checks.finally_tidy(job)
        sometimes("history ended within ten minutes", self.now - begun < 600 * SECOND)

    def _finish(self, job: str, done: list[bool]) -> None:
        while True:
            try:
                self._run(job, 10**6, ClaimTerms())
                head = self.checks.head(job)
                if head is not None and head.source_offsets.get("in") == len(self.events):
                    break
            except TidewheelError as error:
                self._failed(job, error)
            self.pause(SECOND)
        done.append(True)
        # Pins of readers expire within an hour.
        self.pause(2 * 3600 * SECOND)
        collect(StoredJob(job, state="s3://sim/state").checkpoints, grace=0, keep=1)
        collect(StoredJob(job, state="s3://sim/state").checkpoints, grace=0, keep=1)
        done.append(True)

    # Runs.

    def job(self, name: str) -> Job:
        """Return the program. Histories with the same settings share it: making it takes longer than a batch."""
        what = (name, *self.settings.values())
        if what not in _jobs:
            _jobs[what] = self._new_job(name)
        return _jobs[what]

    def _new_job(self, name: str) -> Job:
        job = Job(name, state="s3://sim/state", cells=CELLS, **self.settings)  # type: ignore[arg-type]
        totals = (
            job.source("in", lambda spark: None, value=dict)
            .key_by("by", "k", value="n")
            .stateful_map("sum", lambda key, n, total: (total + n, total + n), default=0)
        )
        totals.sink(FILES, sinks.files("s3://sim/out", format="json"))
        totals.sink(TABLE, Table())
        return job

    def _runner(self, job: str) -> None:
        """Run a job again and again, as a service manager does."""
        while not self.stopping:
            try:
                self._run(job, self.random.randrange(1, 12), ClaimTerms(take_over=self.random.random() < 0.25))
            except TidewheelError as error:
                self._failed(job, error)
            self.pause(self.random.randrange(SECOND, 20 * SECOND))

    def _run(self, name: str, batches: int, terms: ClaimTerms) -> None:
        """Start a run, let it make some commits, and end it."""
        job = self.job(name)
        run = JobRun(job, job.plan(), terms)
        failed = True
        try:
            run.begin()
            run.start_sinks()
            sometimes("run published what an earlier one had left", bool(run.head.outputs))
            sometimes("run took back void output", run.head.retract is not None)
            run.publish_left(None)
            for _ in range(batches):
                if not self._batch(run):
                    break
            failed = False
        finally:
            run.release(failed=failed)

    def _batch(self, run: JobRun) -> bool:
        """Run a batch; return False at the end of the log."""
        try:
            start = run.head.source_offsets.get("in", 0)
            assert isinstance(start, int)
            end = min(start + self.random.randrange(1, 5), len(self.events))
            if end == start:
                return False
            self._commit(run, start, end)
        except StorageError as error:
            if isinstance(error, CorruptError | NotFound) or self.random.random() < 0.3:
                raise
            before = run.head.sequence
            run.recall()
            sometimes("commit found to be made after its answer was lost", run.head.sequence > before)
            self.note(f"batch failed ({error}); it goes on after {run.head.sequence}")
        return True

    def _commit(self, run: JobRun, start: int, end: int) -> None:
        head, store = run.head, run.store
        spec = run.spec(1, "")
        totals: dict[tuple[int, bytes], int] = {}
        fetch = opener(store, run.stream)
        for number in range(start, end):
            key = to_stored(self.events[number])
            shard = shard_of_stored(key, run.job.n_shards)
            if (shard, key) not in totals:
                found = shard_get(head.shards.get(shard, ShardParts()), shard, "sum", key, fetch)
                totals[shard, key] = 0 if found is None else _CODEC.decode(found)
            totals[shard, key] += number + 1
        rows = list(range(start, end))
        # Attempts of tasks have numbers of their own: one that failed has left files.
        attempt = f"{run.token}-0-{next(self.names)}"
        files = DeltaFiles(store, head, f"{run.token}.{next(self.names)}")
        for shard in sorted({shard for shard, _ in totals}):
            items = sorted((key, _CODEC.encode(total)) for (at, key), total in totals.items() if at == shard)
            files.add(shard, "sum", iter(items))
        reports = files.reports()
        staging = Staging(run.folder, run.stream, FILES, spec.sequence, attempt)
        sink: Any = next(node.operator.sink for node in run.plan.nodes if node.name == FILES)  # type: ignore[attr-defined]
        placed = [stage_files(sink, staging, rows[:1], 0)] + (
            [stage_files(sink, staging, rows[1:], 1)] if rows[1:] else []
        )
        token = stage_table(Staging(run.folder, run.stream, TABLE, spec.sequence, attempt), rows)
        outputs = {FILES: Staged(len(rows), msgspec.msgpack.encode(placed)), TABLE: Staged(len(rows), token)}
        reports = [msgspec.structs.replace(reports[0], outputs=outputs, counts={"in": len(rows)})]
        batch = 0 if head.batch is None else head.batch + 1
        kinds = {"in": "simulated"}
        run.commit(spec, reports, "batch", None, SourceProgress(batch, {"in": end}, kinds, head.seen, head.driver))

    def _failed(self, job: str, error: TidewheelError) -> None:
        self.note(f"{type(error).__name__}: {error}")
        sometimes(f"run ended with {type(error).__name__}", isinstance(error, FencedError | HeldError))
        self.check(not isinstance(error, CorruptError), f"a run of {job} found damage: {error}")

    # Tools.

    def _tools(self) -> None:
        """Use the commands for stored jobs, one after the other."""
        acts: list[Callable[[str], None]] = [
            self._savepoint,
            self._restore,
            self._collect,
            self._fork,
            self._drop,
            self._read,
        ]
        while not self.stopping:
            self.pause(self.random.randrange(SECOND, 30 * SECOND))
            job, act = self.random.choice(list(self.first)), self.random.choice(acts)
            try:
                act(job)
            except (NotFound, FencedError, HeldError, StorageError, StateError, TidewheelError) as error:
                self.note(f"{act.__name__} of {job}: {type(error).__name__}: {error}")
                self.check(not isinstance(error, CorruptError), f"{act.__name__} of {job} found damage: {error}")

    def _stored(self, job: str) -> StoredJob:
        return StoredJob(job, state="s3://sim/state")

    def _savepoint(self, job: str) -> None:
        name = f"point-{next(self.names)}"
        self.note(f"savepoint {name} of {job}")
        self._stored(job).savepoint(name)
        self.savepoints[job].append(name)
        sometimes("savepoint made")

    def _drop(self, job: str) -> None:
        if self.savepoints[job]:
            self._stored(job).drop_savepoint(self.savepoints[job].pop(0))

    def _restore(self, job: str) -> None:
        stored = self._stored(job)
        at = self.random.choice([*stored.checkpoints.sequences(), *self.savepoints[job]] or [1])
        self.note(f"restore {job} to {at}")
        stored.restore(at, take_over=self.random.random() < 0.5, cells=CELLS)
        sometimes("restored")

    def _collect(self, job: str) -> None:
        self.note(f"collect {job}")
        found = collect(self._stored(job).checkpoints, grace=0, keep=self.random.randrange(1, 4))
        sometimes("collection deleted files", bool(found.files))

    def _fork(self, job: str) -> None:
        if self.savepoints[job] and len(self.first) < 3:
            new, point = f"fork-{next(self.names)}", self.random.choice(self.savepoints[job])
            self.note(f"fork {job} at {point} as {new}")
            # It may be made though the command fails.
            self.first[new], self.savepoints[new] = 0, []
            self._stored(job).fork(point, new)
            sometimes("forked")

    def _read(self, job: str) -> None:
        self.note(f"read {job}")
        at = None
        dict(self._stored(job).scan("sum", at=at))
        sometimes("state read while the job runs")
