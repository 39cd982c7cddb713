"""D2: joining and leaving are durable before they are visible; a failed write changes nothing and can be retried."""

from __future__ import annotations

import uuid

import pytest

from support.memory_inbox import MemoryInbox
from support.waiting import IN_TIME
from tidewheel import cells
from tidewheel._cells.backends import memory
from tidewheel.cells import Offline
from tidewheel.fleet import AlreadyMember, Assignment, Coordinator, NoNodes, NotCommitted, Router, UnknownNode


@pytest.fixture
def url():
    return f"memory:{uuid.uuid4()}"


@pytest.fixture
def connection(url):
    with cells.open(url, timeout="0.2 s") as opened:
        yield opened


def test_d2_a_join_is_seen_by_all_and_survives_the_process(place):
    one, other = (Coordinator(place.open(), "job", node, 8) for node in "ab")
    plan = one.join()
    assert plan.assignment == one.current_assignment()
    assert other.wait_for_change(0, timeout=IN_TIME) == plan.assignment
    assert Coordinator(place.open(), "job", "c", 8).current_assignment() == plan.assignment
    assert other.join().assignment.members == {"a": 1.0, "b": 1.0}


@pytest.mark.parametrize("verb", ["join", "leave"])
def test_d2_a_write_that_fails_changes_nothing_and_a_retry_works(url, connection, verb):
    coordinator, other = Coordinator(connection, "job", "a", 8), Coordinator(connection, "job", "b", 8)
    other.join()
    if verb == "leave":
        coordinator.join()
    before = coordinator.current_assignment()
    with memory.outage(url), pytest.raises(NotCommitted, match=rf"{verb} of a .* try again"):
        getattr(coordinator, verb)()
    assert coordinator.current_assignment() == before
    assert Coordinator(connection, "job", "c", 8).current_assignment() == before
    after = getattr(coordinator, verb)().assignment
    assert ("a" in after.members) == (verb == "join")
    assert after.epoch == before.epoch + 1


@pytest.mark.parametrize("verb", ["join", "leave"])
def test_d2_a_retry_after_a_lost_answer_succeeds(connection, monkeypatch, verb):
    coordinator = Coordinator(connection, "job", "a", 8)
    if verb == "leave":
        coordinator.join()
    exchange = coordinator._cell.compare_exchange_at

    def lossy(*arguments, **options):
        exchange(*arguments, **options)
        raise Offline("the answer was lost", maybe=True)

    monkeypatch.setattr(type(coordinator._cell), "compare_exchange_at", lambda cell, *a, **o: lossy(*a, **o))
    with pytest.raises(NotCommitted):
        getattr(coordinator, verb)()
    monkeypatch.undo()
    plan = getattr(coordinator, verb)()
    assert ("a" in plan.assignment.members) == (verb == "join")
    assert getattr(coordinator.stats(), f"{verb}s") == 1


def test_d2_joining_twice_and_leaving_when_absent_are_errors(connection):
    coordinator = Coordinator(connection, "job", "a", 8)
    with pytest.raises(UnknownNode, match="members are: none"):
        coordinator.leave()
    coordinator.join()
    with pytest.raises(AlreadyMember):
        coordinator.join()
    assert coordinator.current_assignment().epoch == 1


def test_d2_a_repeated_join_changes_nothing_and_returns_the_assignment(connection):
    coordinator = Coordinator(connection, "job", "a", 8, idempotent=True)
    assert coordinator.leave().assignment == Assignment(8)
    joined = coordinator.join().assignment
    again = coordinator.join()
    assert (again.assignment, again.moves) == (joined, ())
    assert coordinator.stats().joins == 1


def test_d2_a_refusal_depends_on_the_current_assignment(connection):
    one, other = Coordinator(connection, "job", "a", 8), Coordinator(connection, "job", "b", 8)
    one.join("x")
    stale = other._cell._held, other._cell._snapshot
    one.leave("x")
    other._cell._held, other._cell._snapshot = stale
    assert "x" in other.current_assignment().members
    assert other.join("x").assignment.epoch == 3


def test_d2_the_last_node_may_leave_and_then_route_raises(connection):
    with Router(MemoryInbox()) as router:
        coordinator = Coordinator(connection, "job", "a", 8, router=router)
        coordinator.join()
        empty = coordinator.leave().assignment
        assert (empty.members, empty.owners, empty.epoch) == ({}, (), 2)
        with pytest.raises(NoNodes, match="has no nodes; nothing was sent"):
            coordinator.route("k", 1)
        coordinator.join()
        assert coordinator.route("k", 1).node == "a"
