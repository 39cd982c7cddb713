"""Router: batches, back-pressure, flush, and no event twice however often a delivery fails."""

from __future__ import annotations

import itertools
import threading
import time

import msgspec
import pytest

from support.internals import from_stored, shard_of
from support.memory_inbox import MemoryInbox, failing, in_a_child, whole
from support.waiting import IN_TIME, eventually
from tidewheel.errors import ConfigError, TidewheelError
from tidewheel.fleet import InboxError, InboxUnavailable, NotTaken, Router
from tidewheel.fleet._inbox import decode_events


def events_of(inbox) -> list[tuple[object, bytes]]:
    found = []
    for stored in whole(inbox):
        events = decode_events(stored)
        assert all(shard_of(from_stored(key), inbox.n_shards) == stored.block.shard for key in events.keys)
        found += zip(map(from_stored, events.keys), events.payloads, strict=True)
    return found


def test_events_arrive_once_in_the_order_of_each_key():
    inbox = MemoryInbox()
    with Router(inbox, batch_events=7) as router:
        for number in range(100):
            router.route(f"k{number % 5}", {"n": number})
    found = events_of(inbox)
    assert len(found) == 100 == router.delivered
    for key in range(5):
        assert [payload for name, payload in found if name == f"k{key}"] == [
            b'{"n":%d}' % number for number in range(key, 100, 5)
        ]


def test_an_event_goes_out_by_itself_after_a_while():
    inbox = MemoryInbox()
    with Router(inbox, linger="0.01 s") as router:
        router.route(1, b"{}")
        eventually(lambda: router.delivered == 1)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_failed_delivery_is_tried_again_under_the_same_stamp(when):
    inbox = MemoryInbox()
    setattr(inbox, when, failing(3))
    with Router(inbox) as router:
        router.route("a", 1)
        router.flush()
    assert events_of(inbox) == [("a", b"1")]
    assert inbox.appends == 4


def test_flush_reports_a_timeout_and_can_be_called_again():
    inbox = MemoryInbox()
    inbox.after = failing(1)
    with Router(inbox, timeout="0 s") as router:
        router.route("a", 1)
        with pytest.raises(InboxUnavailable, match="do not route them again"):
            router.flush()
        with pytest.raises(NotTaken, match="1 events that were taken before are kept") as refused:
            router.route("b", 2)
        assert refused.value.taken == 0
        router.flush()
        router.route("b", 2)
    assert events_of(inbox) == [("a", b"1"), ("b", b"2")]


def test_route_many_returns_how_many_it_accepted():
    inbox, gate = MemoryInbox(), threading.Event()
    calls = itertools.count()

    def before():
        if next(calls) == 1:
            gate.wait()
            raise InboxUnavailable("the server is away")

    inbox.before = before
    with Router(inbox, "p", batch_events=5, max_waiting=10, timeout="0 s") as router:
        events = [(f"k{n}", n) for n in range(100)]

        def source():
            for event in events:
                if event[1] == 25:
                    gate.set()
                yield event

        with pytest.raises(NotTaken) as refused:
            router.route_many(source())
        taken = refused.value.taken
        assert 0 < taken < 100
        router.flush()
        assert router.delivered == taken
        router.route_many(events[taken:])
    assert sorted(int(payload) for _, payload in events_of(inbox)) == list(range(100))


@pytest.mark.parametrize("bad", [("k", object()), ("k", "x" * 2**20), (["list"], 1), (None, 1)])
def test_route_many_takes_the_events_before_a_bad_one(bad):
    inbox = MemoryInbox()
    with Router(inbox) as router:
        with pytest.raises(TidewheelError):
            router.route_many([("a", 1), ("b", b"2"), bad, ("c", 3)])
        with pytest.raises(KeyError):
            router.route_many(_raising())
    assert sorted(events_of(inbox)) == [("a", b"1"), ("b", b"2"), ("d", b"4")]


def _raising():
    yield ("d", 4)
    raise KeyError("the source failed")


def test_flush_waits_for_its_own_events_and_not_for_quiet():
    inbox, stop = MemoryInbox(4), threading.Event()
    inbox.before = lambda: time.sleep(0.005)
    with Router(inbox, "p", linger="0.001 s") as router:

        def busy():
            for number in itertools.count():
                if stop.is_set():
                    return
                router.route(f"k{number % 50}", b"1")

        thread = threading.Thread(target=busy)
        thread.start()
        try:
            eventually(lambda: router.delivered > 100)
            router.route("mine", b"2")
            router.flush(timeout=IN_TIME)
            assert ("mine", b"2") in events_of(inbox)
        finally:
            stop.set()
            thread.join()


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("own_numbers", [False, True])
def test_a_finished_round_waits_until_the_one_before_is_stored(when, own_numbers):
    inbox, gate, rounds = MemoryInbox(1), threading.Event(), []
    fails = failing(2)

    def slow():
        rounds.append(len(inbox.log))
        gate.wait()
        fails()

    setattr(inbox, when, slow)
    with Router(inbox, "p", own_numbers=own_numbers, batch_events=1, timeout="0 s") as router:
        for number in range(1, 4):
            router.route("k", number, 10 * number if own_numbers else None)
            eventually(lambda: rounds)
        eventually(lambda: router._ready)
        gate.set()
        eventually(lambda: router._error is not None)
        with pytest.raises(InboxUnavailable, match="3 events could not be stored"):
            router.flush()
        router.flush()
    assert rounds[:3] == [0 if when == "before" else 1] * 3
    assert events_of(inbox) == [("k", b"1"), ("k", b"2"), ("k", b"3")]


def test_waiting_events_are_limited_in_bytes_too():
    inbox, gate = MemoryInbox(1), threading.Event()
    inbox.before = gate.wait
    with Router(inbox, max_waiting_bytes=10_000) as router:
        done = []
        thread = threading.Thread(target=lambda: [done.append(router.route("k", "x" * 1000)) for _ in range(100)])
        thread.start()
        eventually(lambda: router._gathered.size + router._ahead_bytes >= 10_000)
        assert len(done) < 30
        gate.set()
        thread.join()
    assert len(events_of(inbox)) == 100


def test_an_unexpected_error_of_a_sender_closes_the_router(monkeypatch):
    inbox = MemoryInbox()
    router = Router(inbox, "p", linger="60 s")
    monkeypatch.setattr("tidewheel.fleet._nodes.gathering.Cutter.rounds", lambda *_: {}["a bug"])
    router.route("k", 1)
    for use in (router.flush, lambda: router.route("k", 2), router.close):
        with pytest.raises(InboxError, match="did not expect \\(KeyError: 'a bug'\\); 1 events"):
            use()


def test_a_router_made_before_a_fork_is_refused_in_the_child():
    inbox = MemoryInbox()
    with Router(inbox) as router:
        router.route("k", 1)
        assert in_a_child(lambda: router.route("k", 2)) == "InboxError"
    assert events_of(inbox) == [("k", b"1")]


@pytest.mark.parametrize("size", [10, 600, 6000])
@pytest.mark.parametrize("already", [0, 1, 600, 900, 1000])
def test_a_replay_of_large_events_by_route_many_adds_the_rest(size, already):
    inbox = MemoryInbox(1)
    events = [("k", {"n": n, "pad": "x" * size}) for n in range(1000)]
    with Router(inbox, "import", replay=True) as router:
        router.route_many(events[:already])
    with Router(inbox, "import", replay=True) as router:
        router.route_many(events)
    assert (router.delivered, router.duplicates) == (1000 - already, already)
    assert [msgspec.json.decode(payload)["n"] for _, payload in events_of(inbox)] == list(range(1000))
    assert all(stored.block.count > 0 for stored in inbox.log)


def test_a_producer_with_its_own_numbers_may_restart_before_its_last_event():
    inbox = MemoryInbox(4)
    events = [(f"k{n % 7}", n, 10 * n) for n in range(1, 101)]
    for first, last in ((0, 30), (10, 60), (0, 100), (90, 100)):
        with Router(inbox, "topic-0", own_numbers=True, batch_events=7) as router:
            for key, payload, number in events[first:last]:
                router.route(key, payload, number)
    assert sorted(int(payload) for _, payload in events_of(inbox)) == list(range(1, 101))
    for stored in inbox.log:
        decoded = decode_events(stored)
        assert decoded.numbers == [10 * int(payload) for payload in decoded.payloads]
    with Router(inbox, "topic-0", own_numbers=True) as router:
        router.route("k", 1, 5000)
        with pytest.raises(ConfigError, match="must grow: 4000 came after 5000"):
            router.route("k", 1, 4000)
        with pytest.raises(ConfigError, match="give a number with each event"):
            router.route("k", 1)
        with pytest.raises(ConfigError, match="one by one"):
            router.route_many([("k", 1)])


def test_an_anonymous_producer_is_forgotten_when_it_is_done():
    inbox = MemoryInbox()
    with Router(inbox) as router:
        router.route("k", 1)
        router.flush()
        assert inbox.marks(router.producer)
    assert not inbox.marks(router.producer)


@pytest.mark.parametrize("keys", [[b"a", b"b"], ["a", b"a"], [1, 2], ["a", "ä" * 40, ""]])
def test_route_many_stores_the_keys_and_shards_that_route_stores(keys):
    stored = []
    for many in (True, False):
        inbox = MemoryInbox(4)
        with Router(inbox) as router:
            if many:
                router.route_many((key, 1) for key in keys)
            else:
                for key in keys:
                    router.route(key, 1)
        stored.append(sorted((each.block.shard, key) for each in whole(inbox) for key in decode_events(each).keys))
    assert stored[0] == stored[1]


def test_payloads_with_line_breaks_stay_one_event_each():
    inbox = MemoryInbox(1)
    with Router(inbox) as router:
        router.route("k", b'{"a":\n1}')
        router.route_many([("k", b"[\n]"), ("k", "a\nb")])
    assert [payload for _, payload in events_of(inbox)] == [b'{"a": 1}', b"[ ]", b'"a\\nb"']


def test_a_producer_waits_while_its_inbox_is_slower():
    inbox, gate = MemoryInbox(), threading.Event()
    inbox.before = gate.wait
    router = Router(inbox, batch_events=2, max_waiting=4)
    done = []
    thread = threading.Thread(target=lambda: [done.append(router.route(n, n)) for n in range(20)])
    thread.start()
    eventually(lambda: router._gathered.count + router._ahead_events == 4)
    assert len(done) < 20
    gate.set()
    thread.join()
    router.close()
    assert len(events_of(inbox)) == 20


def test_who_waits_for_room_does_not_wait_for_the_batch_to_fill_up():
    inbox = MemoryInbox()
    with Router(inbox, batch_events=50, max_waiting=60, linger="3600 s") as router:
        for _ in range(4):
            router.route_many([("k", n) for n in range(40)])
    assert len(events_of(inbox)) == 160


def test_a_flush_has_a_time_limit_and_loses_nothing():
    inbox, gate = MemoryInbox(), threading.Event()
    inbox.before = gate.wait
    with Router(inbox) as router:
        router.route("a", 1)
        with pytest.raises(InboxUnavailable, match=r"1 events .* they are kept"):
            router.flush(timeout="0.01 s")
        gate.set()
    assert len(events_of(inbox)) == 1


def test_a_replay_skips_stored_events_and_adds_the_others():
    inbox = MemoryInbox()
    for total in (10, 10, 25):
        with Router(inbox, "lines", replay=True, batch_events=3) as router:
            router.route_many((n % 4, n) for n in range(total))
    assert router.duplicates == 10
    assert sorted(int(payload) for _, payload in events_of(inbox)) == list(range(25))


def test_a_named_producer_continues_after_its_last_event():
    inbox = MemoryInbox()
    for number in range(3):
        with Router(inbox, "sensor") as router:
            router.route("k", number)
    assert [payload for _, payload in events_of(inbox)] == [b"0", b"1", b"2"]
    assert list(inbox.marks("sensor").values()) == [3]


def test_two_programs_under_one_name_lose_no_events_silently():
    inbox = MemoryInbox()
    one, other = Router(inbox, "same"), Router(inbox, "same")
    one.route("k", 1)
    one.flush()
    other.route("k", 2)
    with pytest.raises(InboxError, match="another program uses the same producer name"):
        other.flush()
    one.close()
    with pytest.raises(InboxError):
        other.close()


def test_large_events_are_split_into_blocks_and_too_large_ones_refused():
    inbox = MemoryInbox(1)
    inbox.max_block_bytes = 4000
    with Router(inbox, batch_events=1000, linger="60 s") as router:
        for number in range(40):
            router.route("k", f"{number:0200}")
        with pytest.raises(ConfigError, match="takes 1000"):
            router.route("k", "x" * 1000)
    assert len(events_of(inbox)) == 40
    assert all(len(stored.block.data) <= 4000 for stored in inbox.log)


def test_invalid_use_of_a_router_is_refused_by_name():
    with Router(MemoryInbox()) as router, pytest.raises(ConfigError, match="cannot be written as JSON"):
        router.route("k", object())
    with pytest.raises(ConfigError, match="cannot name a producer"):
        Router(MemoryInbox(), "a b")
    with pytest.raises(ConfigError, match="need the name"):
        Router(MemoryInbox(), replay=True)
    with pytest.raises(InboxError, match="was closed"):
        router.route("k", 1)


def test_many_threads_share_a_router():
    inbox = MemoryInbox()
    with Router(inbox, batch_events=50, max_waiting=60) as router:
        threads = [
            threading.Thread(target=lambda t=t: router.route_many((f"{t}.{n}", n) for n in range(200)))
            for t in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(set(events_of(inbox))) == 800
