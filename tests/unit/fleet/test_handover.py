"""Handover decisions, one by one: ledgers in, the next record or publication out."""

from __future__ import annotations

import pytest

from support.internals import FileRef, PartRef, ShardParts
from tidewheel.fleet._nodes import handover
from tidewheel.fleet._nodes.errors import HandoverRefused
from tidewheel.fleet._nodes.handover import Append, Custody, Holding, Ledger, Publish, Revoked

PARTS = ShardParts(PartRef(FileRef("a-7", 100, 1), 7, 100, 10))


@pytest.fixture
def busy():
    """A run that has counted shard 1 up to 40, in its record 7."""
    return Ledger("a", 7, {0: Holding(1), 1: Holding(1, 40, PARTS)}, {}, {0: 1, 1: 1}, staged=7)


def test_the_first_taker_takes_from_the_origin():
    ledgers = {"origin": handover.origin(2), "a": Ledger("a", 1)}
    step = handover.next_step("a", [0, 1], ledgers, {})
    assert isinstance(step, Append)
    taken = {shard: Revoked("a", Holding(1)) for shard in (0, 1)}
    assert step.ledger == Ledger("origin", 2, {}, taken, {0: 0, 1: 0})
    step = handover.next_step("a", [0, 1], {**ledgers, "origin": step.ledger}, {})
    assert step == Append(Ledger("a", 2, {0: Holding(1), 1: Holding(1)}, {}, {0: 1, 1: 1}))


def test_revoke_publish_adopt_and_no_state_is_copied(busy):
    ledgers = {"a": busy, "b": Ledger("b", 3, staged=3)}
    revoke = handover.next_step("b", [1], ledgers, {})
    assert isinstance(revoke, Append)
    assert (revoke.ledger.run, revoke.ledger.number, revoke.ledger.held) == ("a", 8, {0: Holding(1)})
    assert revoke.ledger.revoked == {1: Revoked("b", Holding(2, 40, PARTS))}
    assert revoke.ledger.staged == 7, "the output of the last commit is carried on"

    ledgers["a"] = revoke.ledger
    assert handover.next_step("b", [1], ledgers, {}) == Publish("a", 7)
    adopt = handover.next_step("b", [1], ledgers, {"a": 7})
    assert isinstance(adopt, Append)
    assert (adopt.ledger.run, adopt.ledger.number) == ("b", 4)
    assert adopt.ledger.held == {1: Holding(2, 40, PARTS)}

    ledgers["b"] = adopt.ledger
    assert handover.next_step("b", [1], ledgers, {"a": 7}) is None
    assert handover.custody(ledgers)[1] == Custody("b", Holding(2, 40, PARTS))


def test_a_taker_that_died_before_adopting_cannot_adopt_later(busy):
    revoked = handover.revoke(busy, [1], "b")
    ledgers = {"a": revoked, "b": Ledger("b", 1), "c": Ledger("c", 1)}
    step = handover.next_step("c", [1], ledgers, {"a": 7})
    assert isinstance(step, Append)
    assert (step.ledger.run, step.ledger.number) == ("b", 2)
    assert step.ledger.revoked == {1: Revoked("c", Holding(3, 40, PARTS))}

    ledgers["b"] = step.ledger
    assert handover.custody(ledgers)[1] == Custody("c", Holding(3, 40, PARTS), "b")
    with pytest.raises(HandoverRefused, match="term 2 of shard 1 is over for run b"):
        handover.adopt(ledgers["b"], {1: revoked.revoked[1].holding})
    adopt = handover.next_step("c", [1], ledgers, {"a": 7})
    assert isinstance(adopt, Append)
    assert adopt.ledger.held == {1: Holding(3, 40, PARTS)}


def test_a_latecomer_with_an_old_view_cannot_revive_a_past_term(busy):
    old_a = handover.revoke(busy, [1], "b")
    b = handover.adopt(Ledger("b", 1), {1: old_a.revoked[1].holding})
    b = handover.revoke(b, [1], "c")
    assert not b.held
    # It has seen a's chain before b adopted, b's after c did, and c's not at all.
    seen = {"a": old_a, "b": b, "d": Ledger("d", 1)}
    assert handover.next_step("d", [1], seen, {"a": 7, "b": 9}) is None
    with pytest.raises(HandoverRefused):
        handover.pass_over(b, {1: old_a.revoked[1].holding}, "d")


def test_a_shard_in_no_ledger_is_waited_for_and_never_started_over():
    assert handover.next_step("a", [0], {"a": Ledger("a", 1)}, {}) is None


def test_a_taker_whose_chain_is_not_known_is_not_passed_over(busy):
    ledgers = {"a": handover.revoke(busy, [1], "b"), "c": Ledger("c", 1)}
    assert handover.next_step("c", [1], ledgers, {"a": 7}) is None


def test_all_shards_of_one_holder_are_taken_by_one_record(busy):
    step = handover.next_step("b", [0, 1], {"a": busy, "b": Ledger("b", 1)}, {})
    assert isinstance(step, Append)
    assert step.ledger.revoked.keys() == {0, 1}
    assert step.ledger.held == {}


def test_a_shard_may_come_back(busy):
    a = handover.revoke(busy, [1], "b")
    b = handover.adopt(Ledger("b", 1), {1: a.revoked[1].holding})
    b = handover.revoke(b, [1], "a")
    back = handover.next_step("a", [0, 1], {"a": a, "b": b}, {"b": 0})
    assert isinstance(back, Append)
    assert back.ledger.held[1] == Holding(3, 40, PARTS)
    assert back.ledger.revoked == {}
