"""The ledger in a manifest: hand-over decisions follow from the chains."""

from __future__ import annotations

import pytest

from support.internals import FileRef, PartRef, ShardParts
from support.memory_inbox import MemoryInbox
from tidewheel._checkpoint.encoding import decode, encode
from tidewheel._checkpoint.manifest import StagedOutput
from tidewheel._checkpoint.names import state_file
from tidewheel._checkpoint.unpublished import outputs_of
from tidewheel._engine.claim import check_alone
from tidewheel._state.missing_parts import Applied, Missing, missing_parts
from tidewheel._state.references import Stretch
from tidewheel._time.frontier import Frontier
from tidewheel.checkpoints import CheckpointId, Manifest
from tidewheel.errors import CorruptError, StateError
from tidewheel.fleet import InboxError
from tidewheel.fleet._nodes import handover
from tidewheel.fleet._nodes.handover import Holding
from tidewheel.fleet._nodes.ledger import (
    SEQUENCES,
    begun_state,
    check_fleet,
    check_inbox,
    first_state,
    ledger_of,
    state_of,
)

FIRST = first_state("orders", 4, "line", "t0")


def parts(name: str, sequence: int) -> ShardParts:
    return ShardParts(None, (PartRef(FileRef(name, 10, 1), sequence, 10, 1),))


def held(number: int = 1) -> Manifest:
    """A run that has adopted all shards from the origin."""
    begun = begun_state("orders", number, f"t{number}", FIRST)
    given = handover.revoke(ledger_of(FIRST), range(4), str(number))
    adopted = handover.adopt(ledger_of(begun), {shard: taken.holding for shard, taken in given.revoked.items()})
    return state_of(begun, adopted, f"t{number}", [FIRST])


def batch(state: Manifest) -> Manifest:
    """What a batch of a run commits: it knows nothing of ledgers."""
    sequence = state.sequence + 1
    return state.replace(
        id=CheckpointId(state.id.stream_id, sequence),
        kind="batch",
        shards={**state.shards, 2: parts("state/x.delta", sequence)},
        source_offsets={"in": '{"0": 7, "2": 9}'},
        outputs=(StagedOutput("out", 1, (b"token",)),),
        outputs_of=None,
    )


def test_a_batch_reports_positions_and_parts_without_the_ledger():
    ledger = ledger_of(batch(held()))
    assert ledger.run == "1"
    assert ledger.held[0] == Holding(1, 7)
    assert ledger.held[2].position == 9
    assert ledger.held[2].parts.deltas[0].file.name == "/orders=2F1/state/x.delta", "as all runs know it"
    assert ledger.held[1] == Holding(1, 0), "a shard that no batch has read is where it was adopted"
    assert ledger.staged == ledger.number == SEQUENCES + 2


def test_a_local_copy_inside_a_merged_run_is_usable_after_a_move():
    was = PartRef(FileRef(state_file(5, "r", 0, 0, "delta"), 10, 5), 5, 10, 1)
    merged = PartRef(FileRef("state/8.run", 10, 8), 8, 10, 1, first=3, made=(Stretch(3, 8, "r"),))
    moved = ledger_of(held().replace(shards={2: ShardParts(None, (merged,))})).held[2].parts
    assert missing_parts(moved, 8, Applied.of(was)) == Missing(moved.deltas)


def test_a_takers_record_keeps_the_holders_output_and_shards():
    newest = batch(held())
    revoked = state_of(newest, handover.revoke(ledger_of(newest), [2], "5"), "t5")
    assert revoked.kind == "handover"
    assert revoked.run == "t5"
    assert outputs_of(revoked) == newest.sequence
    assert revoked.outputs == newest.outputs
    ledger = ledger_of(revoked)
    assert set(ledger.held) == {0, 1, 3}
    assert ledger.held[0].position == 7
    assert ledger.revoked[2].to == "5"
    assert ledger.revoked[2].holding.parts.deltas[0].file.name == "/orders=2F1/state/x.delta"
    assert 2 not in revoked.shards


def test_a_taker_continues_the_holders_time_and_never_goes_back():
    source = batch(held()).replace(epoch=50, frontiers={"in": Frontier(50, 2)}, now=9)
    begun = begun_state("orders", 2, "t2", FIRST)
    given = handover.revoke(ledger_of(source), [2], "2")
    adopted = handover.adopt(ledger_of(begun), {2: given.revoked[2].holding})
    state = state_of(begun, adopted, "t2", [source])
    assert (state.epoch, state.frontiers["in"], state.now) == (50, Frontier(50, 2), 9)
    assert state.outputs == ()
    assert state.lineage == source.lineage


def test_labels_of_a_later_run_are_above_all_of_an_earlier_one():
    assert begun_state("orders", 2, "t", FIRST).sequence > held(1).sequence
    assert begun_state("orders", 2, "t", FIRST).sequence - begun_state("orders", 1, "t", FIRST).sequence == SEQUENCES


def test_it_survives_the_encoding_of_manifests():
    newest = batch(held())
    assert ledger_of(decode(encode(newest))) == ledger_of(newest)


def test_a_job_is_a_fleet_s_or_a_run_s():
    alone = Manifest(CheckpointId("orders", 3), n_shards=4)
    check_alone(alone)
    check_fleet(FIRST, 4)
    with pytest.raises(StateError, match="belongs to a fleet"):
        check_alone(FIRST)
    with pytest.raises(StateError, match="a run of its own, up to sequence 3"):
        check_fleet(alone, 4)
    with pytest.raises(StateError, match="has 4 shards, this node's program has n_shards=8"):
        check_fleet(FIRST, 8)


def test_a_manifest_without_a_ledger_is_refused():
    with pytest.raises(CorruptError, match="has no ledger"):
        ledger_of(Manifest(CheckpointId("orders/1", 3)))


def test_positions_of_another_inbox_are_not_continued():
    state = Manifest(CheckpointId("job/1", 7), source_offsets={"in": '{"0": 5, "#id": 11}', "other": "-"})
    inbox = MemoryInbox()
    inbox.identity = 11
    check_inbox(state, inbox)
    inbox.identity = 12
    with pytest.raises(
        InboxError, match="the identity 11, and the one at memory:inbox has 12: it was removed and made again"
    ):
        check_inbox(state, inbox)
    # An older version made it: nothing is known.
    inbox.identity = 0
    check_inbox(state, inbox)
