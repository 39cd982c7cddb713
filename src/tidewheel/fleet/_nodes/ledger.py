"""The hand-over ledger of a node's run, stored in the manifests of its chain.

A run's manifests are those of any job. The hand-over adds terms and revoked shards in the field `fleet`, which batches
copy unchanged; the state of a shard and its inbox position are in the manifest anyway.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from tidewheel._checkpoint.fleet_ledger import ORIGIN, FleetLedger, HeldShard, RevokedShard, run_of
from tidewheel._checkpoint.manifest import CheckpointId, Manifest, OperatorInfo, Position
from tidewheel._checkpoint.tools.fork import shared_parts
from tidewheel._checkpoint.unpublished import carried, outputs_of
from tidewheel._state.references import ShardParts
from tidewheel._time.frontier import Frontier
from tidewheel._time.shard_epochs import earliest, epoch_of, latest, shards_behind
from tidewheel.errors import CorruptError, StateError
from tidewheel.fleet._inbox.base import Inbox
from tidewheel.fleet._inbox.offsets import check_identity, identity_of, positions_of
from tidewheel.fleet._nodes.handover import Holding, Ledger, Revoked, origin

SEQUENCES = 1 << 32
"""The number of sequences per run: those of run 7 begin at seven times this, so that labels ascend from run to run."""


def stream_of(job: str, run: str) -> str:
    """Return the stream of a run's chain. It cannot be a job's, because job names have no slash.

    >>> stream_of("orders", "7"), stream_of("orders", ORIGIN)
    ('orders/7', 'orders')
    """
    return job if run == ORIGIN else f"{job}/{run}"


def check_fleet(state: Manifest, n_shards: int) -> None:
    """Raise for a job that ran alone, or that has another number of shards."""
    job = state.id.stream_id
    if state.fleet is None:
        raise StateError(
            f"job {job!r} has the state of a run of its own, up to sequence {state.sequence}; a fleet begins with none: give the "
            "job another name or state URL"
        )
    if state.n_shards != n_shards:
        raise StateError(
            f"the fleet of {job!r} has {state.n_shards} shards, this node's program has n_shards={n_shards}: the number is fixed "
            f"for the life of a job's state; set n_shards={state.n_shards}"
        )


def first_state(job: str, n_shards: int, lineage: str, token: str) -> Manifest:
    """Return the first manifest of the origin, which holds all shards, empty."""
    return Manifest(
        CheckpointId(job, 1),
        kind="handover",
        run=token,
        n_shards=n_shards,
        lineage=lineage,
        fleet=_stored(origin(n_shards)),
    )


def begun_state(job: str, number: int, token: str, first: Manifest, closed_by: str | None = None) -> Manifest:
    """Return the first manifest of a run, without shards; `first` is any of the origin's manifests."""
    run = str(number)
    return Manifest(
        CheckpointId(stream_of(job, run), number * SEQUENCES),
        kind="handover",
        run=token,
        n_shards=first.n_shards,
        lineage=first.lineage,
        fleet=_stored(Ledger(run), closed_by),
    )


def ledger_of(state: Manifest) -> Ledger:
    """Return the ledger in a manifest, with the file names that all runs use."""
    stream = state.id.stream_id
    stored = state.fleet
    if stored is None:
        raise CorruptError(f"checkpoint {state.sequence} of {stream!r} has no ledger of a fleet")
    counted = _positions(state.source_offsets)
    held = {
        shard: Holding(
            known.term,
            max(known.position, counted.get(shard, 0)),
            shared_parts(stream, state.shards.get(shard, ShardParts())),
        )
        for shard, known in stored.held.items()
    }
    staged = outputs_of(state) if state.outputs else 0
    revoked = {
        shard: Revoked(taken.to, Holding(taken.term, taken.position, taken.parts))
        for shard, taken in stored.revoked.items()
    }
    return Ledger(run_of(stream), state.sequence, held, revoked, stored.terms, staged)


def state_of(head: Manifest, ledger: Ledger, token: str, sources: Iterable[Manifest] = ()) -> Manifest:
    """Return the manifest that appends a ledger to its chain, for the run with that token.

    It carries output that may not be published. `sources` are the manifests from which shards are gained: neither time
    nor the descriptions of steps go back. A shard whose holder's clock was behind is marked.
    """
    sources = tuple(sources)
    known = (head, *sources)
    shards = {
        shard: head.shards.get(shard, holding.parts)
        for shard, holding in ledger.held.items()
        if holding.parts != ShardParts()
    }
    operators = next((state.operators for state in known if state.operators), {})
    delivered = latest(state.delivered_epoch for state in known)
    return head.replace(
        id=CheckpointId(head.id.stream_id, ledger.number),
        kind="handover",
        run=token,
        shards=shards,
        fleet=_stored(ledger, head.fleet.closed_by if head.fleet is not None else None),
        operators=operators,
        former_operators={
            shard: infos for shard, infos in _operators(head, ledger, sources).items() if infos != operators
        },
        key_kinds={name: kind for state in known for name, kind in state.key_kinds.items()},
        frontiers=_latest(state.frontiers for state in known),
        epoch=latest(state.epoch for state in known),
        delivered_epoch=delivered,
        behind=shards_behind(_epochs(head, ledger, sources), delivered),
        now=max(state.now for state in known),
        parent=head.sequence,
        **carried(head),
    )


def closed(head: Manifest, token: str) -> Manifest:
    """Return the manifest that closes a chain: its run adopts no more shards."""
    ledger = ledger_of(head)
    state = state_of(head, msgspec.structs.replace(ledger, number=ledger.number + 1), token)
    return state.replace(fleet=_stored(ledger, token))


def is_closed(head: Manifest) -> bool:
    """Return whether a chain is closed."""
    return head.fleet is not None and head.fleet.closed_by is not None


def last_of(head: Manifest, token: str) -> Manifest:
    """Return the last manifest of a chain that will be removed: nobody appends to it."""
    ledger = ledger_of(head)
    state = state_of(head, msgspec.structs.replace(ledger, number=ledger.number + 1), token)
    return state.replace(fleet=_stored(ledger, token, is_last=True))


def is_last(head: Manifest) -> bool:
    """Return whether a chain is about to be removed."""
    return head.fleet is not None and head.fleet.is_last


def _stored(ledger: Ledger, closed_by: str | None = None, is_last: bool = False) -> FleetLedger:
    """Return the part of a ledger that a manifest does not already contain."""
    held = {shard: HeldShard(holding.term, holding.position) for shard, holding in ledger.held.items()}
    revoked = {
        shard: RevokedShard(taken.to, taken.holding.term, taken.holding.position, taken.holding.parts)
        for shard, taken in ledger.revoked.items()
    }
    return FleetLedger(held, revoked, ledger.terms, closed_by, is_last)


def _epochs(head: Manifest, ledger: Ledger, sources: Iterable[Manifest]) -> dict[int, int | None]:
    """Return the last epoch that each shard with state received, also for released shards, for their takers."""
    shards = {shard: epoch_of(shard, head.delivered_epoch, head.behind) for shard in (*head.shards, *head.behind)}
    for source in sources:
        for shard in _adopted(head, ledger, source):
            shards[shard] = epoch_of(shard, source.delivered_epoch, source.behind)
    return shards


def _operators(head: Manifest, ledger: Ledger, sources: Iterable[Manifest]) -> dict[int, dict[str, OperatorInfo]]:
    """Return the steps that the previous holder's program had in each shard, also for released shards, for their takers."""
    shards = {
        shard: head.former_operators.get(shard, head.operators) for shard in (*head.shards, *head.former_operators)
    }
    for source in sources:
        for shard in _adopted(head, ledger, source):
            shards[shard] = source.former_operators.get(shard, source.operators)
    return shards


def gained(head: Manifest, ledger: Ledger) -> set[int]:
    """Return the shards in a ledger that are not in the newest record of its chain.

    These are the shards that it adopts, and those taken from a run which never adopted them: their next adopter must
    find their data there.
    """
    before = ledger_of(head)
    passed = ledger.revoked.keys() - before.revoked.keys() - before.held.keys()
    return (ledger.held.keys() - before.held.keys()) | passed


def _adopted(head: Manifest, ledger: Ledger, source: Manifest) -> list[int]:
    """Return the shards with state that a ledger gains from a source."""
    new = gained(head, ledger)
    return [
        shard
        for shard, taken in ledger_of(source).revoked.items()
        if shard in new and shard not in head.shards and taken.holding.parts != ShardParts()
    ]


def check_inbox(state: Manifest, inbox: Inbox) -> None:
    """Raise if an inbox is not the one that a run has read."""
    for position in state.source_offsets.values():
        check_identity(identity_of(position), inbox)


def _positions(offsets: Mapping[str, Position]) -> dict[int, int]:
    """Return the positions by shard in the offsets of the only source of a job in a fleet."""
    found: dict[int, int] = {}
    for position in offsets.values():
        found.update(positions_of(position))
    return found


def _latest(many: Iterable[Mapping[str, Frontier]]) -> dict[str, Frontier]:
    merged: dict[str, Frontier] = {}
    for frontiers in many:
        for name, one in frontiers.items():
            other = merged.get(name, one)
            merged[name] = Frontier(latest((one.time, other.time)), earliest((one.silent, other.silent)))
    return merged
