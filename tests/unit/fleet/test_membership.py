"""A node's membership in its fleet: expired leases, names in use, different programs, drains."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewheel import cells
from tidewheel.errors import HeldError
from tidewheel.fleet import AssignmentRefused, ProgramDiffers
from tidewheel.fleet._nodes.liveness import is_lapsed, watched
from tidewheel.fleet._nodes.membership import Membership, Program, Watch, drains
from tidewheel.testing import outage

LONG = 60.0
"""Seconds of a lease that a node keeps, whatever else its machine has to do."""


@pytest.fixture
def connection():
    with cells.open("memory:") as opened:
        yield opened


def member(connection, node: str, fingerprint: str = "f", n_shards: int = 8, ttl: float = 5.0, **places) -> Membership:
    made = Membership(connection, "orders", node, n_shards, ttl=ttl, fingerprint=fingerprint, **places)
    made.enter()
    made.join()
    return made


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Looks:
    """A watch whose clock goes on by itself, from look to look."""

    def __init__(self, connection, every: float = 0.25) -> None:
        self.clock, self.every = Clock(), every
        self.watch = Watch(connection, "orders", self.clock)

    def lapsed_within(self, seconds: float, node: str = "a", ttl: float = 5.0) -> bool:
        """Look again and again for so many seconds; tell whether a lease lapsed."""
        end = self.clock.now + seconds
        while self.clock.now < end:
            self.clock.now += self.every
            if self.watch.lapsed(node, ttl):
                return True
        return False


def test_nodes_divide_the_shards_and_a_drained_one_is_reported(connection):
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


def test_a_lease_expires_if_it_is_not_renewed_for_its_whole_time(connection):
    looks = Looks(connection)
    a = member(connection, "a", ttl=LONG)
    assert not looks.watch.lapsed("a", 5.0)
    assert not looks.lapsed_within(1.05 * LONG), "clocks run at different speeds"
    assert looks.lapsed_within(0.1 * LONG)
    a._lease.renew()
    assert not looks.watch.lapsed("a", 5.0)
    a.close()


def test_a_member_without_a_lease_is_given_the_same_time(connection):
    looks = Looks(connection)
    assert not looks.lapsed_within(5.5, "nobody")
    assert looks.lapsed_within(1.0, "nobody")


def test_a_node_that_comes_back_online_counts_every_lease_again(connection):
    looks = Looks(connection)
    a = member(connection, "a", ttl=LONG)
    assert not looks.lapsed_within(LONG)
    connection.offline("the network was cut")
    assert not looks.lapsed_within(10 * LONG), "nobody is judged while the cells are away"
    connection.online()
    assert not looks.lapsed_within(LONG)
    assert looks.lapsed_within(0.2 * LONG)
    a.close()


def test_an_outage_between_two_looks_counts_too(connection):
    looks = Looks(connection)
    a = member(connection, "a", ttl=LONG)
    assert not looks.lapsed_within(LONG)
    connection.offline("a blip")
    connection.online()
    assert not looks.lapsed_within(LONG)
    a.close()


def test_a_paused_node_removes_no_other_node_when_it_wakes_up(connection):
    """All nodes of a suspended machine wake up together: none of them has renewed meanwhile."""
    looks = Looks(connection)
    a = member(connection, "a", ttl=LONG)
    assert not looks.watch.lapsed("a", 5.0)
    looks.clock.now += 100 * LONG
    assert not looks.watch.lapsed("a", 5.0)
    assert not looks.lapsed_within(0.7 * LONG)
    assert looks.lapsed_within(LONG)
    a.close()


def test_a_lease_is_read_from_the_backend_before_its_holder_is_evicted(connection):
    """A watch that fell silent shows the lease as it was; the backend has the renewals."""
    looks = Looks(connection)
    a = member(connection, "a", ttl=LONG)
    assert not looks.lapsed_within(LONG)
    connection.changed = lambda path, held: None  # From now on this node is told nothing.
    a._lease.renew()
    assert not looks.lapsed_within(LONG)
    a.close()


def test_while_cells_are_unavailable_no_node_is_removed_or_blocked():
    with cells.open("memory:away", timeout="0.2 s") as connection:
        a = member(connection, "a", ttl=LONG)
        watch = Watch(connection, "orders")
        with outage("memory:away"), pytest.raises(cells.Offline):
            watch.living(["a"], 0.01)
        a.close()


def test_any_node_removes_a_node_with_an_expired_lease(connection):
    a, b = member(connection, "a"), member(connection, "b")
    b._lease.release()
    looks = Looks(connection)
    a._watch = looks.watch
    for _ in range(20):
        looks.clock.now += 0.25
        a.keep_up()
    assert "b" in a.assignment().members
    for _ in range(4):
        looks.clock.now += 0.25
        a.keep_up()
    assert set(a.assignment().members) == {"a"}
    b.keep_up()  # It wakes up, and comes back.
    assert set(a.assignment().members) == {"a", "b"}
    a.close()
    b.close()


@given(st.lists(st.tuples(st.floats(0, 100), st.booleans()), max_size=30), st.floats(1, 20))
def test_only_time_that_was_watched_without_a_renewal_counts(looks, ttl):
    """Each look is so many seconds after the last one, and the lease was renewed in between, or not."""
    standing, version, counted = None, 1, 0.0
    for number, (elapsed, renewed) in enumerate(looks):
        version += renewed
        standing = watched(standing, version, elapsed, ttl)
        counted = 0.0 if renewed or number == 0 else counted + elapsed
        assert standing.version == version
        assert standing.watched <= counted
        if is_lapsed(standing, ttl):
            assert counted > ttl
            assert not any(renewed for _, renewed in looks[max(0, number - 2) : number + 1]), "at least three looks"


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


@pytest.mark.parametrize(
    ("other", "says"),
    [
        ({"state": "s2"}, "has its state elsewhere.*identity s1.*s2.*the same --state"),
        ({"inbox": 2}, "reads another inbox"),
    ],
)
def test_another_state_or_inbox_is_refused_while_nodes_use_the_first(connection, other, says):
    places = {"state": "s1", "inbox": 1}
    a = member(connection, "a", ttl=LONG, **places)
    with renewing(a), pytest.raises(ProgramDiffers, match=says):
        member(connection, "b", ttl=LONG, **{**places, **other})
    member(connection, "b", ttl=LONG, **places).close()
    a.close()


def test_a_node_adds_the_places_that_an_older_version_left_out(connection):
    older = member(connection, "a", ttl=LONG)
    newer = member(connection, "b", ttl=LONG, state="s1", inbox=1)
    with renewing(newer), pytest.raises(ProgramDiffers, match="has its state elsewhere"):
        member(connection, "c", ttl=LONG, state="s2", inbox=1)
    again = member(connection, "d", ttl=LONG)
    assert again._program.read() == Program("f", "a", "s1", 1)
    for node in (older, newer, again):
        node.close()


def test_another_number_of_shards_is_refused(connection):
    a = member(connection, "a")
    with pytest.raises(AssignmentRefused, match="has 8 shards, this node was started with 16"):
        member(connection, "b", n_shards=16)
    a.close()
