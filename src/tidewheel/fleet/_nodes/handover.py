"""Move shards between runs of nodes: which record goes into which chain, and what an adopter may do.

These are pure functions. Every run of a node has its own chain, and each record of it has a *ledger*: the shards that
the run holds, with their references and inbox positions, and those that were taken from it. Each move of a shard raises
its *term* by one. One record in the chain of the run that had term t-1 decides term t, and a chain has only one record
of each number: so a shard has one holder, whatever anybody believes about assignments, leases and clocks.

1. Revoke. The taker appends to the holder's chain a ledger without the shard, which names the taker and the next term.
   The holder's own next commit finds its number taken, and its run ends.
2. Publish. The taker publishes the output that the holder had committed but may not have published, under the number of
   its commit. Once a number of a run is published, a sink skips that number and smaller ones: so a holder that was
   paused and resumes overwrites nothing. (This needs a sink that publishes a commit atomically.)
3. Adopt. The taker appends to its own chain a ledger with the shard, at the term that the revoking record gave it. No
   state is copied: the references are the holder's.

If a taker dies between 1 and 3, it is skipped: the next taker appends to the dead taker's chain that the shard was
taken from it too, though it never adopted it. A ledger remembers the highest term of every shard that ever belonged to
its run, so that neither the first taker, if it resumes, nor a node with an outdated view goes back to an old term.

An ended run, from which everything was taken, is finally *removed* with its chain. A delayed request of that run may
take effect later: then a holder's record names a taker that no longer exists. That taker can never adopt the shard and
was never skipped, or the shard would have a higher term by now. So the next taker takes the shard from that holder
again, at the next term. This requires reading all ledgers after the taker was known to be gone: an earlier read may
have missed who got the shard from the taker before it was removed.

A holder commits only when the output of its last commit is published. Takers do not wait for that: their records carry
the output.

Shards that no run ever held belong to the *origin*, a chain that belongs to no run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import msgspec

from tidewheel._checkpoint.fleet_ledger import ORIGIN
from tidewheel._state.references import ShardParts
from tidewheel.fleet._nodes.errors import HandoverRefused


class Holding(msgspec.Struct, frozen=True, array_like=True):
    """A shard as its holder's newest commit left it: its term, its inbox position, and its state."""

    term: int
    position: int = 0
    parts: ShardParts = ShardParts()


class Revoked(msgspec.Struct, frozen=True, array_like=True):
    """A shard that was taken from a run: the taker, and the state that it may adopt."""

    to: str
    holding: Holding


class Ledger(msgspec.Struct, frozen=True):
    """The content of a run's record about shards. Treat the mappings as frozen too."""

    run: str
    number: int = 0
    """The number of its record in the run's chain; 0 before the first."""
    held: dict[int, Holding] = {}
    revoked: dict[int, Revoked] = {}
    """The shards that were taken and, as far as this run knows, not yet adopted."""
    terms: dict[int, int] = {}
    """The highest term of each shard that ever belonged to this run, held or not."""
    staged: int = 0
    """The number of the commit whose output this record carries; 0 if none."""


class Custody(msgspec.Struct, frozen=True):
    """The owner of a shard: `run` holds it, or has yet to adopt it from `source`."""

    run: str
    holding: Holding
    source: str | None = None


class Append(msgspec.Struct, frozen=True):
    """Create the record of this ledger in its run's chain, if its number is free. If not, read again."""

    ledger: Ledger


class Publish(msgspec.Struct, frozen=True):
    """Publish the output of a run's commit, unless that commit or a later one is published."""

    run: str
    number: int


Step = Append | Publish


def origin(n_shards: int) -> Ledger:
    """Return the first ledger of the origin: every shard at term 0, and empty."""
    return Ledger(ORIGIN, 1, {shard: Holding(0) for shard in range(n_shards)})


def revoke(ledger: Ledger, shards: Iterable[int], to: str) -> Ledger:
    """Return the ledger that a taker appends to the holder's chain."""
    taken = {}
    for shard in shards:
        if shard not in ledger.held:
            raise HandoverRefused(f"shard {shard} cannot be taken from run {ledger.run}: it does not hold it")
        holding = ledger.held[shard]
        taken[shard] = Revoked(to, msgspec.structs.replace(holding, term=holding.term + 1))
    held = {shard: holding for shard, holding in ledger.held.items() if shard not in taken}
    terms = {**ledger.terms, **{shard: ledger.held[shard].term for shard in taken}}
    return _next(ledger, held=held, revoked={**ledger.revoked, **taken}, terms=terms)


def pass_over(ledger: Ledger, pending: Mapping[int, Holding], to: str) -> Ledger:
    """Return the ledger that takes from a run the shards that it was given but has not adopted."""
    taken, terms = {}, {}
    for shard, holding in pending.items():
        _check_open(ledger, shard, holding)
        taken[shard] = Revoked(to, msgspec.structs.replace(holding, term=holding.term + 1))
        terms[shard] = holding.term
    return _next(ledger, revoked={**ledger.revoked, **taken}, terms={**ledger.terms, **terms})


def reclaim(ledger: Ledger, shards: Iterable[int], to: str) -> Ledger:
    """Return the ledger that takes shards from a run again that it had given to a removed run."""
    taken = {}
    for shard in shards:
        holding = ledger.revoked[shard].holding
        taken[shard] = Revoked(to, msgspec.structs.replace(holding, term=holding.term + 1))
    return _next(ledger, revoked={**ledger.revoked, **taken})


def adopt(ledger: Ledger, pending: Mapping[int, Holding]) -> Ledger:
    """Return the taker's own ledger with the shards that were revoked in its favour."""
    for shard, holding in pending.items():
        _check_open(ledger, shard, holding)
    terms = {shard: holding.term for shard, holding in pending.items()}
    revoked = {shard: taken for shard, taken in ledger.revoked.items() if shard not in pending}
    return _next(ledger, held={**ledger.held, **pending}, revoked=revoked, terms={**ledger.terms, **terms})


def custody(ledgers: Mapping[str, Ledger]) -> dict[int, Custody]:
    """Return the owner of each shard. The ledgers can be from different times: the highest term counts."""
    found: dict[int, Custody] = {}
    for ledger in ledgers.values():
        for shard, taken in ledger.revoked.items():
            if shard not in found or taken.holding.term > found[shard].holding.term:
                found[shard] = Custody(taken.to, taken.holding, ledger.run)
    for ledger in ledgers.values():
        for shard, holding in ledger.held.items():
            if shard not in found or holding.term >= found[shard].holding.term:
                found[shard] = Custody(ledger.run, holding)
    return found


def next_step(
    me: str,
    wanted: Iterable[int],
    ledgers: Mapping[str, Ledger],
    published: Mapping[str, int],
    gone: Collection[str] = (),
) -> Step | None:
    """Return a run's next step towards the shards it wants; None if its information allows no step.

    `ledgers` are the newest that it has read, including its own; `published` has, by run, the last commit whose output
    it has published; `gone` are runs that were known to be removed before the first of these ledgers was read. After
    each step, and after None, the run must read all ledgers again, including its own, because an append without an
    answer may take effect later.
    """
    known = custody(ledgers)
    missing = [shard for shard in sorted(set(wanted)) if shard in known and shard not in ledgers[me].held]
    mine: dict[int, Holding] = {}
    passed: dict[str, dict[int, Holding]] = {}
    reclaimed: dict[str, list[int]] = {}
    revoked: dict[str, list[int]] = {}
    for shard in missing:
        whose = known[shard]
        if whose.source is None:
            revoked.setdefault(whose.run, []).append(shard)
            continue
        if whose.run in gone:
            reclaimed.setdefault(whose.source, []).append(shard)
            continue
        if whose.run not in ledgers or not _is_open(ledgers[whose.run], shard, whose.holding):
            continue  # The taker is unknown here, or the information about the holder is older than that about the taker.
        source = ledgers[whose.source]
        if published.get(source.run, 0) < source.staged:
            return Publish(source.run, source.staged)
        (mine if whose.run == me else passed.setdefault(whose.run, {}))[shard] = whose.holding
    if mine:
        return Append(adopt(ledgers[me], mine))
    for run, pending in passed.items():
        return Append(pass_over(ledgers[run], pending, me))
    for run, shards in reclaimed.items():
        return Append(reclaim(ledgers[run], shards, me))
    for run, shards in revoked.items():
        return Append(revoke(ledgers[run], shards, me))
    return None


def _is_open(ledger: Ledger, shard: int, holding: Holding) -> bool:
    return ledger.terms.get(shard, -1) < holding.term


def _check_open(ledger: Ledger, shard: int, holding: Holding) -> None:
    if not _is_open(ledger, shard, holding):
        raise HandoverRefused(
            f"term {holding.term} of shard {shard} is over for run {ledger.run}, which has seen term {ledger.terms[shard]}; "
            "look again"
        )


def _next(ledger: Ledger, **changes: Any) -> Ledger:
    return msgspec.structs.replace(ledger, number=ledger.number + 1, **changes)
