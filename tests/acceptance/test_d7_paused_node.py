"""D7. A node that was paused past its lease and wakes up can commit nothing for a shard that was taken from it, and publish
nothing over newer output.
"""

from __future__ import annotations

import pytest

from support.fleet_nodes import SHARDS, Fleet, MemoryNode, started
from support.internals import faults
from tidewheel.errors import FencedError
from tidewheel.fleet._nodes.ledger import ledger_of


@pytest.fixture
def fleet(tmp_path):
    opened = Fleet(tmp_path)
    yield opened
    opened.close()


def test_its_commit_is_refused_and_it_continues_with_its_other_shards(fleet):
    (paused,) = started(fleet, "a")
    fleet.send(200)
    paused.step()
    fleet.send(100)
    late = paused.prepare()  # Paused here, with the batch computed.
    taker = MemoryNode(fleet, "b")
    taker.join()
    taker.begin()
    taker.step()
    with pytest.raises(FencedError):
        paused.finish(late)
    taken = ledger_of(fleet.chains().of(paused.info.name).latest()).revoked
    assert set(taken) == set(taker.ledger.held), "the record says what was taken"
    assert {revoked.to for revoked in taken.values()} == {taker.info.name}
    paused.begin()
    assert set(paused.ledger.held) == set(range(SHARDS)) - set(taken)
    paused.step()
    fleet.check_exact()


def test_it_loses_the_whole_run_though_only_some_shards_were_taken(fleet):
    """A batch is one commit: what it counted for a shard that stays is counted again, not committed in part."""
    (paused,) = started(fleet, "a")
    fleet.send(200)
    late = paused.prepare()
    taker = MemoryNode(fleet, "b")
    taker.join()
    taker.begin()
    with pytest.raises(FencedError):
        paused.finish(late)
    assert fleet.totals() == {}
    for node in (paused, taker):
        node.begin()
        node.step()
    fleet.check_exact()


def test_after_it_wakes_its_output_is_published_already(fleet):
    (paused,) = started(fleet, "a")
    fleet.send(200)
    faults.arm("commit.created=raise")
    with pytest.raises(faults.InjectedFault):
        paused.step()  # Paused here: committed, and nothing published.
    faults.arm("")
    assert fleet.published() == []
    committed = paused.run.checkpoints.latest()
    taker = MemoryNode(fleet, "b")
    taker.join()
    paused.coordinator.leave("a")
    taker.begin()
    assert len(fleet.published()) == 200, "the taker publishes what the holder had committed, before it adopts"
    fleet.send(100)
    taker.step()
    paused.run.head = committed
    paused.run.publish(None)
    fleet.check_exact()


def test_it_detects_the_loss_with_nothing_to_commit(fleet):
    (paused,) = started(fleet, "a")
    fleet.send(50)
    paused.step()
    taker = MemoryNode(fleet, "b")
    taker.join()
    paused.coordinator.leave("a")
    taker.begin()
    with pytest.raises(FencedError):
        paused.run.recall()
