"""The state of a whole fleet as one manifest, for readers."""

from __future__ import annotations

from tidewheel._checkpoint.fleet_ledger import ORIGIN
from tidewheel._checkpoint.manifest import CheckpointId, Manifest
from tidewheel._checkpoint.store import StreamCheckpoints
from tidewheel._storage import Store
from tidewheel.fleet._nodes import handover
from tidewheel.fleet._nodes.chains import Chains


def whole(store: Store, job: str) -> Manifest:
    """Return a manifest of all shards, each as its holder's newest commit left it. It is in no chain.

    Shards are as of different times, because nodes commit independently; each is the result of one commit.
    """
    chains = Chains(store, job)
    ledgers = chains.ledgers()
    held = {shard: whose.holding for shard, whose in handover.custody(ledgers).items()}
    heads = list(chains.heads.values())
    first = chains.heads[ORIGIN]
    return first.replace(
        id=CheckpointId(first.id.stream_id, max(head.sequence for head in heads)),
        event_count=sum(head.event_count for head in heads),
        operators={name: info for head in heads for name, info in head.operators.items()},
        shards={shard: holding.parts for shard, holding in held.items() if holding.parts.files()},
    )


def holding(store: Store, job: str) -> list[StreamCheckpoints]:
    """Return the chains of the runs that hold shards, and of the origin."""
    chains = Chains(store, job)
    runs = {whose.run for whose in handover.custody(chains.ledgers()).values()}
    return [chains.of(run) for run in sorted(runs | {ORIGIN})]
