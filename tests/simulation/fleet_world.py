"""Fleets: nodes join, take shards from each other, run, drain, die and come back, while producers route events to their inbox.

A node is what ships, with membership, hand-over, chains and tidying; only its tasks and the server of the inbox are simulated.
The output of an event is its key, the number of the event among those of its key, its producer, and its number there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import msgspec
import pyarrow as pa

from simulation.fleet_checks import FleetChecks
from simulation.inbox import URL, InboxServer, open_inbox
from simulation.job_world import CELLS
from simulation.primitives import Event
from simulation.scheduler import SECOND, Host
from simulation.sinks import FILES, TABLE, Database, Table, with_one_plan, with_own_sinks
from simulation.sometimes import sometimes
from simulation.tasks import STEP, commit_batch
from simulation.world import FAULTS_S, PATIENCE_S, World
from tidewheel import Job, sinks, sources
from tidewheel._cells import open_cells
from tidewheel._core.keys import from_stored
from tidewheel._engine.plan_sinks import sinks_of
from tidewheel._operators.stateless.source import SourceOperator
from tidewheel._storage import open_store
from tidewheel.errors import CorruptError, StorageError, TidewheelError
from tidewheel.fleet import Assignment, Coordinator, Router
from tidewheel.fleet._inbox import decode_events
from tidewheel.fleet._inbox.offsets import positions_of
from tidewheel.fleet._inbox.stream import InboxReader, InboxSettings
from tidewheel.fleet._nodes.chains import Chains
from tidewheel.fleet._nodes.membership import drains
from tidewheel.fleet._nodes.node import Node, NodeOptions
from tidewheel.fleet._nodes.over import delete_late_files, remove_ended_runs
from tidewheel.fleet._nodes.sweep import sweep

JOB = "orders"
KEYS = tuple(f"key-{n}" for n in range(6))
NAMES = ("ann", "ben", "cal")
LEASE_S = 12.0
_jobs: dict[tuple[Any, ...], Job] = {}


class FleetWorld(World):
    """One fleet, its producers, and those who administer it."""

    def __init__(self, seed: int, only: Collection[int] | None = None) -> None:
        super().__init__(seed, only)
        draw = self.random
        self.settings = {
            "n_shards": draw.choice([2, 4]),
            "keep": draw.choice([1, 2]),
            "collect_every": draw.choice([2, 3]),
            "grace": 0,
            "snapshot_every": draw.choice([None, 2]),
        }
        self.inbox = InboxServer(self, self.settings["n_shards"])  # type: ignore[arg-type]
        self.database = Database(self)
        self.checks = FleetChecks(self, JOB)
        self.nodes = NAMES[: draw.choice([1, 2, 2, 3])]
        self.retention = draw.choice([None, 15.0])
        self.plans = {
            producer: [draw.choice(KEYS) for _ in range(draw.randrange(5, 25))] for producer in ("again", "own", "once")
        }
        """The keys of the events of each producer."""
        self.stored: dict[str, set[int]] = {producer: set() for producer in self.plans}
        """The events that an inbox has acknowledged."""
        self.routed: dict[str, set[int]] = {producer: set() for producer in self.plans}
        """The events that a router has taken."""
        self.finished: set[str] = set()
        self.over = False
        """Whether nothing is started again."""
        self.numbers = iter(range(1, 10**6))

    def play(self) -> None:
        """Play the whole history."""
        try:
            for number, name in enumerate(self.nodes):
                self.start(name, partial(self._node, name), self.hosts[number])
            for producer in self.plans:
                self.start(producer, partial(self._producer, producer), after=self.random.randrange(20 * SECOND))
            self.start("admin", self._admin)
            self.spawn(self.trouble, self.outside, "trouble")
            self.spawn(self._supervise, self.outside, "supervisor")
            self.run(limit=FAULTS_S * SECOND)
            self.heal()
            self._converge()
        finally:
            self.end()

    def _supervise(self) -> None:
        """Start what was killed again, until the end."""
        works = {name: partial(self._node, name) for name in self.nodes}
        works |= {producer: partial(self._producer, producer) for producer in self.plans}
        works["admin"] = self._admin
        while not self.over:
            self.pause(self.random.randrange(3 * SECOND, 20 * SECOND))
            for name, work in works.items():
                if self.over or name in self.finished or (name == "admin" and self.stopping):
                    continue
                if not any(each.name == name and not each.dead and each.tasks for each in self.processes):
                    self.start(name, work)

    def _converge(self) -> None:
        """Let nodes and producers finish, compare, and tidy."""
        limit = self.now + PATIENCE_S * SECOND
        done = False
        while not done and self.now < limit:
            self.run(limit=self.now + 5 * SECOND)
            done = self.finished >= self.plans.keys() and self.checks.published() >= self._events()
        missing = sorted(self._events() - self.checks.published())
        self.check(done, f"events are not published {PATIENCE_S} s after the last fault: {missing}")
        # What is left of earlier runs may wake up and must change nothing.
        self.run(limit=self.now + 60 * SECOND)
        self.over = True
        for each in self.processes:
            self.kill(each)
        self.run(limit=self.now + 300 * SECOND)
        self.checks.finally_exact(self._events(), self._possible())
        ended: list[bool] = []
        self.start("last", partial(self._tidy, ended), Host("fresh"))
        self.run(lambda: bool(ended), self.now + 30_000 * SECOND)
        self.check(bool(ended), "the fleet could not be tidied")
        self.checks.finally_tidy()

    def _events(self) -> set[tuple[str, int]]:
        """Return the events that must be there."""
        kept = {(producer, number) for producer in ("again", "own") for number in range(len(self.plans[producer]))}
        return kept | {("once", number) for number in self.stored["once"]}

    def _possible(self) -> set[tuple[str, int]]:
        """Return the events that may be there."""
        return {(producer, number) for producer, numbers in self.routed.items() for number in numbers}

    def _tidy(self, ended: list[bool]) -> None:
        def forget(runs: Sequence[int]) -> None:
            for name, sink in sinks_of(with_own_sinks(self.job().plan())).items():
                sink.forget(JOB, name, runs)

        for _ in range(4):
            self.pause(7200 * SECOND)
            sweep(Chains(open_store("s3://sim/state"), JOB), 0.0, 0.0)
            remove_ended_runs(Chains(open_store("s3://sim/state"), JOB), forget, 0.0)
            # As the next removal does, if another run were to end.
            delete_late_files(Chains(open_store("s3://sim/state"), JOB))
        ended.append(True)

    # Nodes.

    def job(self) -> Job:
        """Return the program. Histories with the same settings share it: making it takes longer than a batch."""
        what = tuple(self.settings.values())
        if what not in _jobs:
            with self.apart():
                _jobs[what] = with_one_plan(self._new_job())
        return _jobs[what]

    def _new_job(self) -> Job:
        job = Job(JOB, state="s3://sim/state", cells=CELLS, **self.settings)  # type: ignore[arg-type]
        totals = job.source("in", sources.inbox(URL)).key_by("by", lambda row: row.key)
        counts = totals.stateful_map(STEP, lambda key, n, total: (total + 1, total + 1), default=0)
        counts.sink(FILES, sinks.files("s3://sim/out", format="json"))
        counts.sink(TABLE, Table())
        return job

    def _node(self, name: str) -> None:
        options = NodeOptions(
            name, CELLS, URL, LEASE_S, retention=self.retention, on_event=lambda event, facts: self._told(event, facts)
        )
        try:
            node = Node(self.job(), SimulatedEngine(self), options)
            node.plan = with_own_sinks(node.plan)
            node.execute()
        except TidewheelError as error:
            self.note(f"{type(error).__name__}: {error}")
            self.check(not isinstance(error, CorruptError), f"node {name} found damage: {error}")
            sometimes(f"node ended with {type(error).__name__}")

    def _told(self, event: str, facts: dict[str, Any]) -> None:
        if self.process.dead:
            return
        self.note(f"{event} {facts}")
        sometimes(f"node {event}", event in ("joined", "adopted", "revoked", "left"))

    # Producers.

    def _producer(self, producer: str) -> None:
        try:
            with open_inbox(URL) as inbox:
                self._route(producer, inbox)
        except TidewheelError as error:
            self.note(f"{type(error).__name__}: {error}")
            sometimes("producer failed")

    def _route(self, producer: str, inbox: Any) -> None:
        keys = self.plans[producer]
        again, own = producer == "again", producer == "own"
        router = Router(inbox, producer, replay=again, own_numbers=own, timeout="15 s", linger="1 s")
        # A producer that does not repeat itself goes on behind what it has tried.
        first = 0 if again or own else max(self.routed[producer], default=-1) + 1
        try:
            fresh: list[int] = []
            for number in range(first, len(keys)):
                payload = msgspec.json.encode([producer, number])
                self.routed[producer].add(number)
                fresh.append(number)
                router.route(keys[number], payload, number + 1 if own else None)
                if self.random.random() < 0.3:
                    self.pause(self.random.randrange(1, 8 * SECOND))
                    router.flush("20 s")
                    self.stored[producer].update(fresh)
            router.flush("20 s")
            self.stored[producer].update(fresh)
            self.finished.add(producer)
            sometimes("producer repeated events that were stored", router.duplicates > 0)
        finally:
            router.abandon()

    # Administration.

    def _admin(self) -> None:
        acts: list[Callable[[Any], None]] = [self._drain, self._evict, self._install]
        while not self.stopping:
            self.pause(self.random.randrange(5 * SECOND, 40 * SECOND))
            try:
                with open_cells(CELLS) as connection:
                    self.random.choice(acts)(connection)
            except TidewheelError as error:
                self.note(f"{type(error).__name__}: {error}")

    def _drain(self, connection: Any) -> None:
        name = self.random.choice(self.nodes)
        self.note(f"drain {name}")
        drains(connection, JOB).write(name, 0.0)
        sometimes("node drained")

    def _evict(self, connection: Any) -> None:
        with Coordinator(connection, JOB, "admin", self.inbox.n_shards) as coordinator:
            name = self.random.choice(self.nodes)
            self.note(f"evict {name}")
            coordinator.leave(name)
            sometimes("living node evicted")

    def _install(self, connection: Any) -> None:
        with Coordinator(connection, JOB, "admin", self.inbox.n_shards) as coordinator:
            standing = coordinator.current_assignment()
            if standing.members:
                owners = tuple(self.random.choice(sorted(standing.members)) for _ in range(standing.n_shards))
                self.note(f"install {owners}")
                made = Assignment(standing.n_shards, standing.epoch + 1, standing.members, owners)
                coordinator.install_assignment(made)
                sometimes("assignment installed by hand")


class SimulatedEngine:
    """Carries a node's data."""

    spark = None

    def __init__(self, world: FleetWorld) -> None:
        self.world = world

    def start(self) -> None:
        """Take as long as Spark does."""
        self.world.pause(self.world.random.randrange(5 * SECOND))

    def drive(self, job: Any, plan: Any, run: Any) -> SimulatedDriving:
        """Return a run that has not started."""
        return SimulatedDriving(self.world, plan, run)


class SimulatedDriving:
    """One run of a node."""

    def __init__(self, world: FleetWorld, plan: Any, run: Any) -> None:
        self.world, self.run = world, run
        self.source = next(n.operator.source for n in plan.nodes if isinstance(n.operator, SourceOperator))
        self._stop = Event()

    def stop(self) -> None:
        """End after the current batch."""
        self._stop.set()

    def execute(self) -> Any:
        """Run batches until stopped."""
        settings = InboxSettings(self.source.url, self.source.shards, self.source.start, 7, 1, "raw")
        reader, failed = InboxReader(settings, pa.schema([])), True
        try:
            self.run.begin()
            self.run.start_sinks()
            self.run.publish_left(None)
            while not self._stop.is_set():
                if not self._batch(reader):
                    self._stop.wait(self.world.random.uniform(0.5, 3))
            failed = False
        finally:
            reader.close()
            self.run.release(failed=failed)
        return SimpleNamespace(stopped=True)

    def _batch(self, reader: Any) -> bool:
        """Run a batch; return False if there is nothing to read."""
        try:
            start = self.run.head.source_offsets.get("in") or reader.start()
            end = reader.end(start)
            events = self._read(reader, start, end)
            if events:
                self._commit(events, end)
            return bool(events)
        except StorageError as error:
            if self.world.random.random() < 0.4:
                raise
            self.run.recall()
            self.run.publish_left(None)
            self.world.note(f"batch failed ({error}); it goes on after {self.run.head.sequence}")
            return True

    def _read(self, reader: Any, start: Any, end: Any) -> list[tuple[str, int, Any]]:
        events = []
        for stored in reader._inbox().read(positions_of(start), positions_of(end)):
            found = decode_events(stored)
            for key, payload in zip(found.keys, found.payloads, strict=True):
                events.append((str(from_stored(key)), 1, msgspec.json.decode(payload)))
        return events

    def _commit(self, events: list[tuple[str, int, Any]], end: Any) -> None:
        def row(key: str, number: int, facts: Any) -> list[Any]:
            return [key, number, *facts]

        commit_batch(self.run, events, row, self.world.numbers.__next__, end, "inbox")
