"""Random histories of a job, compared with a model: state and sink are exact after every clean run.

A history runs, kills, restores, makes savepoints, forks, collects, backs up the state URL and restores the backup, and changes
the machine, whose local copies are as old as its last run. Everything is real (LMDB, files, the commit chain) except Spark.
The seed of a history is its number. `TIDEWHEEL_HISTORIES=FIRST:LAST` chooses the histories of the long test.
"""

from __future__ import annotations

import contextlib
import copy
import json
import os
import random
import re
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from support.internals import faults
from tidewheel import Job, StoredJob, sinks
from tidewheel._core.faults import InjectedFault
from tidewheel._state.local_copies import LocalCopies
from tidewheel.errors import NotFound, StateError, StorageError, TidewheelError
from tidewheel.testing import MemoryRun

IN_THE_SUITE = 300
LONG = os.environ.get("TIDEWHEEL_HISTORIES", "1000:6000")

KEYS = ("ada", "bob", "cyd", "dan", "eve")
MACHINES = ("one", "two", "three")
POINTS = (
    "start.claimed",
    "task.delta-written",
    "task.output-prepared",
    "copy.filled",
    "merge.written",
    "commit.before",
    "commit.created",
    "publish.before-sink",
    "files.placed",
    "files.marked",
    "publish.done",
)


@dataclass(frozen=True)
class Content:
    """What a checkpoint stands for: the totals by key, and the records that the sink has."""

    totals: dict[str, int] = field(default_factory=dict)
    output: frozenset[int] = frozenset()

    def after(self, records: list[dict[str, Any]]) -> Content:
        totals = dict(self.totals)
        for record in records:
            totals[record["k"]] = totals.get(record["k"], 0) + record["n"]
        return Content(totals, self.output | {record["n"] for record in records})


@dataclass
class JobModel:
    """What is known of one job's checkpoints and savepoints; it is copied and put back with the state URL."""

    content: Content = Content()
    checkpoints: dict[int, Content] = field(default_factory=dict)
    savepoints: dict[str, Content] = field(default_factory=dict)


class World:
    """A state URL, a sink for each job, machines with local copies, and the model of all of it."""

    def __init__(self, root: Path, seed: int) -> None:
        self.root, self.random = root, random.Random(seed)
        self.jobs = {"main": JobModel()}
        self.backup: dict[str, JobModel] | None = None
        self.was_put_back = False
        self.seen: set[int] = set()
        """The records that were in a sink at any time."""
        self.gone: set[int] = set()
        """Those that were taken back. A backup does not bring them back: it has the state, and not the output."""
        self.numbers = iter(range(1, 10**9))
        self.forks = iter(range(1, 10**9))
        self.log: list[str] = []
        self.has_files = seed % 3 > 0
        """Whether the sink can be ahead of a backup. If not, local copies are never given up because of a restore."""
        self.snapshot_every = self.random.choice([None, None, 2, 4])
        self.n_shards = self.random.choice([1, 1, 2])

    def job(self, name: str) -> Job:
        job = Job(
            name,
            state=str(self.root / "state"),
            n_shards=self.n_shards,
            keep=4,
            collect_every=3,
            grace=0,
            snapshot_every=self.snapshot_every,
        )
        stream = job.source("in", lambda spark: None, type=dict).key_by("by", "k", value="n")
        totals = stream.stateful_map("sum", lambda key, n, total: ({"n": n}, total + n), default=0)
        files = sinks.files(self.root / "out" / name, format="json")
        totals.sink("out", files if self.has_files else sinks.discard())
        return job

    def stored(self, name: str) -> StoredJob:
        return StoredJob(name, state=str(self.root / "state"))

    def any_job(self) -> str:
        return self.random.choice([*self.jobs])

    # What may happen. Each step that changes a job ends with `look`.

    def run(self) -> None:
        self.attempt(self.any_job(), self.random.choice([0, 1, 1, 2, 3, 9]))

    def kill(self) -> None:
        self.attempt(self.any_job(), self.random.randint(1, 3), self.random.choice(POINTS))

    def restore(self) -> None:
        name = self.any_job()
        model = self.jobs[name]
        if model.checkpoints:
            kept = [at for at in self.stored(name).checkpoints.sequences() if at in model.checkpoints]
            self.restore_to(name, self.random.choice([*kept, *model.savepoints]))

    def restore_twice(self) -> None:
        name = self.any_job()
        if self.jobs[name].checkpoints:
            self.restore()
            self.restore_to(name, self.stored(name).show().sequence)

    def savepoint(self) -> None:
        name = self.any_job()
        model = self.jobs[name]
        if model.checkpoints:
            point = f"point-{next(self.numbers)}"
            made = self.stored(name).savepoint(point)
            self.log.append(f"savepoint {point} of {name} at {made.sequence}")
            model.savepoints[point] = model.checkpoints[made.sequence]

    def fork(self) -> None:
        name = self.any_job()
        points = [*self.jobs[name].savepoints]
        if points and len(self.jobs) < 3:
            point, new = self.random.choice(points), f"fork-{next(self.forks)}"
            self.log.append(f"fork {name} at {point} as {new}")
            first = self.stored(name).fork(point, new).show()
            content = Content(self.jobs[name].savepoints[point].totals)
            self.jobs[new] = JobModel(content, {first.sequence: content})

    def collect(self) -> None:
        name = self.any_job()
        if self.jobs[name].checkpoints:
            self.log.append(f"collect {name}")
            self.stored(name).gc(keep=self.random.randint(1, 3), grace=0)

    def back_up(self) -> None:
        if (self.root / "state").exists():
            self.log.append("back up the state URL")
            shutil.rmtree(self.root / "backup", ignore_errors=True)
            shutil.copytree(self.root / "state", self.root / "backup")
            self.backup = copy.deepcopy(self.jobs)

    def put_back(self) -> None:
        if self.backup is not None:
            self.log.append("put the state URL back")
            shutil.rmtree(self.root / "state")
            shutil.copytree(self.root / "backup", self.root / "state")
            self.jobs = copy.deepcopy(self.backup)
            self.was_put_back = True

    # How it happens, and what is true then.

    def attempt(self, name: str, batches: int, point: str | None = None) -> None:
        """Run some batches on some machine, perhaps up to a fault. A fault is a kill: the run does not record its end."""
        machine, model = self.random.choice(MACHINES), self.jobs[name]
        self.log.append(f"run {name} on {machine}: {batches} batches{f', a fault at {point}' if point else ''}")
        records: list[dict[str, Any]] = []
        running = None
        faults.arm("" if point is None else f"{point}=raise@{self.random.randint(1, 2)}")
        killed = False
        try:
            running = self.start(name)
            running._local = str(self.root / machine)
            for _ in range(batches):
                records = [
                    {"k": self.random.choice(KEYS), "n": next(self.numbers)} for _ in range(self.random.randint(1, 3))
                ]
                running.batch({"in": records})
                model.content = model.checkpoints[running.run.head.sequence] = model.content.after(records)
        except TidewheelError as error:
            if point is None or not (isinstance(error, InjectedFault) or point in str(error)):
                raise
            killed = True
            self.log.append("killed")
        finally:
            faults.arm("")
            if running is not None:
                running.run._published &= not killed
                running.close()
            for copies in [each for folder, each in LocalCopies._open.items() if folder.startswith(str(self.root))]:
                copies.close()
        self.look(name, records)
        if not killed:
            self.check(name)

    def start(self, name: str) -> MemoryRun:
        dropped: list[str] = []
        while True:
            try:
                return MemoryRun(self.job(name), drop_unpublished=dropped)
            except StateError as error:
                advised = re.search(rf"tidewheel checkpoints restore {name} (\d+) --state", str(error))
                if not self.was_put_back or advised is None:
                    raise
                self.log.append(f"the sink of {name} is ahead")
                self.look(name)
                self.restore_to(name, int(advised[1]))
            except StorageError as error:
                # The backup owes output that was in the sink, and that a later restore has made void.
                output = self.jobs[name].content.output
                lost = (output - self.seen) | (output & self.gone)
                if not self.was_put_back or "output is lost" not in str(error) or not lost:
                    raise
                self.log.append(f"the output {sorted(lost)} of {name} is lost")
                self.gone |= lost
                dropped = ["out"]
                self.look(name)

    def restore_to(self, name: str, at: int | str) -> None:
        model = self.jobs[name]
        content = model.savepoints[at] if isinstance(at, str) else model.checkpoints[at]
        self.log.append(f"restore {name} to {at}")
        try:
            done = self.stored(name).restore(at)
        except StateError as error:
            if "was abandoned by the restore" not in str(error):
                raise
            self.log.append("refused")
            return
        self.log.append(f"as {done.sequence}")
        model.savepoints[f"before-restore-{done.sequence}"] = model.content
        model.content = model.checkpoints[done.sequence] = content
        assert self.totals(name) == content.totals, f"the state of {name}"

    def look(self, name: str, records: list[dict[str, Any]] | None = None) -> None:
        """Learn which commits there are, among them that of a batch which was killed after it; and what the sink has."""
        model = self.jobs[name]
        there = set(self.output(name))
        with contextlib.suppress(NotFound):
            for manifest in self.stored(name).list():
                at, parent = manifest.sequence, manifest.parent
                if at not in model.checkpoints:
                    content = Content() if parent is None else model.checkpoints.get(parent, model.content)
                    model.checkpoints[at] = content.after(records or []) if manifest.kind == "batch" else content
                model.content = model.checkpoints[at]
        # A sink takes back what is not in the history. Whatever else it lost, `check` finds.
        self.gone |= (self.seen & self.records_of(name)) - there - model.content.output
        self.seen |= there

    def records_of(self, name: str) -> set[int]:
        model = self.jobs[name]
        contents = (model.content, *model.checkpoints.values(), *model.savepoints.values())
        backup = (self.backup or {}).get(name)
        if backup is not None:
            contents = (*contents, backup.content, *backup.checkpoints.values(), *backup.savepoints.values())
        return {number for content in contents for number in content.output}

    def output(self, name: str) -> list[int]:
        files = (self.root / "out" / name).glob("*.json")
        return [json.loads(line)["n"] for file in files for line in file.read_text().splitlines()]

    def totals(self, name: str) -> dict[str, int]:
        stored = self.stored(name)
        return dict(stored.scan("sum")) if "sum" in stored.show().operators else {}

    def check(self, name: str) -> None:
        content = self.jobs[name].content
        if self.has_files:
            assert sorted(self.output(name)) == sorted(content.output - self.gone), f"the sink of {name}"
        assert self.totals(name) == content.totals, f"the state of {name}"


def play(root: Path, seed: int) -> None:
    """Play one history; on a failure, show what happened in it."""
    world = World(root, seed)
    steps = (
        [world.run] * 5 + [world.kill] * 4 + [world.restore] * 3 + [world.savepoint, world.back_up, world.put_back] * 2
    )
    steps += [world.restore_twice, world.fork, world.collect]
    try:
        world.run()
        for _ in range(world.random.randint(3, 10)):
            world.random.choice(steps)()
        for name in [*world.jobs]:
            world.attempt(name, 1)
    except BaseException as error:
        lines = "\n  ".join(world.log)
        raise AssertionError(f"history {seed}: {error!r}, after\n  {lines}") from error
    finally:
        shutil.rmtree(root, ignore_errors=True)


@pytest.fixture
def root(tmp_path, monkeypatch):
    """Return a folder whose files are quick: in memory, if the machine has a place for that, and never synced.

    These tests kill processes, not machines: what was written is there, synced or not.
    """
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    monkeypatch.setattr(os, "fdatasync", lambda descriptor: None, raising=False)
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else tmp_path) as folder:
        yield Path(folder)


@pytest.mark.parametrize("first", range(0, IN_THE_SUITE, 50))
def test_state_and_sink_are_exact_after_any_history(root, first):
    for seed in range(first, first + 50):
        play(root / str(seed), seed)


@pytest.mark.slow
def test_state_and_sink_are_exact_after_thousands_of_histories(root):
    first, last = map(int, LONG.split(":"))
    for seed in range(first, last):
        play(root / str(seed), seed)
