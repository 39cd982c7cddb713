"""A node of a fleet: it joins, takes the shards that are its to work on, runs them, and gives way when they are another's.

Whenever the shards of a node change, its run ends and another begins, which adopts what the node is to have: from other
nodes' runs, and from its own earlier one. So a run adopts before its first batch only, and one from which something was
taken commits nothing more; within a run, everything is as in a run of the whole job.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from tidewheel._cells import open_cells
from tidewheel._cells.connection import Connection
from tidewheel._cells.errors import CellError
from tidewheel._checkpoint.manifest import Manifest
from tidewheel._checkpoint.names import folder
from tidewheel._connectors.inbox import open_inbox
from tidewheel._core import faults
from tidewheel._core.threads import BackgroundThread, OnError
from tidewheel._engine.plan import Plan
from tidewheel._engine.plan_sinks import publish_output, stop_sinks
from tidewheel._engine.program_job import ProgramJob
from tidewheel._fleet.chains import Chains, take
from tidewheel._fleet.errors import NotCommitted, Overtaken
from tidewheel._fleet.inbox_retention import trim
from tidewheel._fleet.ledger import check_inbox, ledger_of
from tidewheel._fleet.membership import LEASE_SECONDS, Membership
from tidewheel._fleet.node_names import NodeNames
from tidewheel._fleet.over import let_go
from tidewheel._fleet.run import FleetRun, check_adopted, check_plan, fingerprint, with_inbox
from tidewheel._fleet.runs import Run
from tidewheel._fleet.sweep import sweep
from tidewheel._operators.stateless.sink import SinkOperator
from tidewheel._operators.time_checks import check_clock
from tidewheel._storage import open_store
from tidewheel.errors import ConnectorUnavailable, FencedError, Retry, StorageError, TidewheelError

_LOOK_SECONDS = 0.25
_TIDY_SECONDS = 60.0


class Ended(Protocol):
    """How a run ended."""

    @property
    def stopped(self) -> bool:
        """Whether it was asked to."""


class Driving(Protocol):
    """One run, at work."""

    def execute(self) -> Ended:
        """Run until stopped, or raise; a `FencedError` if a shard was taken from the run."""

    def stop(self) -> None:
        """Let the batch that is running finish and commit, then end. From any thread."""


class Engine(Protocol):
    """What carries a node's data: Spark, or this process in the tests."""

    spark: Any
    """The session that sinks publish with; None where there is none."""

    def start(self) -> None:
        """Do what takes time, before the node joins."""

    def drive(self, job: ProgramJob, plan: Plan, run: FleetRun) -> Driving:
        """Return a run of the plan that has yet to be executed."""


@dataclass(frozen=True)
class NodeOptions:
    """How a node takes part in a fleet."""

    name: str
    cells: str = field(repr=False)
    inbox: str = field(repr=False)
    lease: float = LEASE_SECONDS
    restarts: int = 5
    """How many consecutive failures to survive."""
    retention: float | None = None
    """How many seconds events stay in the inbox at least; then those go that nobody needs. None: all stay."""
    tell: Callable[[str, dict[str, Any]], None] = lambda event, facts: None
    """Called with what happens to the node, and the facts of it."""


class Node:
    """One node. `execute` works until the node is asked to leave."""

    def __init__(self, job: ProgramJob, engine: Engine, options: NodeOptions) -> None:
        """Take a job; its cells, and the inbox that it reads, are the fleet's."""
        self.job, self.engine, self.options = job, engine, options
        job.cells_at = options.cells
        self.plan = job.plan()
        check_clock(job.graph)
        self.source = check_plan(self.plan, job.name)
        self._membership: Membership
        self._names: NodeNames
        self._chains: Chains
        self._leaving = threading.Event()
        self._driving: Driving | None = None
        self._held: frozenset[int] = frozenset()
        self._asked = False
        """Whether this node asked its run to end."""
        self._failing: set[str] = set()
        """What does not work at present, beside the run, and was told."""

    def execute(self) -> None:
        """Join, work, and leave: on SIGTERM, on Ctrl-C, or when drained."""
        faults.remember_group()
        job, options = self.job, self.options
        self._chains = Chains(open_store(job.state), job.name)
        origin = self._chains.open_origin(job.n_shards)
        with open_inbox(options.inbox, job.n_shards) as inbox:
            inbox_identity = inbox.identity
        with open_cells(options.cells, program=f"tidewheel node {options.name}") as connection, self._signals():
            self._membership = Membership(
                connection,
                job.name,
                options.name,
                job.n_shards,
                ttl=options.lease,
                fingerprint=fingerprint(self.plan, job.n_shards),
                state=origin.lineage,
                inbox=inbox_identity,
            )
            with contextlib.closing(self._membership):
                self._membership.enter()
                self._take_part(connection)

    def leave(self) -> None:
        """Let the batch that is running finish and commit, then leave the fleet."""
        self._leaving.set()
        self._stop_run()

    def _take_part(self, connection: Connection) -> None:
        try:
            self.engine.start()
            # Only now: from here on the shards wait for this node.
            self._membership.join()
            self._names = NodeNames(connection, self.job.name)
            self.options.tell("joined", {"members": sorted(self._membership.assignment().members)})
            with self._beside(self._watch, _LOOK_SECONDS), self._beside(self._tidy, _TIDY_SECONDS):
                self._work()
        finally:
            self._leave()

    def _work(self) -> None:
        failures = 0
        while not self._leaving.is_set():
            try:
                self._one_run()
                failures = 0
            except Overtaken:
                continue
            except (StorageError, CellError, ConnectorUnavailable, NotCommitted, Retry) as error:
                failures += 1
                if failures > self.options.restarts:
                    raise
                self.options.tell("failed", {"error": str(error)})
                self._leaving.wait(min(2.0**failures, 30.0) * 0.5)

    def _one_run(self) -> None:
        """Adopt the shards that are this node's, and run them until that changes."""
        if not self._membership.shards():
            self._leaving.wait(_LOOK_SECONDS)
            return
        run = self._chains.begin(self.options.name, self.job.n_shards)
        ledger = take(self._chains, run, self._wanted, self._publish, self._check)
        if not ledger.held:
            return
        self.options.tell("adopted", {"run": run.number, "shards": sorted(ledger.held)})
        starts = {shard: holding.position for shard, holding in ledger.held.items()}
        plan = with_inbox(self.plan, self.source.reading(self.options.inbox, starts))
        fleet_run = FleetRun(self.job, plan, run, ledger)
        self._execute(self.engine.drive(self.job, plan, fleet_run), fleet_run.held, run)

    def _execute(self, driving: Driving, held: frozenset[int], run: Run) -> None:
        self._held, self._asked, self._driving = held, False, driving
        if self._is_over():
            self._stop_run()
        try:
            result = driving.execute()
        except TidewheelError as error:
            if self._revoked(run) or isinstance(error, FencedError):
                return
            if not self._asked:
                raise
            # It was to end anyway; what lasts, the next run meets too.
            self.options.tell("failed", {"run": run.number, "error": str(error)})
            return
        finally:
            self._driving = None
        if result.stopped and not self._asked:
            self._leaving.set()  # It was interrupted, not by this node.

    def _revoked(self, run: Run) -> bool:
        """Tell whether a shard was taken from a run, and say so."""
        newest = self._chains.of(run.name).latest()
        if newest is None or newest.run == run.token:
            return False
        gone = ledger_of(newest).revoked
        takers = {taken.to: self._chains.runs.get(int(taken.to)) for taken in gone.values()}
        nodes = sorted({taker.node if taker else f"run {name}" for name, taker in takers.items()})
        self.options.tell("revoked", {"run": run.number, "shards": sorted(gone), "by": nodes})
        return True

    def _wanted(self) -> frozenset[int]:
        return frozenset() if self._leaving.is_set() else self._membership.shards()

    def _publish(self, state: Manifest) -> None:
        stream = state.id.stream_id
        try:
            publish_output(self.plan, self._chains.store.at(folder(stream)), state, self.engine.spark)
        finally:
            stop_sinks(self.plan, stream)

    def _check(self, state: Manifest) -> None:
        check_adopted(state, self.plan, self.job.n_shards, self.job.aliases)
        with open_inbox(self.options.inbox) as inbox:
            check_inbox(state, inbox)

    # Beside the run.

    def _is_over(self) -> bool:
        """Tell whether the run must end because this node is to have other shards. What was taken from it, its commit tells."""
        return self._leaving.is_set() or self._membership.shards() != self._held

    def _stop_run(self) -> None:
        driving = self._driving
        if driving is not None:
            self._asked = True
            driving.stop()

    @contextlib.contextmanager
    def _beside(self, work: Callable[[], None], every: float) -> Iterator[None]:
        """Do something every so many seconds, beside the run. An error that nobody expected is told, and it goes on."""
        done = threading.Event()

        def repeat() -> None:
            while not done.wait(every):
                work()

        def failed(error: BaseException) -> OnError:
            self.options.tell("failed", {"in": work.__name__.strip("_"), "error": f"{type(error).__name__}: {error}"})
            return "go on"

        thread = BackgroundThread(repeat, f"tidewheel-node-{work.__name__}", failed)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    @contextlib.contextmanager
    def _told(self, what: str) -> Iterator[None]:
        """Do what is done again soon, and what no run waits for. That it fails is told once, until it has worked again."""
        try:
            yield
        except Exception as error:
            text = str(error) if isinstance(error, TidewheelError) else f"{type(error).__name__}: {error}"
            if what not in self._failing:
                self._failing.add(what)
                self.options.tell("failed", {"in": what, "error": text})
        else:
            self._failing.discard(what)

    def _watch(self) -> None:
        with self._told("staying a member of the fleet"):
            self._membership.keep_up()
        if self._membership.is_draining:
            self._leaving.set()
        if self._driving is not None and self._is_over():
            self._stop_run()

    def _tidy(self) -> None:
        """Remove what nobody needs any more: of runs that are over, of names, and in the inbox. The node of shard 0 does it."""
        if 0 not in self._membership.shards():
            return
        with self._told("removing files of runs that are over"):
            sweep(Chains(open_store(self.job.state), self.job.name), self.job.grace / 1e9)
        with self._told("letting go of the markers and chains of runs that are over"):
            let_go(Chains(open_store(self.job.state), self.job.name), self._forget)
        with self._told("removing the cells of nodes that are gone"):
            self._names.tidy(self._membership.assignment().members)
        if self.options.retention is not None:
            with self._told("trimming the inbox"), open_inbox(self.options.inbox) as inbox:
                trim(Chains(open_store(self.job.state), self.job.name), inbox, self.options.retention)

    def _forget(self, runs: Sequence[int]) -> None:
        """Have all sinks let go of the markers of runs that are over."""
        for node in self.plan.nodes:
            if isinstance(node.operator, SinkOperator):
                node.operator.sink.forget(self.job.name, node.name, runs)

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        asking = [signal.SIGTERM, signal.SIGINT]
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            # Under nohup it is ignored, and stays so.
            asking.append(signal.SIGHUP)
        before = {number: signal.signal(number, lambda *_: self.leave()) for number in asking}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _leave(self) -> None:
        """Leave the fleet. If the cells do not answer, the lease lapses, which comes to the same."""
        began = time.monotonic()
        with self._told("leaving the fleet: the others wait until the lease lapses"):
            self._membership.leave()
            self.options.tell("left", {"seconds": round(time.monotonic() - began, 3)})
