"""Handover with the real parts: runs, commit chains in a folder, an inbox, a router, a coordinator's assignment in a cell."""

from __future__ import annotations

import json

import pytest

from support.fleet_nodes import SHARDS, Fleet, MemoryNode, started
from support.internals import shard_of
from tidewheel import Job
from tidewheel.errors import FencedError, StepError
from tidewheel.fleet._nodes import handover
from tidewheel.sinks import files


@pytest.fixture
def fleet(tmp_path):
    opened = Fleet(tmp_path)
    yield opened
    opened.close()


def test_a_node_that_was_paused_commits_nothing_for_a_shard_that_was_taken(fleet):
    fleet.send(100)
    (paused,) = started(fleet, "a")
    paused.step()
    fleet.send(60)
    late = paused.prepare()  # And here it is stopped, with the batch counted and not committed.

    taker = MemoryNode(fleet, "b")
    taker.join()
    taker.begin()
    assert len(taker.ledger.held) == SHARDS // 2
    taker.step()

    with pytest.raises(FencedError):
        paused.finish(late)
    paused.begin()  # Its run is over; the next one has the rest.
    assert not paused.ledger.held.keys() & taker.ledger.held.keys()
    fleet.send(40)
    for node in (paused, taker):
        node.step()
    fleet.check_exact()


def test_the_shards_of_a_killed_node_continue_from_its_last_commit(fleet):
    fleet.send(100)
    killed, b, c = nodes = started(fleet, "a", "b", "c")
    for node in nodes:
        node.step()
    fleet.check_exact()

    fleet.send(50)
    killed.prepare()  # Killed here: counted, staged, never committed.
    before = fleet.chains().ledgers()[killed.info.name].held
    b.coordinator.leave("a")
    for node in (b, c):
        node.begin()
    held = {**b.ledger.held, **c.ledger.held}
    assert held.keys() == set(range(SHARDS))
    assert {shard: held[shard].parts for shard in before} == {s: h.parts for s, h in before.items()}, (
        "no state was copied"
    )
    for node in (b, c):
        node.step()
    fleet.check_exact()

    # It comes back as a new run under its old name, and gets its share.
    back = MemoryNode(fleet, "a")
    back.join()
    for node in (back, b, c):
        node.begin()
    assert back.ledger.held
    assert {whose.run for whose in handover.custody(fleet.chains().ledgers()).values()} == {
        node.info.name for node in (back, b, c)
    }
    fleet.send(30)
    for node in (back, b, c):
        node.step()
    fleet.check_exact()


class WithDeadLetters(MemoryNode):
    def build(self) -> Job:
        job = super().build()
        job.dead_letter("dead", files(f"{self.fleet.where}/dead", format="json"))
        return job


def mismatched(node: MemoryNode) -> tuple[str, str]:
    """Return a key of one of the node's shards, and one of a shard that another node has."""
    held = node.ledger.held
    return tuple(
        next(k for k in map(str, range(1000)) if (shard_of(k, SHARDS) in held) is own) for own in (True, False)
    )


def test_an_event_that_names_another_key_than_it_was_routed_by_is_put_aside(fleet):
    fleet.send(100)
    nodes = started(fleet, "a", "b", node=WithDeadLetters)
    routed, named = mismatched(nodes[0])
    fleet.router.route(routed, {"key": named, "amount": 1})
    fleet.send(100)
    for node in nodes:
        node.step()
    fleet.check_exact()
    (letter,) = [json.loads(line) for path in fleet.where.glob("dead/*.json") for line in path.read_text().splitlines()]
    assert (letter["step"], letter["key"]) == ("by-key", named)
    assert "sent to the inbox under another key" in letter["error"]


def test_without_dead_letters_the_event_with_the_wrong_key_is_named(fleet):
    nodes = started(fleet, "a", "b")
    routed, named = mismatched(nodes[0])
    fleet.router.route(routed, {"key": named, "amount": 77})
    fleet.router.flush()
    with pytest.raises(StepError, match=rf"step 'by-key', key '{named}', record .*77.*does not have.*Route events by"):
        nodes[0].step()
