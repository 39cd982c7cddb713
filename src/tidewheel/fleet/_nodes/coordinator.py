"""Coordinator: the members of a fleet, the owners of shards, and the routing of events to a shard's inbox.

The assignment is a cell. A change is planned by a pure function from the locally known assignment, then committed by
compare and exchange; if another node was first, the change is planned again. Local data changes only after the commit.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import msgspec

from tidewheel._cells.cell import Snapshot
from tidewheel._cells.connection import Connection
from tidewheel._cells.errors import Offline
from tidewheel._cells.job_place import FLEET
from tidewheel._core.closing import Closing
from tidewheel._core.keys import check_n_shards, shard_of
from tidewheel._time.duration import Duration, seconds, seconds_or_none
from tidewheel.errors import ConfigError, TidewheelError
from tidewheel.fleet._nodes.assignment import (
    Assignment,
    Rebalance,
    add_node,
    check_installable,
    check_node,
    moves,
    remove_node,
)
from tidewheel.fleet._nodes.errors import (
    AlreadyMember,
    AssignmentRefused,
    CoordinatorError,
    NoNodes,
    NotCommitted,
    UnknownNode,
)
from tidewheel.fleet._nodes.router import Router

NAMESPACE = FLEET
_TYPE = "tidewheel.Assignment"


class Routed(msgspec.Struct, frozen=True):
    """The destination of an event: its shard, the current owner, and whether the owner is the coordinator's node."""

    shard: int
    node: str
    local: bool


class Stats(msgspec.Struct, frozen=True):
    """The counters of one coordinator.

    `joins` and `leaves` count changes of membership that it committed, `installs` the assignments that took effect here
    (without those that were replaced before they were seen), `routed` the events that are durable in an inbox, of which
    `local` are for its own node and `remote` for others. `failures` counts calls that raised.
    """

    joins: int = 0
    leaves: int = 0
    routed: int = 0
    local: int = 0
    remote: int = 0
    installs: int = 0
    failures: int = 0


class Coordinator(Closing):
    """One node's view of its fleet. Thread-safe.

    `job` names the fleet; all its nodes use the same cells, job and `n_shards`, and each has its own `node` name. With
    `idempotent=True`, joining twice and leaving when absent are not errors: nothing happens, and the current assignment
    is returned. `router` is needed only for `route`; to route many events use a `Router` directly, because an event's
    inbox depends only on its key.
    """

    def __init__(
        self,
        connection: Connection,
        job: str,
        node: str,
        n_shards: int,
        *,
        router: Router | None = None,
        idempotent: bool = False,
    ) -> None:
        check_n_shards(n_shards)
        check_node(node)
        if router is not None and router.inbox.n_shards != n_shards:
            raise ConfigError(
                f"the inbox {router.inbox.url} has {router.inbox.n_shards} shards, the fleet of {job!r} has {n_shards}"
            )
        self.job, self.node, self.n_shards = job, node, n_shards
        self._idempotent, self._router = idempotent, router
        self._timeout = connection.timeout
        self._cell = connection.writer(f"{job}/assignment", Assignment, namespace=NAMESPACE, type_name=_TYPE)
        self._lock = threading.Lock()
        self._stats = Stats()
        self._installed = 0
        self._uncertain: set[tuple[str, str]] = set()
        self._undelivered: list[Routed] = []
        self._check_shards(self._cell.read())

    def current_assignment(self) -> Assignment:
        """Return the newest locally known assignment. Local and immediate."""
        assignment = self._cell.read() or Assignment(self.n_shards)
        with self._lock:
            if assignment.epoch > self._installed:
                self._installed = assignment.epoch
                self._add(installs=1)
        return assignment

    def wait_for_change(self, epoch: int, timeout: Duration | None = None) -> Assignment:
        """Wait until an assignment newer than `epoch` is known here; raise `TimeoutError` if none arrives in time."""
        limit = seconds_or_none(timeout, "the timeout")
        deadline = None if limit is None else time.monotonic() + limit
        while True:
            version = self._cell.version()
            current = self.current_assignment()
            if current.epoch > epoch:
                return current
            self._cell.when.updated(None if deadline is None else _left(deadline), since=version)

    def shard_for_key(self, key: Any) -> int:
        """Return the shard of a key: the same on every node and in every run, whoever owns it."""
        return shard_of(key, self.n_shards)

    def join(self, node: str | None = None, *, weight: float = 1.0, timeout: Duration | None = None) -> Rebalance:
        """Add a node, by default this one, to the members. `NotCommitted` means that nothing changed here; try again."""
        name = self.node if node is None else node
        return self._change("join", name, lambda standing: add_node(standing, name, weight), timeout, "joins")

    def leave(self, node: str | None = None, *, timeout: Duration | None = None) -> Rebalance:
        """Remove a member, by default this node. Any node can remove one that does not answer."""
        name = self.node if node is None else node
        return self._change("leave", name, lambda standing: remove_node(standing, name), timeout, "leaves")

    def install_assignment(self, assignment: Assignment, *, timeout: Duration | None = None) -> Rebalance:
        """Replace the current assignment by one made elsewhere, if its epoch is higher; membership follows it.

        Raises `AssignmentRefused` with the reason otherwise.
        """

        def plan(standing: Assignment) -> Rebalance:
            check_installable(standing, assignment)
            return Rebalance(assignment, moves(standing, assignment))

        return self._change("install", str(assignment.epoch), plan, timeout, None)

    def route(self, key: Any, payload: Any) -> Routed:
        """Append an event to the inbox of its key's shard; it is durable when this returns.

        Raises `NoNodes` if there are no members; nothing was sent. Raises `NotTaken` if earlier events could not be
        delivered; this event was not accepted, so route it again after `flush`. After any other error of the inbox, the
        event is kept under its stamp and `flush` retries it: do not route it again.
        """
        if self._router is None:
            raise ConfigError(f"this coordinator of {self.job!r} was made without a router and cannot route")
        with self._counting_failures():
            shard = self.shard_for_key(key)
            owner = self.current_assignment().owner_of(shard) or self._fresh().owner_of(shard)
            if owner is None:
                raise NoNodes(f"the fleet of {self.job!r} has no nodes; nothing was sent. Start one, then route again")
            routed = Routed(shard, owner, owner == self.node)
            self._router.route(key, payload)
            with self._lock:
                self._undelivered.append(routed)
            self._deliver()
        return routed

    def flush(self) -> None:
        """Deliver the events that an earlier `route` could not deliver."""
        if self._router is not None:
            with self._counting_failures():
                self._deliver()

    def stats(self) -> Stats:
        """Return a consistent copy of the counters."""
        self.current_assignment()
        return self._stats

    def close(self) -> None:
        """Stop following the assignment. This does not close the router and the connection."""
        self._cell.close()

    def _deliver(self) -> None:
        assert self._router is not None
        with self._lock:
            covered = len(self._undelivered)
        self._router.flush()
        with self._lock:
            done, self._undelivered = self._undelivered[:covered], self._undelivered[covered:]
            local = sum(routed.local for routed in done)
            self._add(routed=len(done), local=local, remote=len(done) - local)

    def _change(
        self,
        verb: str,
        what: str,
        plan: Callable[[Assignment], Rebalance],
        timeout: Duration | None,
        counter: str | None,
    ) -> Rebalance:
        with self._counting_failures():
            try:
                done = self._committed(plan, timeout)
            except (AlreadyMember, UnknownNode):
                if (verb, what) not in self._uncertain and not self._idempotent:
                    raise
                # The change was already made: by an earlier attempt whose answer was lost or, if allowed, before.
                if (verb, what) not in self._uncertain:
                    counter = None
                done = Rebalance(self.current_assignment())
            except Offline as error:
                if error.maybe:
                    self._uncertain.add((verb, what))
                raise NotCommitted(
                    f"{verb} of {what} in the fleet of {self.job!r} could not be committed: {error}. "
                    "Nothing is changed here; try again"
                ) from error
        self._uncertain.discard((verb, what))
        if counter is not None:
            with self._lock:
                self._add(**{counter: 1})
        self.current_assignment()
        return done

    def _committed(self, plan: Callable[[Assignment], Rebalance], timeout: Duration | None) -> Rebalance:
        """Plan and exchange until the result is final. A refusal counts only if it was based on the current assignment."""
        deadline = time.monotonic() + (self._timeout if timeout is None else seconds(timeout, "the timeout"))
        standing, fresh, lost = self._cell.snapshot(), False, 0
        while True:
            try:
                planned = plan(standing.value or Assignment(self.n_shards))
            except CoordinatorError:
                if fresh:
                    raise
                standing, fresh = self._cell.refresh(_left(deadline)), True
                continue
            done = self._cell.compare_exchange_at(standing.version, planned.assignment, timeout=_left(deadline))
            if done.applied:
                return planned
            self._check_shards(done.seen)
            standing, fresh, lost = Snapshot(done.version, done.seen), True, lost + 1
            if lost > 2:
                # Wait for other nodes, longer after each lost exchange.
                time.sleep(min(_left(deadline).total_seconds(), random.uniform(0, 0.001 * 2 ** min(lost, 6))))

    def _fresh(self) -> Assignment:
        """Return the current assignment or, if the cells are unreachable, the locally known one."""
        with contextlib.suppress(Offline):
            self._cell.refresh()
        return self.current_assignment()

    def _check_shards(self, assignment: Assignment | None) -> None:
        if assignment is not None and assignment.n_shards != self.n_shards:
            raise AssignmentRefused(
                f"the fleet of {self.job!r} has {assignment.n_shards} shards, this node was started with {self.n_shards}: the "
                "number is fixed for the life of a job's state; start the node with the fleet's"
            )

    @contextlib.contextmanager
    def _counting_failures(self) -> Iterator[None]:
        try:
            yield
        except TidewheelError:
            with self._lock:
                self._add(failures=1)
            raise

    def _add(self, **counts: int) -> None:
        """Add to the counters. The caller holds the lock."""
        values = msgspec.structs.asdict(self._stats)
        self._stats = Stats(**{name: value + counts.get(name, 0) for name, value in values.items()})


def _left(deadline: float) -> timedelta:
    return timedelta(seconds=max(0.0, deadline - time.monotonic()))
