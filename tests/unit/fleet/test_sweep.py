"""The leftovers of finished runs are deleted; needed files are not."""

from __future__ import annotations

import pytest

from support.fleet_nodes import Fleet, MemoryNode
from tidewheel._checkpoint.fleet_ledger import ORIGIN
from tidewheel._checkpoint.garbage import collect
from tidewheel.fleet._nodes import handover
from tidewheel.fleet._nodes.chains import take
from tidewheel.fleet._nodes.errors import Overtaken
from tidewheel.fleet._nodes.handover import Holding, Ledger, Revoked
from tidewheel.fleet._nodes.ledger import ledger_of
from tidewheel.fleet._nodes.over import remove_ended_runs
from tidewheel.fleet._nodes.sweep import is_settled, sweep


@pytest.fixture
def fleet(tmp_path):
    opened = Fleet(tmp_path, snapshot_every=2, collect_every=2, keep=1, grace=0)
    yield opened
    opened.close()


def files(fleet: Fleet) -> set[str]:
    return {entry.path for entry in fleet.store.list() if "/state/" in entry.path}


def test_nothing_that_is_referred_to_goes_and_all_else_does(fleet):
    nodes = [MemoryNode(fleet, name) for name in "ab"]
    for node in nodes:
        node.join()
    for _ in range(4):
        for node in nodes:
            node.begin()
        for _ in range(3):
            fleet.send(60)
            for node in nodes:
                node.step()
        nodes.reverse()
    before = files(fleet)
    removed = sweep(fleet.chains(), grace=0.0, beginning=0.0)
    assert removed
    assert files(fleet) == before - {name[1:] for name in removed}
    fleet.check_exact()
    fleet.send(50)
    for node in nodes:
        node.begin()
        node.step()
    fleet.check_exact()


def test_files_of_an_old_run_stay_while_the_state_is_in_them(fleet):
    a, b = MemoryNode(fleet, "a"), MemoryNode(fleet, "b")
    a.join()
    a.begin()
    fleet.send(100)
    a.step()
    b.join()
    a.coordinator.leave("a")
    b.begin()
    sweep(fleet.chains(), grace=0.0, beginning=0.0)
    assert "1" in fleet.chains().ledgers(), "it is not forgotten while its files are needed"
    fleet.check_exact()


def test_a_run_without_files_is_forgotten_and_its_number_never_reused(fleet):
    node = MemoryNode(fleet, "a")
    node.join()
    for _ in range(3):
        node.begin()  # Each takes over from the one before, which wrote nothing.
    sweep(fleet.chains(), grace=0.0, beginning=0.0)
    assert fleet.chains().runs.numbers() == [3]
    node.begin()
    assert node.info.number == 4


def test_a_run_is_not_forgotten_if_it_wrote_files_after_a_suspended_sweep_listed_them(fleet, monkeypatch):
    """A forgotten run's folder is deleted: the state of its shards would be lost."""
    a, b = MemoryNode(fleet, "a"), MemoryNode(fleet, "b")
    a.join()
    a.begin()
    chains = fleet.chains()
    ledgers = chains.ledgers

    def after_a_while():
        fleet.send(100)
        a.step()
        b.join()
        a.coordinator.leave("a")
        b.begin()
        return ledgers()

    monkeypatch.setattr(chains, "ledgers", after_a_while)
    sweep(chains, grace=0.0, beginning=0.0)
    for _ in range(2):
        sweep(fleet.chains(), grace=0.0, beginning=0.0)
        remove_ended_runs(fleet.chains(), lambda runs: None, after=0.0)
    fleet.check_exact()
    assert fleet.chains().runs.numbers() == [1, 2]


def test_a_run_closed_before_it_adopts_is_replaced(fleet):
    node = MemoryNode(fleet, "a")
    node.join()
    run = node.chains.begin("a", 8)
    node.chains.begin("a", 8)
    sweep(fleet.chains(), grace=0.0, beginning=1000.0)
    assert fleet.chains().runs.numbers() == [1, 2], "it has just begun"
    sweep(fleet.chains(), grace=0.0, beginning=0.0)
    with pytest.raises(Overtaken):
        take(node.chains, run, node.shards, node.publish_for, node.check)
    fleet.send(50)
    node.begin()
    node.step()
    fleet.check_exact()


def test_requests_of_a_forgotten_run_do_not_block_a_shard(fleet):
    """Its record in the holder's chain was on its way for long, and took effect after all."""
    a, b = MemoryNode(fleet, "a"), MemoryNode(fleet, "b")
    a.join()
    a.begin()
    fleet.send(50)
    a.step()
    late = b.chains.begin("b", 8)
    b.chains.begin("b", 8)
    sweep(fleet.chains(), grace=0.0, beginning=0.0)
    assert late.number not in fleet.chains().runs.numbers()
    b.chains.ledgers()
    head = ledger_of(b.chains.heads[a.info.name])
    assert b.chains.append(handover.revoke(head, [0, 1], late.name), late.token)
    a.begin()
    assert len(a.ledger.held) == 8
    fleet.send(50)
    a.step()
    fleet.check_exact()


def test_young_files_stay(fleet):
    node = MemoryNode(fleet, "a")
    node.join()
    for _ in range(3):
        node.begin()
        fleet.send(40)
        node.step()
        node.step()
    before = files(fleet)
    assert sweep(fleet.chains(), grace=1000.0, beginning=0.0) == []
    assert files(fleet) == before


def test_settled_runs_need_no_further_checks():
    gone = Ledger("1", 9, {}, {0: Revoked("2", Holding(3))}, {0: 2})

    def settled(*others: Ledger) -> bool:
        return is_settled(gone, handover.custody({ledger.run: ledger for ledger in (gone, *others)}))

    assert not settled(Ledger("2", 1)), "the taker has not adopted"
    assert settled(Ledger("2", 2, {0: Holding(3)}, {}, {0: 3}))
    assert settled(Ledger("9", 2, {0: Holding(7)}, {}, {0: 7})), "the taker was forgotten, another holds the shard"
    assert not settled(), "the taker began after the runs were listed, or is gone and never adopted"
    assert not is_settled(Ledger("1", 1, {0: Holding(0)}), {})
    assert not is_settled(Ledger(ORIGIN, 1), {})
    named = {0: handover.Custody("1", Holding(3), "0")}
    assert not is_settled(Ledger("1", 1), named), "it may adopt, or must be passed over"


def test_a_run_that_lost_a_shard_collects_no_file_of_it_before_the_taker_has_it(fleet):
    """It may be about to collect when the record of the taker comes between its commit and the collection."""
    first, second = MemoryNode(fleet, "a"), MemoryNode(fleet, "b")
    first.join()
    first.begin()
    fleet.send(60)
    first.step()
    chains = fleet.chains()
    run = chains.begin("b", fleet.inbox.n_shards)
    ledgers = chains.ledgers()
    holder = next(ledger for ledger in ledgers.values() if ledger.held)
    assert chains.append(handover.revoke(holder, holder.held, run.name), run.token)
    collect(chains.of(holder.run), grace=0, keep=1)
    second.join()
    second.begin()
    first.begin()
    fleet.check_exact()
