"""Assign shards to nodes, and plan the changes when nodes come and go. Equal inputs give equal plans.

The numbers of shards are balanced to within one (by weight, if nodes have weights), with as few moves as possible.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from fractions import Fraction
from math import floor, isfinite

import msgspec

from tidewheel._core.keys import check_n_shards
from tidewheel.errors import ConfigError
from tidewheel.fleet._nodes.errors import AlreadyMember, AssignmentRefused, UnknownNode

_MAX_NAME = 100


class Assignment(msgspec.Struct, frozen=True):
    """The owner of each shard at an epoch. Without members no shard has an owner.

    >>> add_node(Assignment(4), "a").assignment.owners
    ('a', 'a', 'a', 'a')
    """

    n_shards: int
    epoch: int = 0
    """A number that grows by one with each change; 0 before the first."""
    members: dict[str, float] = {}
    """The nodes and their weights."""
    owners: tuple[str, ...] = ()

    def owner_of(self, shard: int) -> str | None:
        """Return the node that owns a shard; None while there are no members."""
        return self.owners[shard] if self.owners else None

    def shards_of(self, node: str) -> tuple[int, ...]:
        """Return the shards of a node, in ascending order."""
        return tuple(shard for shard, owner in enumerate(self.owners) if owner == node)


class Move(msgspec.Struct, frozen=True):
    """A shard that changes its owner; None means no owner."""

    shard: int
    source: str | None
    target: str | None


class Rebalance(msgspec.Struct, frozen=True):
    """A new assignment and the necessary moves, by shard."""

    assignment: Assignment
    moves: tuple[Move, ...] = ()


def add_node(assignment: Assignment, node: str, weight: float = 1.0) -> Rebalance:
    """Plan an additional node; raise `AlreadyMember` if it is a member."""
    check_node(node, weight)
    if node in assignment.members:
        raise AlreadyMember(
            f"node {node!r} is a member already, since epoch {assignment.epoch} or before; give each node a name of its own"
        )
    return rebalance(assignment, {**assignment.members, node: weight})


def remove_node(assignment: Assignment, node: str) -> Rebalance:
    """Plan the removal of a node; raise `UnknownNode` if it is not a member. Only its own shards move."""
    if node not in assignment.members:
        known = ", ".join(sorted(assignment.members)) or "none"
        raise UnknownNode(f"node {node!r} is not a member at epoch {assignment.epoch}; members are: {known}")
    return rebalance(assignment, {name: weight for name, weight in assignment.members.items() if name != node})


def rebalance(assignment: Assignment, members: Mapping[str, float]) -> Rebalance:
    """Plan a balanced assignment for these members, at the next epoch, with as few moves as possible."""
    kept: dict[str, list[int]] = {name: [] for name in sorted(members)}
    homeless = []
    for shard in range(assignment.n_shards):
        owner = assignment.owner_of(shard)
        kept[owner].append(shard) if owner in kept else homeless.append(shard)
    quotas = shares(assignment.n_shards, members, {name: len(shards) for name, shards in kept.items()})
    for name, shards in kept.items():
        homeless += shards[quotas[name] :]
        del shards[quotas[name] :]
    homeless.sort(reverse=True)
    for name, shards in kept.items():
        while len(shards) < quotas[name]:
            shards.append(homeless.pop())
    owner_of = {shard: name for name, shards in kept.items() for shard in shards}
    owners = tuple(owner_of[shard] for shard in range(assignment.n_shards)) if members else ()
    after = Assignment(assignment.n_shards, assignment.epoch + 1, dict(sorted(members.items())), owners)
    return Rebalance(after, moves(assignment, after))


def moves(before: Assignment, after: Assignment) -> tuple[Move, ...]:
    """Return the shards whose owner differs, in ascending order."""
    pairs = ((shard, before.owner_of(shard), after.owner_of(shard)) for shard in range(after.n_shards))
    return tuple(Move(shard, source, target) for shard, source, target in pairs if source != target)


def shares(n_shards: int, members: Mapping[str, float], held: Mapping[str, int]) -> dict[str, int]:
    """Return how many shards each node gets: its ideal share rounded down or up.

    Shares are rounded up first for nodes that already hold more than their rounded-down share, which saves a move; then
    for those with the larger fraction, then by name.
    """
    total = sum((Fraction(weight) for weight in members.values()), Fraction())
    ideal = {name: n_shards * Fraction(weight) / total for name, weight in members.items()}
    quotas = {name: floor(share) for name, share in ideal.items()}
    spare = n_shards - sum(quotas.values()) if members else 0
    fractional = (name for name in members if ideal[name] > quotas[name])
    by_merit = sorted(
        fractional, key=lambda name: (held.get(name, 0) <= quotas[name], quotas[name] - ideal[name], name)
    )
    for name in by_merit[:spare]:
        quotas[name] += 1
    return quotas


def check_installable(standing: Assignment, new: Assignment) -> None:
    """Raise, with the reason, if an assignment must not replace the current one."""
    check_n_shards(new.n_shards)
    if new.n_shards != standing.n_shards:
        raise AssignmentRefused(
            f"an assignment for {new.n_shards} shards cannot be installed: the fleet has {standing.n_shards}, and that "
            "number is fixed for the life of its state"
        )
    if new.epoch <= standing.epoch:
        raise AssignmentRefused(
            f"the assignment of epoch {new.epoch} cannot be installed: epoch {standing.epoch} stands; plan again from that one"
        )
    for node, weight in new.members.items():
        check_node(node, weight)
    counts = Counter(new.owners)
    if len(new.owners) != (new.n_shards if new.members else 0):
        raise AssignmentRefused(
            f"the assignment of epoch {new.epoch} names owners for {len(new.owners)} of {new.n_shards} shards; "
            "with members every shard has one, without none has"
        )
    if strangers := sorted(set(counts) - set(new.members)):
        raise AssignmentRefused(
            f"the assignment of epoch {new.epoch} gives shards to {', '.join(strangers)}, which its members do not include"
        )


def check_node(node: str, weight: float = 1.0) -> None:
    """Raise if a name cannot be part of a path, or a weight is invalid."""
    if not node or len(node) > _MAX_NAME or not all(c.isalnum() or c in "-_." for c in node) or not node[0].isalnum():
        raise ConfigError(
            f"{node!r} cannot name a node: use 1 to {_MAX_NAME} letters, digits and - _ . and begin with a letter or digit"
        )
    if not (isfinite(weight) and weight > 0):
        raise ConfigError(f"the weight of node {node!r} must be a number above 0, not {weight}")
