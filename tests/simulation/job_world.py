"""Jobs that run alone: several processes start, take over, run, stop, restore, fork, name, collect and read them.

A job counts events of a log. What a commit stands for follows from its position in that log, whatever has happened. Tasks are
simulated: they read state from the store, write deltas and stage output, as those of Spark do. All the rest is what ships.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from simulation.job_checks import JobChecks
from simulation.scheduler import SECOND, Host
from simulation.sinks import FILES, TABLE, Database, Table, with_one_plan, with_own_sinks
from simulation.sometimes import sometimes
from simulation.tasks import STEP, commit_batch
from simulation.world import FAULTS_S, PATIENCE_S, World
from tidewheel import Job, StoredJob, sinks
from tidewheel._checkpoint.garbage import collect
from tidewheel._engine.claim import ClaimTerms
from tidewheel._engine.job_run import JobRun
from tidewheel._engine.standby_run import StandbyRun
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
_jobs: dict[tuple[Any, ...], Job] = {}


class JobWorld(World):
    """One job and its forks."""

    def __init__(self, seed: int, only: Collection[int] | None = None) -> None:
        super().__init__(seed, only)
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
            with self.apart():
                _jobs[what] = with_one_plan(self._new_job(name))
        return _jobs[what]

    def _new_job(self, name: str) -> Job:
        job = Job(name, state="s3://sim/state", cells=CELLS, **self.settings)  # type: ignore[arg-type]
        totals = (
            job.source("in", lambda spark: None, type=dict)
            .key_by("by", "k", value="n")
            .stateful_map(STEP, lambda key, n, total: (total + n, total + n), default=0)
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
        run = self._new_run(self.job(name), terms)
        failed = True
        try:
            run.begin()
            run.start_sinks()
            sometimes("standby took the job over", isinstance(run, StandbyRun))
            sometimes("run published what an earlier one had left", bool(run.head.outputs))
            sometimes("run took back void output", run.head.retract is not None)
            run.publish_left(None)
            for _ in range(batches):
                if run.stop_ordered() or not self._batch(run):
                    break
            failed = False
        finally:
            run.release(failed=failed)

    def _new_run(self, job: Job, terms: ClaimTerms) -> JobRun:
        """Return a run that has not begun; some wait for another run to die."""
        if self.stopping or self.random.random() < 0.75:
            return JobRun(job, with_own_sinks(job.plan()), terms)
        run = StandbyRun(job, with_own_sinks(job.plan()), terms)

        def stand_by() -> None:
            if self.stopping or run.stop_ordered():
                raise HeldError("the standby is not needed any more")

        run.stand_by = stand_by
        run.warm = lambda: sometimes("standby warmed its copies")
        return run

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
        events = ((self.events[number], number + 1, number) for number in range(start, end))
        commit_batch(run, events, lambda key, total, number: number, self.names.__next__, end)

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
        dict(self._stored(job).scan(STEP, at=at))
        sometimes("state read while the job runs")
