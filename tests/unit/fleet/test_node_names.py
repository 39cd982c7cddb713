"""Cells of unused node names are deleted where versions do not start again; a living node loses nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewheel import cells
from tidewheel._cells.lease import NAMESPACE as LEASES
from tidewheel.fleet._nodes.coordinator import NAMESPACE
from tidewheel.fleet._nodes.membership import Membership, drains
from tidewheel.fleet._nodes.node_names import NodeNames, Standing, observed, unused


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def connection():
    with cells.open("memory:") as opened:
        yield opened


def entered(connection, node: str) -> Membership:
    """Return a node whose lease lasts through the test, and is renewed by nobody but the test."""
    made = Membership(connection, "orders", node, 8, ttl=10_000.0, fingerprint="f")
    made.enter()
    return made


def cells_of(connection) -> list[str]:
    return [*connection.names(LEASES), *connection.names(NAMESPACE, "orders/drain")]


def test_an_expired_name_leaves_no_cell(connection):
    clock = Clock()
    names = NodeNames(connection, "orders", clock)
    for node in ("pod-1", "pod-2"):
        gone = entered(connection, node)
        gone.join()
        gone.leave()
        gone.close()
    drains(connection, "orders").write("never-there", 1.0)
    assert len(cells_of(connection)) == 5
    assert names.tidy([], after=60.0) == []
    clock.now = 59.0
    assert names.tidy([], after=60.0) == []
    clock.now = 60.0
    assert names.tidy([], after=60.0) == ["never-there", "pod-1", "pod-2"]
    assert cells_of(connection) == []
    again = entered(connection, "pod-1")
    again.close()


def test_a_member_and_a_node_that_renews_stay(connection):
    clock = Clock()
    names = NodeNames(connection, "orders", clock)
    member, starting = entered(connection, "member"), entered(connection, "starting")
    member.join()
    names.tidy(["member"], after=60.0)
    starting._lease.renew()
    clock.now = 100.0
    assert names.tidy(["member"], after=60.0) == []
    starting._lease.renew()
    member._lease.renew()
    assert starting._lease.held
    starting.close()
    member.close()


def test_a_node_that_slept_takes_its_name_again(connection):
    clock = Clock()
    names = NodeNames(connection, "orders", clock)
    asleep = entered(connection, "a")
    token = asleep._lease.token
    names.tidy([], after=60.0)
    clock.now = 60.0
    assert names.tidy([], after=60.0) == ["a"]
    asleep._lease._until = float("-inf")  # Its time is over, by its own clock.
    asleep.keep_up()
    assert asleep._lease.held
    assert asleep._lease.token > token
    asleep.close()


def test_a_drain_that_is_asked_for_meanwhile_stays(connection, monkeypatch):
    clock = Clock()
    names = NodeNames(connection, "orders", clock)
    entered(connection, "a").close()
    names.tidy([], after=60.0)
    clock.now = 60.0
    asked = drains(connection, "orders")
    real = names._drains.discard

    def late(name, version):
        asked.write("a", 1.0)
        return real(name, version)

    monkeypatch.setattr(type(names._drains), "discard", lambda held, name, version: late(name, version))
    assert names.tidy([], after=60.0) == []
    assert "a" in asked


names_seen = st.dictionaries(st.sampled_from("abc"), st.integers(0, 3))


@given(
    st.lists(st.tuples(names_seen, st.sets(st.sampled_from("abc")), st.floats(0, 10)), max_size=30), st.floats(0, 10)
)
def test_only_names_without_any_renewal_expire(looks, after):
    """At whatever versions, and whoever is a member; checked against all that was ever seen."""
    standing: dict[str, Standing] = {}
    now = 0.0
    history: list[tuple[float, dict[str, int]]] = []
    for versions, members, seconds in looks:
        now += seconds
        history.append((now, versions))
        standing = observed(standing, versions, now)
        assert standing.keys() == versions.keys()
        for name in unused(standing, members, now, after):
            assert name not in members
            since = now
            for at, seen in reversed(history):
                if seen.get(name) != versions[name]:
                    break
                since = at
            assert since + after <= now
