"""A node's place in its fleet: a lease that shows it is alive, and the removal of those whose lease lapsed.

Leases and assignments only decide who tries to take a shard; that nobody works on one that was taken is decided by
the chains.
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
from tidewheel._fleet.assignment import Assignment
from tidewheel._fleet.coordinator import NAMESPACE, Coordinator
from tidewheel._fleet.errors import AlreadyMember, ProgramDiffers, UnknownNode
from tidewheel._fleet.liveness import Standing, is_lapsed, watched
from tidewheel.errors import HeldError

LEASE_SECONDS = 5.0
_MARGIN = 1.1
"""How much longer than its lease a node waits for its own name."""
_PAUSE_S = 0.05


class Program(msgspec.Struct, frozen=True):
    """Which program a fleet runs, on which state and inbox, and which node said so."""

    fingerprint: str
    node: str
    state: str = ""
    """The identity of the state: a random text in the store. Empty: a node of an older version wrote this."""
    inbox: int = 0
    """The identity of the inbox. 0: an older version made the inbox, or wrote this."""


def difference(standing: Program, mine: Program) -> str | None:
    """Return in what a node differs from its fleet, None if in nothing. What an older version left out fits everything."""
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
    """Return what is known of a fleet's program when a node that fits adds what an older version left out."""
    return msgspec.structs.replace(standing, state=standing.state or mine.state, inbox=standing.inbox or mine.inbox)


class Watch:
    """Tells which leases stand still. For use by one thread."""

    def __init__(self, connection: Connection, job: str, clock: Callable[[], float] = seconds_since_boot) -> None:
        self._leases: CellMapReader[Tenure] = connection.map_reader(f"fleet/{job}", Tenure, namespace=LEASES)
        self._connection, self._clock = connection, clock
        self._reconnects = connection.reconnects
        self._standing: dict[str, Standing] = {}
        self._looked: dict[str, float] = {}

    def tenure(self, node: str) -> Tenure | None:
        """Return who holds the lease of a node, lapsed or not."""
        return self._leases.get(node)

    def living(self, nodes: Collection[str], ttl: float) -> list[str]:
        """Return which of these renew their leases, as soon as one does; none if they all stand still for their time.

        `Offline` if the backend does not answer: then nothing is known of them.
        """
        before = {node: self._leases.snapshot(node).version for node in nodes}
        while nodes:
            found = [node for node in nodes if self._leases.snapshot(node).version != before[node]]
            if renewed := [node for node in found if node in self._leases]:
                return renewed
            if not self._connection.is_online:
                self._leases.refresh()
            # Look at all of them: the time of a lease goes on from look to look.
            lapsed = [self.lapsed(node, ttl) for node in nodes]
            if all(lapsed):
                return []
            time.sleep(_PAUSE_S)
        return []

    def lapsed(self, node: str, ttl: float) -> bool:
        """Tell whether a node's lease has stood still for its whole time; `ttl` counts where there is none.

        Before that is said, the lease is read from the backend: what this node was told may be old. `Offline` if the
        backend does not answer.
        """
        reconnects = self._connection.reconnects
        if not self._connection.is_online or reconnects != self._reconnects:
            # Nobody could renew, or this node did not see it: all get their whole time again.
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
    """One node's membership. `keep_up` is to be called a few times a second, by one thread."""

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

        `HeldError`: a living node has the name. `ProgramDiffers`: the fleet runs another program, or on another state or
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
        """Become a member: from now on shards are this node's to work on."""
        self.coordinator.join()

    def assignment(self) -> Assignment:
        """Return the newest assignment that is known here."""
        return self.coordinator.current_assignment()

    def shards(self) -> frozenset[int]:
        """Return the shards that this node is to have."""
        return frozenset(self.assignment().shards_of(self.node))

    @property
    def is_draining(self) -> bool:
        """Whether somebody asked this node to leave."""
        return self.node in self._drains

    def keep_up(self) -> None:
        """Stay a member, and remove those who are gone. What fails is to be tried again: the next call does."""
        with contextlib.suppress(AlreadyMember, UnknownNode):  # Another did the same at this moment.
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
        """Stop being a member; others take the shards at once."""
        self.coordinator.leave()
        self._drains.remove(self.node)

    def close(self) -> None:
        """Let go of the lease; if the cells do not answer, it lapses, which comes to the same."""
        with contextlib.suppress(CellError):
            self._lease.close()
            self.coordinator.close()

    def _agree(self) -> None:
        """Check that all living nodes run one program on one state and inbox; the first of them says which."""
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
