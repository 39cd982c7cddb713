"""D6. A node killed with events in flight: every event is processed exactly once in state, by its new owner."""

from __future__ import annotations

import random

import pytest

from support.fleet_nodes import SHARDS, Fleet, MemoryNode, started
from support.internals import faults
from tidewheel.errors import FencedError
from tidewheel.fleet._nodes import handover


@pytest.fixture
def fleet(tmp_path):
    opened = Fleet(tmp_path)
    yield opened
    opened.close()


def test_killed_with_a_batch_computed_and_not_committed(fleet):
    a, b, c = started(fleet, "a", "b", "c")
    fleet.send(300)
    for node in (a, b, c):
        node.step()
    fleet.send(200)
    a.prepare()  # Killed here.
    b.coordinator.leave("a")
    for node in (b, c):
        node.begin()
        node.step()
    assert {*b.ledger.held, *c.ledger.held} == set(range(SHARDS))
    fleet.check_exact()


def test_killed_between_its_commit_and_its_publication(fleet):
    a, b = started(fleet, "a", "b")
    fleet.send(300)
    b.step()
    faults.arm("commit.created=raise")
    with pytest.raises(faults.InjectedFault):
        a.step()
    faults.arm("")
    assert len(fleet.published()) < 300
    b.coordinator.leave("a")
    b.begin()
    b.step()
    fleet.check_exact()


def test_killed_while_it_takes_shards_from_another_that_was_killed(fleet):
    a, b, c = started(fleet, "a", "b", "c")
    fleet.send(300)
    for node in (a, b, c):
        node.step()
    fleet.send(100)
    c.coordinator.leave("a")
    faults.arm("fleet.revoked=raise")
    with pytest.raises(faults.InjectedFault):
        b.begin()  # What it has taken is adopted by nobody.
    faults.arm("")
    c.coordinator.leave("b")
    c.begin()
    c.step()
    assert len(c.ledger.held) == SHARDS
    fleet.check_exact()


@pytest.mark.parametrize("keys", [500, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_a_move_copies_no_state_and_writes_only_records(fleet, keys):
    (a,) = started(fleet, "a")
    fleet.send(keys, keys=keys)
    a.step()
    before = {entry.path: entry.size for entry in fleet.store.list() if "/state/" in entry.path}
    b = MemoryNode(fleet, "b")
    b.join()
    b.begin()
    after = {entry.path: entry.size for entry in fleet.store.list() if "/state/" in entry.path}
    assert after == before
    assert len(b.ledger.held) == SHARDS // 2
    a.begin()
    fleet.send(100)
    for node in (a, b):
        node.step()
    fleet.check_exact()


def test_the_local_copy_of_a_returning_shard_is_brought_up_to_date(fleet):
    a, b = started(fleet, "a", "b")
    for _ in range(3):
        fleet.send(100)
        a.step()
        b.step()
    b.coordinator.leave("a")
    b.begin()
    for _ in range(3):
        fleet.send(100)
        b.step()
    a.join()
    a.begin()
    b.begin()
    fleet.send(100)
    a.step()
    b.step()
    fleet.check_exact()


@pytest.mark.parametrize("seed", range(4))
def test_any_joins_leaves_kills_and_pauses_count_every_event_once(fleet, seed):
    print(f"seed {seed}")
    draw = random.Random(seed)
    nodes: dict[str, MemoryNode] = {}
    paused: list[tuple[MemoryNode, object]] = []
    numbers = iter(range(1000))
    for _ in range(40):
        fleet.send(draw.randrange(40), keys=20)
        roll = draw.random()
        if not nodes or (roll < 0.15 and len(nodes) < 4):
            name = f"n{next(numbers)}"
            nodes[name] = MemoryNode(fleet, name)
            nodes[name].join()
            nodes[name].begin()
        elif roll < 0.3 and len(nodes) > 1:
            gone = nodes.pop(draw.choice(sorted(nodes)))
            if roll < 0.2:
                paused.append((gone, gone.prepare()))
            next(iter(nodes.values())).coordinator.leave(gone.name)
        elif roll < 0.4 and paused:
            node, prepared = paused.pop()
            if node.shards() or set(handover.custody(fleet.chains().ledgers())):
                try:
                    node.finish(prepared)
                except FencedError:
                    continue
        for node in draw.sample(sorted(nodes.values(), key=lambda node: node.name), draw.randint(0, len(nodes))):
            try:
                if node.shards() != frozenset(node.ledger.held):
                    node.begin()
                node.step()
            except FencedError:
                node.begin()
    for node in nodes.values():
        node.begin()
        node.step()
    fleet.check_exact()
