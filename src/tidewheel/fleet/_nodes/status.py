"""The status of a fleet: its nodes, its shards, their holders, and their lag."""

from __future__ import annotations

import time
from collections.abc import Mapping

import msgspec

from tidewheel._cells.connection import Connection
from tidewheel._checkpoint.fleet_ledger import ORIGIN
from tidewheel.fleet._inbox import Inbox, lag
from tidewheel.fleet._nodes import handover
from tidewheel.fleet._nodes.assignment import Assignment
from tidewheel.fleet._nodes.chains import Chains
from tidewheel.fleet._nodes.coordinator import NAMESPACE
from tidewheel.fleet._nodes.errors import UnknownFleet
from tidewheel.fleet._nodes.membership import Watch, drains
from tidewheel.fleet._nodes.runs import Run


class NodeStatus(msgspec.Struct, frozen=True):
    """One node."""

    name: str
    member: bool
    draining: bool
    renewed: float | None
    """Seconds since it last renewed its lease, by its own clock; None if it has none."""
    run: int | None
    """The newest of its runs that holds shards."""
    shards: int
    assigned: int
    events: int
    """How many events its runs have processed."""
    committed: float | None
    """Seconds since its newest commit."""


class ShardStatus(msgspec.Struct, frozen=True):
    """One shard."""

    shard: int
    owner: str | None
    """The node that the shard is assigned to."""
    holder: str | None
    """The node whose run holds the shard; None if no run ever did."""
    run: int | None
    term: int
    position: int
    lag: int
    moving: bool
    """Whether the shard is moving to its owner."""


class FleetStatus(msgspec.Struct, frozen=True):
    """A fleet, at about one moment."""

    job: str
    n_shards: int
    epoch: int
    nodes: list[NodeStatus]
    shards: list[ShardStatus]
    lag_is_complete: bool = True
    """Whether all waiting events were counted: of a long backlog only the beginning is."""

    @property
    def moves(self) -> int:
        """How many shards are moving."""
        return sum(shard.moving for shard in self.shards)

    @property
    def lag(self) -> int:
        """How many events are not processed yet."""
        return sum(shard.lag for shard in self.shards)


class Observer:
    """Reads the status of a fleet repeatedly, without changes. Raises `UnknownFleet` if there is no fleet of that job."""

    def __init__(self, connection: Connection, chains: Chains, inbox: Inbox) -> None:
        self._chains, self._inbox = chains, inbox
        self._watch = Watch(connection, chains.job)
        self._drains = drains(connection, chains.job)
        self._assignment = connection.reader(
            f"{chains.job}/assignment", Assignment, namespace=NAMESPACE, type_name="tidewheel.Assignment"
        )
        if self._assignment.read() is None or chains.of(ORIGIN).latest() is None:
            raise UnknownFleet(
                f"there is no fleet of job {chains.job!r} with cells at {connection.url} and state at {chains.store.url}; check "
                "the job's name and both URLs, or start its first node with `tidewheel node`"
            )

    def look(self) -> FleetStatus:
        """Return the current status."""
        assignment = self._assignment.read()
        assert assignment is not None
        chains = self._chains
        custody = handover.custody(chains.ledgers())
        runs = chains.entries()
        behind, complete = lag(
            self._inbox, self._positions({shard: held.holding.position for shard, held in custody.items()})
        )
        shards = []
        for shard, whose in sorted(custody.items()):
            run = runs.get(whose.run)
            owner, holder = assignment.owner_of(shard), None if run is None else run.node
            moving = owner is not None and (owner != holder or whose.source is not None)
            shards.append(
                ShardStatus(
                    shard,
                    owner,
                    holder,
                    None if run is None else run.number,
                    whose.holding.term,
                    whose.holding.position,
                    behind[shard],
                    moving,
                )
            )
        names = {*assignment.members, *(shard.holder for shard in shards if shard.holder is not None)}
        nodes = [self._node(name, assignment, shards, runs) for name in sorted(names)]
        return FleetStatus(chains.job, assignment.n_shards, assignment.epoch, nodes, shards, complete)

    def _node(
        self, name: str, assignment: Assignment, shards: list[ShardStatus], runs: Mapping[str, Run | None]
    ) -> NodeStatus:
        tenure = self._watch.tenure(name)
        held = [shard for shard in shards if shard.holder == name]
        own = [(self._chains.heads[run], info) for run, info in runs.items() if info is not None and info.node == name]
        # The newest record of a run may be from another run that took a shard.
        commits = [head.id.created_at for head, info in own if head.run == info.token]
        return NodeStatus(
            name,
            name in assignment.members,
            name in self._drains,
            None if tenure is None else max(0.0, time.time() - tenure.renewed_at),
            max((shard.run for shard in held if shard.run is not None), default=None),
            len(held),
            len(assignment.shards_of(name)),
            sum(head.event_count for head, _ in own),
            None if not commits else max(0.0, time.time() - max(commits) / 1e9),
        )

    def _positions(self, counted: dict[int, int]) -> dict[int, int]:
        """Return the start of counting: a shard that was never read starts with the oldest event."""
        oldest = self._inbox.start()
        return {shard: position or oldest[shard] for shard, position in counted.items()}
