"""A node's place in its fleet: leases that lapse, names that are taken, programs that differ, drains."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import pytest

from tidewheel import cells
from tidewheel._fleet.errors import AssignmentRefused, ProgramDiffers
from tidewheel._fleet.membership import Membership, Watch, drains
from tidewheel.errors import HeldError

LONG = 60.0
"""Seconds of a lease that a node keeps, whatever else its machine has to do."""


@pytest.fixture
def connection():
    with cells.open("memory:") as opened:
        yield opened


def member(connection, node: str, fingerprint: str = "f", n_shards: int = 8, ttl: float = 5.0) -> Membership:
    made = Membership(connection, "orders", node, n_shards, ttl=ttl, fingerprint=fingerprint)
    made.enter()
    made.join()
    return made


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_nodes_divide_the_shards_and_a_drained_one_is_told(connection):
    a, b = member(connection, "a"), member(connection, "b")
    assert len(a.shards()) == len(b.shards()) == 4
    assert not a.is_draining
    drains(connection, "orders").write("a", 1.0)
    assert a.is_draining
    a.leave()
    assert len(b.shards()) == 8
    assert not a.is_draining
    a.close()
    b.close()


def test_a_lease_lapses_when_it_stands_still_for_its_whole_time_as_seen_here(connection):
    clock = Clock()
    watch = Watch(connection, "orders", clock)
    a = member(connection, "a")
    assert not watch.lapsed("a", 5.0)
    clock.now = 5.4
    assert not watch.lapsed("a", 5.0), "clocks run at different speeds"
    clock.now = 5.6
    assert watch.lapsed("a", 5.0)
    a._lease.renew()
    assert not watch.lapsed("a", 5.0)
    a.close()


def test_a_member_without_a_lease_is_given_the_same_time(connection):
    clock = Clock()
    watch = Watch(connection, "orders", clock)
    assert not watch.lapsed("nobody", 5.0)
    clock.now = 6.0
    assert watch.lapsed("nobody", 5.0)


def test_whoever_sees_a_lapsed_lease_removes_its_node(connection):
    a, b = member(connection, "a"), member(connection, "b")
    b._lease.release()
    clock = Clock()
    a._watch = Watch(connection, "orders", clock)
    a.keep_up()
    assert "b" in a.assignment().members
    clock.now = 6.0
    a.keep_up()
    assert set(a.assignment().members) == {"a"}
    b.keep_up()  # It wakes up, and comes back.
    assert set(a.assignment().members) == {"a", "b"}
    a.close()
    b.close()


def test_a_name_that_a_living_node_has_is_refused(connection):
    a = member(connection, "a", ttl=LONG)
    with pytest.raises(HeldError, match="there is a node 'a' in the fleet of 'orders' already"):
        member(connection, "a", ttl=0.2)
    a.close()


@contextlib.contextmanager
def renewing(node: Membership) -> Iterator[None]:
    """Renew a node's lease often, and let it last: others see at once that the node lives, and never that it lapsed."""
    done = threading.Event()

    def renew() -> None:
        while not done.wait(0.02):
            node._lease.renew()

    thread = threading.Thread(target=renew)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def test_another_program_is_refused_while_nodes_run_the_first(connection):
    a = member(connection, "a", "one", ttl=LONG)
    refused = pytest.raises(
        ProgramDiffers, match=r"fingerprint one, as node a has it, this one's has two.*drain a first"
    )
    with renewing(a), refused:
        member(connection, "b", "two", ttl=LONG)
    a.leave()
    a.close()
    b = member(connection, "b", "two", ttl=LONG)
    with renewing(b), pytest.raises(ProgramDiffers):
        member(connection, "a", "one", ttl=LONG)
    b.close()


def test_another_program_may_follow_nodes_that_died(connection):
    dead = member(connection, "a", "one", ttl=0.2)
    dead._lease._stop.set()  # It renews no more, and gives nothing up.
    b = member(connection, "b", "two", ttl=0.2)
    assert "b" in b.assignment().members
    b.close()


def test_another_number_of_shards_is_refused(connection):
    a = member(connection, "a")
    with pytest.raises(AssignmentRefused, match="has 8 shards, this node was started with 16"):
        member(connection, "b", n_shards=16)
    a.close()
