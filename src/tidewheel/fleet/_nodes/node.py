"""A node of a fleet: it joins, takes its assigned shards, runs them, and releases them when they are reassigned.

Whenever the shards of a node change, its run ends and another starts, which adopts the assigned shards: from other
nodes' runs, and from the node's own earlier run. So a run adopts only before its first batch, and a run that lost a
shard commits nothing more; otherwise a run works like a run of the whole job.
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
from tidewheel._core import faults
from tidewheel._core.threads import BackgroundThread, OnError
from tidewheel._engine.plan import Plan
from tidewheel._engine.plan_sinks import publish_output, sinks_of, stop_sinks
from tidewheel._engine.program_job import ProgramJob
from tidewheel._operators.time_checks import check_clock
from tidewheel._storage import open_store
from tidewheel.errors import ConnectorUnavailable, FencedError, Retry, StorageError, TidewheelError
from tidewheel.fleet._inbox import open_inbox
from tidewheel.fleet._nodes.chains import Chains, take
from tidewheel.fleet._nodes.errors import NotCommitted, Overtaken
from tidewheel.fleet._nodes.inbox_retention import trim
from tidewheel.fleet._nodes.ledger import check_inbox, ledger_of
from tidewheel.fleet._nodes.membership import LEASE_SECONDS, Membership
from tidewheel.fleet._nodes.node_names import NodeNames
from tidewheel.fleet._nodes.over import remove_ended_runs
from tidewheel.fleet._nodes.run import FleetRun, check_adopted, check_plan, fingerprint, with_inbox
from tidewheel.fleet._nodes.runs import Run
from tidewheel.fleet._nodes.sweep import sweep

_LOOK_SECONDS = 0.25
_TIDY_SECONDS = 60.0


class Ended(Protocol):
    """The result of a run."""

    @property
    def stopped(self) -> bool:
        """Whether the run was asked to end."""


class Driving(Protocol):
    """One active run."""

    def execute(self) -> Ended:
        """Run until stopped, or raise; a `FencedError` if a shard was taken from the run."""

    def stop(self) -> None:
        """Finish and commit the current batch, then end. Can be called from any thread."""


class Engine(Protocol):
    """The executor of a node's runs: Spark, or this process in the tests."""

    spark: Any
    """The session that sinks publish with; None if there is none."""

    def start(self) -> None:
        """Do slow preparations before the node joins."""

    def drive(self, job: ProgramJob, plan: Plan, run: FleetRun) -> Driving:
        """Return a run of the plan that has not started."""


@dataclass(frozen=True)
class NodeOptions:
    """The options of a node."""

    name: str
    cells: str = field(repr=False)
    inbox: str = field(repr=False)
    lease: float = LEASE_SECONDS
    restarts: int = 5
    """How many consecutive failures to survive."""
    retention: float | None = None
    """The minimum seconds to keep events in the inbox; older ones that are not needed are deleted. None keeps all."""
    on_event: Callable[[str, dict[str, Any]], None] = lambda event, facts: None
    """Called with each event of the node and its details."""


class Node:
    """One node. `execute` works until the node is asked to leave."""

    def __init__(self, job: ProgramJob, engine: Engine, options: NodeOptions) -> None:
        """Use a job, whose cells and inbox are the fleet's."""
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
        self._stop_requested = False
        """Whether this node asked its run to end."""
        self._failing: set[str] = set()
        """Background tasks that currently fail and were reported."""

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
        """Finish and commit the current batch, then leave the fleet."""
        self._leaving.set()
        self._stop_run()

    def _take_part(self, connection: Connection) -> None:
        try:
            self.engine.start()
            # Join only now: from here on the shards wait for this node.
            self._membership.join()
            self._names = NodeNames(connection, self.job.name)
            self.options.on_event("joined", {"members": sorted(self._membership.assignment().members)})
            with self._repeating(self._watch, _LOOK_SECONDS), self._repeating(self._tidy, _TIDY_SECONDS):
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
                self.options.on_event("failed", {"error": str(error)})
                self._leaving.wait(min(2.0**failures, 30.0) * 0.5)

    def _one_run(self) -> None:
        """Adopt this node's shards, and run them until they change."""
        if not self._membership.shards():
            self._leaving.wait(_LOOK_SECONDS)
            return
        run = self._chains.begin(self.options.name, self.job.n_shards)
        ledger = take(self._chains, run, self._wanted, self._publish, self._check)
        if not ledger.held:
            return
        self.options.on_event("adopted", {"run": run.number, "shards": sorted(ledger.held)})
        starts = {shard: holding.position for shard, holding in ledger.held.items()}
        plan = with_inbox(self.plan, self.source.reading(self.options.inbox, starts))
        fleet_run = FleetRun(self.job, plan, run, ledger)
        self._execute(self.engine.drive(self.job, plan, fleet_run), fleet_run.held, run)

    def _execute(self, driving: Driving, held: frozenset[int], run: Run) -> None:
        self._held, self._stop_requested, self._driving = held, False, driving
        if self._is_over():
            self._stop_run()
        try:
            result = driving.execute()
        except TidewheelError as error:
            if self._revoked(run) or isinstance(error, FencedError):
                return
            if not self._stop_requested:
                raise
            # The run was to end anyway; if the error persists, the next run gets it too.
            self.options.on_event("failed", {"run": run.number, "error": str(error)})
            return
        finally:
            self._driving = None
        if result.stopped and not self._stop_requested:
            self._leaving.set()  # Something other than this node interrupted it.

    def _revoked(self, run: Run) -> bool:
        """Return whether a shard was taken from a run, and report it."""
        newest = self._chains.of(run.name).latest()
        if newest is None or newest.run == run.token:
            return False
        gone = ledger_of(newest).revoked
        takers = {taken.to: self._chains.runs.get(int(taken.to)) for taken in gone.values()}
        nodes = sorted({taker.node if taker else f"run {name}" for name, taker in takers.items()})
        self.options.on_event("revoked", {"run": run.number, "shards": sorted(gone), "by": nodes})
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

    # Background tasks.

    def _is_over(self) -> bool:
        """Return whether the run must end because this node's shards changed. A lost shard shows at the next commit."""
        return self._leaving.is_set() or self._membership.shards() != self._held

    def _stop_run(self) -> None:
        driving = self._driving
        if driving is not None:
            self._stop_requested = True
            driving.stop()

    @contextlib.contextmanager
    def _repeating(self, work: Callable[[], None], every: float) -> Iterator[None]:
        """Call a function at an interval in the background during the run. Report unexpected errors and continue."""
        done = threading.Event()

        def repeat() -> None:
            while not done.wait(every):
                work()

        def failed(error: BaseException) -> OnError:
            self.options.on_event(
                "failed", {"in": work.__name__.strip("_"), "error": f"{type(error).__name__}: {error}"}
            )
            return "go on"

        thread = BackgroundThread(repeat, f"tidewheel-node-{work.__name__}", failed)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    @contextlib.contextmanager
    def _reported_once(self, what: str) -> Iterator[None]:
        """Run a task that is repeated soon. Report a failure once, until the task has succeeded again."""
        try:
            yield
        except Exception as error:
            text = str(error) if isinstance(error, TidewheelError) else f"{type(error).__name__}: {error}"
            if what not in self._failing:
                self._failing.add(what)
                self.options.on_event("failed", {"in": what, "error": text})
        else:
            self._failing.discard(what)

    def _watch(self) -> None:
        with self._reported_once("staying a member of the fleet"):
            self._membership.keep_up()
        if self._membership.is_draining:
            self._leaving.set()
        if self._driving is not None and self._is_over():
            self._stop_run()

    def _tidy(self) -> None:
        """Delete unused data: of ended runs, of names, and in the inbox. Done by the node of shard 0."""
        if 0 not in self._membership.shards():
            return
        with self._reported_once("deleting files of ended runs"):
            sweep(Chains(open_store(self.job.state), self.job.name), self.job.grace / 1e9)
        with self._reported_once("deleting the markers and chains of ended runs"):
            remove_ended_runs(Chains(open_store(self.job.state), self.job.name), self._forget)
        with self._reported_once("deleting the cells of former nodes"):
            self._names.tidy(self._membership.assignment().members)
        if self.options.retention is not None:
            with self._reported_once("trimming the inbox"), open_inbox(self.options.inbox) as inbox:
                trim(Chains(open_store(self.job.state), self.job.name), inbox, self.options.retention)

    def _forget(self, runs: Sequence[int]) -> None:
        """Delete the publish markers of ended runs from all sinks."""
        for name, sink in sinks_of(self.plan).items():
            sink.forget(self.job.name, name, runs)

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        numbers = [signal.SIGTERM, signal.SIGINT]
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            # Under nohup the signal is ignored, and stays so.
            numbers.append(signal.SIGHUP)
        before = {number: signal.signal(number, lambda *_: self.leave()) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _leave(self) -> None:
        """Leave the fleet. If the cells do not answer, the lease expires, with the same effect."""
        began = time.monotonic()
        with self._reported_once("leaving the fleet: the others wait until the lease expires"):
            self._membership.leave()
            self.options.on_event("left", {"seconds": round(time.monotonic() - began, 3)})
