from __future__ import annotations

import threading
import time
import uuid

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.cell_places import in_parallel
from support.waiting import IN_TIME, SOON, eventually
from tidewheel import cells
from tidewheel._cells.backends import memory
from tidewheel._cells.lease import Tenure
from tidewheel.cells import Lease, LeaseLost, Offline, leader_election
from tidewheel.errors import GraphError


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def connection():
    with cells.open(f"memory:{uuid.uuid4()}") as connection:
        yield connection


@pytest.fixture
def clock():
    return Clock()


def candidate(connection, holder, clock, ttl="10 s"):
    return Lease(connection, "boss", holder=holder, ttl=ttl, clock=clock)


def test_a_free_lease_is_taken_at_once(connection, clock):
    lease = candidate(connection, "a", clock)
    assert not lease.held
    assert lease.try_acquire()
    assert lease.held
    assert lease.token == 1
    assert lease.current.holder == "a"


def test_a_held_lease_is_not_taken(connection, clock):
    first, second = candidate(connection, "a", clock), candidate(connection, "b", clock)
    first.acquire()
    assert not second.try_acquire()
    clock.now += 5
    first.renew()
    clock.now += 9
    assert first.held
    assert not second.try_acquire()


def test_a_lapsed_lease_is_taken_with_a_higher_token(connection, clock):
    first, second = candidate(connection, "a", clock), candidate(connection, "b", clock)
    token = first.acquire()
    assert not second.try_acquire(), "its time runs from when it is first seen"
    clock.now += 10
    assert not first.held, "the holder gives up before anybody may take it"
    assert not second.try_acquire()
    clock.now += 1.1
    assert second.try_acquire()
    assert second.token > token
    with pytest.raises(LeaseLost, match="lapsed"):
        first.renew()
    with pytest.raises(LeaseLost, match="not held by a"):
        _ = first.token


def test_one_that_slept_learns_that_it_lost(connection, clock):
    first, second = candidate(connection, "a", clock), candidate(connection, "b", Clock())
    first.acquire()
    second.try_acquire()
    second._clock.now += 11.1
    assert second.try_acquire(), "by its own clock the time is over; the first's clock stood still"
    with pytest.raises(LeaseLost, match="held by b, no longer by a"):
        first.renew()
    assert not first.held


def test_release_frees_it_at_once(connection, clock):
    first, second = candidate(connection, "a", clock), candidate(connection, "b", clock)
    token = first.acquire()
    first.release()
    assert not first.held
    assert second.acquire(timeout="0 s") > token


def test_releasing_a_lease_of_another_holder_changes_nothing(connection, clock):
    first, second = candidate(connection, "a", clock), candidate(connection, "b", clock)
    first.acquire()
    second.release()
    assert first.current.holder == "a"


def test_one_s_own_lapsed_lease_is_taken_again_without_waiting(connection, clock):
    lease = candidate(connection, "a", clock)
    token = lease.acquire()
    clock.now += 100
    assert not lease.held
    assert lease.try_acquire()
    assert lease.token > token


def test_a_lease_whose_commit_was_in_doubt_is_recognized(connection, clock, monkeypatch):
    lease = candidate(connection, "a", clock)
    real = lease._cell._connection._backend.swap

    def answer_lost(*args):
        real(*args)
        raise Offline("lost", maybe=True)

    monkeypatch.setattr(lease._cell._connection._backend, "swap", answer_lost)
    with pytest.raises(Offline):
        lease.try_acquire()
    monkeypatch.undo()
    assert lease.try_acquire()


def test_a_late_attempt_does_not_keep_its_candidate_waiting(connection, clock, monkeypatch):
    lease = candidate(connection, "a", clock)
    backend = lease._cell._connection._backend
    real, held_up = backend.swap, []

    def held_up_in_the_network(*args):
        held_up.append(args)
        raise Offline("no answer", maybe=True)

    monkeypatch.setattr(backend, "swap", held_up_in_the_network)
    for _ in range(2):
        with pytest.raises(Offline):
            lease.try_acquire()
    monkeypatch.undo()
    assert real(*held_up[0]).applied
    assert lease.try_acquire()


def test_acquire_waits_and_gives_up_in_time(connection):
    first, second = Lease(connection, "boss", holder="a"), Lease(connection, "boss", holder="b")
    first.acquire()
    with pytest.raises(TimeoutError, match=r"the lease boss was not free within 0\.05 s"):
        second.acquire(timeout="0.05 s")
    waiting = threading.Thread(target=second.acquire)
    waiting.start()
    first.release()
    waiting.join(SOON)
    assert second.held


def test_acquire_waits_through_an_outage(connection):
    lease = Lease(connection, "boss", holder="a")
    with memory.outage(connection.url):
        waiting = threading.Thread(target=lease.acquire)
        waiting.start()
        assert not lease.held
    waiting.join(SOON)
    assert lease.held
    with memory.outage(connection.url), pytest.raises(Offline):
        Lease.acquire(_lapsed(lease), timeout="0.05 s")


def _lapsed(lease):
    lease._until = float("-inf")
    return lease


def test_in_a_with_block_it_is_renewed_in_the_background(connection, clock):
    # It is renewed by the time that passes and lapses by a clock that stands still: it cannot lapse before it is renewed.
    reader = connection.reader("boss", Tenure, namespace="leases")
    with candidate(connection, "a", clock, ttl="300 ms") as lease:
        token = lease.token
        reader.when.reaches(token + 3, timeout=IN_TIME)
        assert lease.held
        assert lease.token == token
        assert reader.read().token == token
    assert reader.read() is None


def test_the_background_renewal_survives_a_short_outage(connection, clock, monkeypatch):
    reader, refusals, swap = connection.reader("boss", Tenure, namespace="leases"), [], memory.MemoryBackend.swap

    def counted(self, *args):
        try:
            return swap(self, *args)
        except Offline:
            refusals.append(1)
            raise

    monkeypatch.setattr(memory.MemoryBackend, "swap", counted)
    with candidate(connection, "a", clock, ttl="300 ms") as lease:
        with memory.outage(connection.url):
            eventually(lambda: refusals, "a renewal that is refused")
        version = reader.version()
        reader.when.reaches(version + 1, timeout=IN_TIME)
        assert lease.held


def test_the_background_renewal_ends_when_the_lease_is_lost(connection, clock):
    with candidate(connection, "a", clock, ttl="300 ms") as lease:
        lease._cell.clear()
        eventually(lambda: not lease._keeper.is_here)
        assert not lease.held
        with pytest.raises(LeaseLost):
            _ = lease.token


@pytest.mark.parametrize(("ttl", "why"), [(15, "a number without a unit; write '15 s'"), ("0 s", "at least 1 ns")])
def test_a_ttl_is_a_duration_above_0(connection, ttl, why):
    with pytest.raises(GraphError, match=f"the ttl of the lease 'boss' .*{why}"):
        Lease(connection, "boss", ttl=ttl)


@settings(max_examples=50, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.sampled_from(["try", "renew", "release", "pass"]), st.floats(0, 6)),
        max_size=40,
    )
)
def test_never_two_holders_and_tokens_only_grow(steps):
    """Three candidates with one clock, in any interleaving."""
    with cells.open(f"memory:{uuid.uuid4()}") as connection:
        clock = Clock()
        leases = [candidate(connection, str(number), clock, ttl="5 s") for number in range(3)]
        highest = 0
        for number, verb, passed in steps:
            lease = leases[number]
            before = lease.held
            if verb == "try" and lease.try_acquire() and not before:
                assert lease.token > highest
                highest = lease.token
            elif verb == "renew":
                try:
                    lease.renew()
                except LeaseLost:
                    assert not lease.held
            elif verb == "release":
                lease.release()
            clock.now += passed if verb == "pass" else 0
            assert sum(lease.held for lease in leases) <= 1


def test_elections_one_leader_at_a_time_with_growing_tokens(connection):
    stop, led = threading.Event(), []
    alone = threading.Lock()

    def run(name):
        for leadership in leader_election(connection, "chief", name, ttl="5 s", stop=stop):
            assert leadership.held
            assert alone.acquire(blocking=False)
            led.append(leadership.token)
            alone.release()
            if len(led) >= 12:
                stop.set()

    in_parallel(*(lambda name=name: run(name) for name in ("a", "b", "c")))
    assert led == sorted(set(led))


def test_a_candidate_survives_an_outage(connection, monkeypatch):
    holder, stop, leaders, refusals = Lease(connection, "boss", holder="a", ttl="1 min"), threading.Event(), [], []
    holder.acquire()
    load = memory.MemoryBackend.load

    def counted(self, *args):
        try:
            return load(self, *args)
        except Offline:
            refusals.append(1)
            raise

    def stand():
        with cells.open(connection.url, timeout="0.1 s") as own:
            for leadership in leader_election(own, "boss", "b", ttl="2 s", stop=stop):
                leaders.append(leadership.token)
                stop.set()

    monkeypatch.setattr(memory.MemoryBackend, "load", counted)
    candidate = threading.Thread(target=stand)
    candidate.start()
    eventually(lambda: len(connection._backend._broker.listeners) == 2)
    with memory.outage(connection.url):
        eventually(lambda: len(refusals) >= 20 or not candidate.is_alive())
    assert candidate.is_alive()
    holder.release()
    candidate.join(SOON)
    assert len(leaders) == 1


def test_a_lease_counts_the_time_in_which_the_machine_was_suspended(connection):
    ours = Lease(connection, "boss")._clock
    before, now, after = time.clock_gettime(time.CLOCK_BOOTTIME), ours(), time.clock_gettime(time.CLOCK_BOOTTIME)
    assert before <= now <= after


def test_leases_work_on_every_backend(place):
    first, second = place.open(), place.open()
    with Lease(first, "boss", holder="a") as lease:
        token = lease.token
        other = Lease(second, "boss", holder="b")
        assert not other.try_acquire()
    assert other.acquire(timeout=IN_TIME) > token
    other.close()
    other.close()
