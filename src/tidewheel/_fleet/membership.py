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
from tidewheel._cells.errors import CellError
from tidewheel._cells.lease import NAMESPACE as LEASES
from tidewheel._cells.lease import Lease, Tenure
from tidewheel._cells.map import CellMapReader, CellMapWriter
from tidewheel._fleet.assignment import Assignment
from tidewheel._fleet.coordinator import NAMESPACE, Coordinator
from tidewheel._fleet.errors import AlreadyMember, ProgramDiffers, UnknownNode
from tidewheel.errors import HeldError

LEASE_SECONDS = 5.0
_MARGIN = 1.1
_PAUSE_S = 0.05


class Program(msgspec.Struct, frozen=True):
    """Which program a fleet runs, and which node said so."""

    fingerprint: str
    node: str


class Watch:
    """Tells which leases stand still. No clocks are compared: a lease's time runs anew here with every version seen."""

    def __init__(self, connection: Connection, job: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._leases: CellMapReader[Tenure] = connection.map_reader(f"fleet/{job}", Tenure, namespace=LEASES)
        self._clock = clock
        self._seen: dict[str, tuple[int, float]] = {}

    def tenure(self, node: str) -> Tenure | None:
        """Return who holds the lease of a node, lapsed or not."""
        return self._leases.get(node)

    def living(self, nodes: Collection[str], ttl: float) -> list[str]:
        """Return which of these renew their leases, as soon as one does; none if they all stand still for their time."""
        before = {node: self._leases.snapshot(node).version for node in nodes}
        deadline = self._clock() + ttl * _MARGIN
        while nodes and self._clock() < deadline:
            found = [node for node in nodes if self._leases.snapshot(node).version != before[node]]
            if renewed := [node for node in found if node in self._leases]:
                return renewed
            time.sleep(_PAUSE_S)
        return []

    def lapsed(self, node: str, ttl: float) -> bool:
        """Tell whether a node's lease has stood still for its whole time; `ttl` counts where there is none."""
        snapshot = self._leases.snapshot(node)
        now = self._clock()
        version, since = self._seen.get(node, (-1, now))
        if snapshot.version != version:
            version, since = snapshot.version, now
        self._seen[node] = (version, since)
        return now - since > (ttl if snapshot.value is None else snapshot.value.ttl) * _MARGIN


class Membership:
    """One node's membership. `keep_up` is to be called a few times a second, by one thread."""

    def __init__(
        self, connection: Connection, job: str, node: str, n_shards: int, *, ttl: float, fingerprint: str
    ) -> None:
        self.job, self.node, self.ttl = job, node, ttl
        self.coordinator = Coordinator(connection, job, node, n_shards, idempotent=True)
        self._fingerprint = fingerprint
        self._lease = Lease(connection, f"fleet/{job}/{node}", ttl=timedelta(seconds=ttl))
        self._watch = Watch(connection, job)
        self._program = connection.writer(
            f"{job}/program", Program, namespace=NAMESPACE, type_name="tidewheel.FleetProgram"
        )
        self._drains = drains(connection, job)

    def enter(self) -> None:
        """Take the node's lease. `HeldError`: a living node has the name. `ProgramDiffers`: the fleet runs another program."""
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
        """See that all living nodes run one program; the first of them says which."""
        mine = Program(self._fingerprint, self.node)
        while True:
            standing = self._program.refresh()
            if standing.value is not None and standing.value.fingerprint == mine.fingerprint:
                return
            others = [node for node in self.assignment().members if node != self.node]
            living = self._watch.living(others, self.ttl) if standing.value is not None else []
            if standing.value is not None and living:
                raise ProgramDiffers(
                    f"the fleet of {self.job!r} runs another program: its graph has the fingerprint "
                    f"{standing.value.fingerprint}, as node {standing.value.node} has it, this one's has {mine.fingerprint}. "
                    f"Run the same program on every node; to change it, drain {', '.join(sorted(living))} first"
                )
            if self._program.compare_exchange_at(standing.version, mine).applied:
                return


def drains(connection: Connection, job: str) -> CellMapWriter[float]:
    """Return the nodes that were asked to leave."""
    return connection.map_writer(f"{job}/drain", float, namespace=NAMESPACE, type_name="tidewheel.Drain")
