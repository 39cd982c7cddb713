"""A node dies between revoking and adopting shards: what its successor knows of them."""

from __future__ import annotations

from support.internals import FileRef, PartRef, ShardParts, open_store
from tidewheel._checkpoint.manifest import OperatorInfo
from tidewheel.checkpoints import CheckpointId
from tidewheel.fleet._nodes import handover
from tidewheel.fleet._nodes.chains import Chains, take

SHARDS = frozenset(range(4))
OLD = {"sum": OperatorInfo("stateful_map", "msgpack", 1)}


def nothing(state) -> None:
    """Publish and check nothing."""


def test_a_shard_that_a_dead_taker_never_adopted_keeps_program_and_epoch():
    chains = Chains(open_store("memory:unit-passed-over"), "job")
    holder = chains.begin("holder", 4)
    take(chains, holder, lambda: SHARDS, nothing, nothing)
    chain = chains.of(holder.name)
    head = chain.latest()
    part = PartRef(FileRef("state/a.delta", 1, 0), head.sequence + 1, 1, 1)
    chain.commit(
        head.replace(
            id=CheckpointId(chain.stream_id, head.sequence + 1),
            kind="batch",
            operators=OLD,
            shards={0: ShardParts(None, (part,))},
            delivered_epoch=50,
            epoch=50,
            parent=head.sequence,
        )
    )
    dead = chains.begin("dead", 4)
    step = handover.next_step(dead.name, SHARDS, chains.ledgers(), {})
    assert chains.append(step.ledger, dead.token)
    taker = chains.begin("taker", 4)
    take(chains, taker, lambda: SHARDS, nothing, nothing)
    adopted = chains.of(taker.name).latest()
    assert adopted.shards.keys() == {0}
    assert adopted.operators == OLD
    assert adopted.former_operators == {}
    assert adopted.delivered_epoch == 50
    assert adopted.behind == {}
