"""A node's membership in its fleet: a lease that shows it is alive, and the removal of nodes whose lease expired.

Leases and assignments only decide who tries to take a shard. The chains ensure that nobody works on a shard that was
taken.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection
from datetime import timedelta

import msgspec

from tidewheel._cells.connection import Connection
from tidewheel._cells.deadline import seconds_since_boot
from tidewheel._cells.errors import CellError
from tidewheel._cells.lease import NAMESPACE as LEASES
from tidewheel._cells.lease import Lease, Tenure
from tidewheel._cells.map import CellMapReader, CellMapWriter
from tidewheel.errors import HeldError
from tidewheel.fleet._nodes.assignment import Assignment
from tidewheel.fleet._nodes.coordinator import NAMESPACE, Coordinator
from tidewheel.fleet._nodes.errors import AlreadyMember, ProgramDiffers, UnknownNode
from tidewheel.fleet._nodes.liveness import Standing, is_lapsed, watched

LEASE_SECONDS = 5.0
_MARGIN = 1.1
"""How much longer than its lease a node waits for its own name."""
_PAUSE_S = 0.05


class Program(msgspec.Struct, frozen=True):
    """The program, state and inbox of a fleet, and the node that set them."""

    fingerprint: str
    node: str
    state: str = ""
    """The identity of the state: a random text in the store. Empty if a node of an older version wrote this."""
    inbox: int = 0
    """The identity of the inbox. 0 if an older version created the inbox or wrote this."""


def difference(standing: Program, mine: Program) -> str | None:
    """Return how a node differs from its fleet; None if it does not. Values missing from older versions match everything."""
    if standing.fingerprint != mine.fingerprint:
        return (
            f"runs another program: its graph has the fingerprint {standing.fingerprint}, as node {standing.node} has it, this "
            f"one's has {mine.fingerprint}. Run the same program on every node"
        )
    if standing.state and mine.state and standing.state != mine.state:
        return (
            f"has its state elsewhere: the state of node {standing.node} has the identity {standing.state}, the one at this "
            f"node's --state has {mine.state}, and would begin with nothing. Give every node the same --state"
        )
    if standing.inbox and mine.inbox and standing.inbox != mine.inbox:
        return (
            f"reads another inbox: the one of node {standing.node} has the identity {standing.inbox}, the one at this node's "
            f"--inbox has {mine.inbox}. Give every node the same --inbox"
        )
    return None


def merged(standing: Program, mine: Program) -> Program:
    """Return a fleet's program with the values added that an older version left out."""
    return msgspec.structs.replace(standing, state=standing.state or mine.state, inbox=standing.inbox or mine.inbox)


class Watch:
    """Detects leases that are not renewed. Not thread-safe."""

    def __init__(self, connection: Connection, job: str, clock: Callable[[], float] = seconds_since_boot) -> None:
        self._leases: CellMapReader[Tenure] = connection.map_reader(f"fleet/{job}", Tenure, namespace=LEASES)
        self._connection, self._clock = connection, clock
        self._reconnects = connection.reconnects
        self._standing: dict[str, Standing] = {}
        self._looked: dict[str, float] = {}

    def tenure(self, node: str) -> Tenure | None:
        """Return the holder of a node's lease, expired or not."""
        return self._leases.get(node)

    def living(self, nodes: Collection[str], ttl: float) -> list[str]:
        """Return the nodes that renew their leases, as soon as there is one; none if all leases expire.

        Raises `Offline` if the backend does not answer: then nothing is known about them.
        """
        before = {node: self._leases.snapshot(node).version for node in nodes}
        while nodes:
            found = [node for node in nodes if self._leases.snapshot(node).version != before[node]]
            if renewed := [node for node in found if node in self._leases]:
                return renewed
            if not self._connection.is_online:
                self._leases.refresh()
            # Check all of them: the time of a lease is counted from check to check.
            lapsed = [self.lapsed(node, ttl) for node in nodes]
            if all(lapsed):
                return []
            time.sleep(_PAUSE_S)
        return []

    def lapsed(self, node: str, ttl: float) -> bool:
        """Return whether a node's lease was not renewed for its whole ttl; `ttl` is used if there is no lease.

        The lease is first read from the backend, because the local value may be old. Raises `Offline` if the backend
        does not answer.
        """
        reconnects = self._connection.reconnects
        if not self._connection.is_online or reconnects != self._reconnects:
            # Nobody could renew, or this node did not see it: restart the time of all leases.
            self._standing, self._reconnects = {}, reconnects
        if not self._look(node, ttl):
            return False
        self._leases.refresh()
        return self._look(node, ttl)

    def _look(self, node: str, ttl: float) -> bool:
        snapshot, now = self._leases.snapshot(node), self._clock()
        ttl = ttl if snapshot.value is None else snapshot.value.ttl
        elapsed, self._looked[node] = now - self._looked.get(node, now), now
        standing = self._standing[node] = watched(self._standing.get(node), snapshot.version, elapsed, ttl)
        return is_lapsed(standing, ttl)


class Membership:
    """One node's membership. Call `keep_up` a few times per second, from one thread."""

    def __init__(
        self,
        connection: Connection,
        job: str,
        node: str,
        n_shards: int,
        *,
        ttl: float,
        fingerprint: str,
        state: str = "",
        inbox: int = 0,
    ) -> None:
        self.job, self.node, self.ttl = job, node, ttl
        self.coordinator = Coordinator(connection, job, node, n_shards, idempotent=True)
        self._mine = Program(fingerprint, node, state, inbox)
        self._lease = Lease(connection, f"fleet/{job}/{node}", ttl=timedelta(seconds=ttl))
        self._watch = Watch(connection, job)
        self._program = connection.writer(
            f"{job}/program", Program, namespace=NAMESPACE, type_name="tidewheel.FleetProgram"
        )
        self._drains = drains(connection, job)

    def enter(self) -> None:
        """Take the node's lease.

        Raises `HeldError` if a live node has the name, and `ProgramDiffers` if the fleet runs another program, state or
        inbox.
        """
        try:
            self._lease.acquire(timeout=timedelta(seconds=self.ttl * _MARGIN + 1.0))
        except TimeoutError:
            holder = tenure.holder if (tenure := self._lease.current) else "elsewhere"
            raise HeldError(
                f"there is a node {self.node!r} in the fleet of {self.job!r} already, {holder}; give each node a name of its "
                "own with --name"
            ) from None
        self._lease.keep()
        try:
            self._agree()
            self._drains.remove(self.node)
        except BaseException:
            self._lease.close()
            raise

    def join(self) -> None:
        """Become a member: from now on shards can be assigned to this node."""
        self.coordinator.join()

    def assignment(self) -> Assignment:
        """Return the newest locally known assignment."""
        return self.coordinator.current_assignment()

    def shards(self) -> frozenset[int]:
        """Return the shards that are assigned to this node."""
        return frozenset(self.assignment().shards_of(self.node))

    @property
    def is_draining(self) -> bool:
        """Whether this node was asked to leave."""
        return self.node in self._drains

    def keep_up(self) -> None:
        """Stay a member, and remove failed nodes. After an error, the next call retries."""
        with contextlib.suppress(AlreadyMember, UnknownNode):  # Another node did the same.
            if not self._lease.held:
                self._lease.release()
                if not self._lease.try_acquire():
                    return
                self._lease.keep()
            members = self.assignment().members
            if self.node not in members:
                self.coordinator.join()
            for other in members:
                if other != self.node and self._watch.lapsed(other, self.ttl):
                    self.coordinator.leave(other)

    def leave(self) -> None:
        """Leave the membership; other nodes take the shards at once."""
        self.coordinator.leave()
        self._drains.remove(self.node)

    def close(self) -> None:
        """Release the lease; if the cells do not answer, it expires, with the same effect."""
        with contextlib.suppress(CellError):
            self._lease.close()
            self.coordinator.close()

    def _agree(self) -> None:
        """Check that all live nodes have the same program, state and inbox; the first node sets them."""
        while True:
            standing, mine = self._program.refresh(), self._mine
            if standing.value is not None:
                if (differs := difference(standing.value, mine)) is None:
                    mine = merged(standing.value, mine)
                    if mine == standing.value:
                        return
                elif living := self._watch.living([n for n in self.assignment().members if n != self.node], self.ttl):
                    raise ProgramDiffers(
                        f"the fleet of {self.job!r} {differs}; to change it, drain {', '.join(sorted(living))} first"
                    )
            if self._program.compare_exchange_at(standing.version, mine).applied:
                return


def drains(connection: Connection, job: str) -> CellMapWriter[float]:
    """Return the nodes that were asked to leave."""
    return connection.map_writer(f"{job}/drain", float, namespace=NAMESPACE, type_name="tidewheel.Drain")
