"""Router: batches, back-pressure, flush, and no event twice however often a delivery fails."""

from __future__ import annotations

import threading

import pytest

from cell_places import eventually
from memory_inbox import MemoryInbox, failing, whole
from tidewheel._connectors.inbox import decode_events
from tidewheel._connectors.inbox.errors import InboxError, InboxUnavailable
from tidewheel._core.keys import from_stored, shard_of
from tidewheel._fleet.router import Router
from tidewheel.errors import ConfigError


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
    with Router(inbox, linger=0.01) as router:
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


def test_after_the_time_is_up_flush_says_so_and_may_be_called_again():
    inbox = MemoryInbox()
    inbox.after = failing(1)
    with Router(inbox, timeout=0) as router:
        router.route("a", 1)
        with pytest.raises(InboxUnavailable, match="do not route them a second time"):
            router.flush()
        with pytest.raises(InboxUnavailable):
            router.route("b", 2)
        router.flush()
    assert events_of(inbox) == [("a", b"1")]


def test_a_producer_waits_while_its_inbox_is_slower():
    inbox, gate = MemoryInbox(), threading.Event()
    inbox.before = gate.wait
    router = Router(inbox, batch_events=2, max_waiting=4)
    done = []
    thread = threading.Thread(target=lambda: [done.append(router.route(n, n)) for n in range(20)])
    thread.start()
    eventually(lambda: router._waiting == 4)
    assert len(done) < 20
    gate.set()
    thread.join()
    router.close()
    assert len(events_of(inbox)) == 20


def test_a_flush_has_a_time_limit_and_loses_nothing():
    inbox, gate = MemoryInbox(), threading.Event()
    inbox.before = gate.wait
    with Router(inbox) as router:
        router.route("a", 1)
        with pytest.raises(InboxUnavailable, match=r"1 events .* they are kept"):
            router.flush(timeout=0.01)
        gate.set()
    assert len(events_of(inbox)) == 1


def test_a_replay_passes_over_what_is_stored_and_adds_the_rest():
    inbox = MemoryInbox()
    for total in (10, 10, 25):
        with Router(inbox, "lines", replay=True, batch_events=3) as router:
            router.route_many((n % 4, n) for n in range(total))
    assert router.duplicates == 10
    assert sorted(int(payload) for _, payload in events_of(inbox)) == list(range(25))


def test_a_named_producer_goes_on_after_its_last_event():
    inbox = MemoryInbox()
    for number in range(3):
        with Router(inbox, "sensor") as router:
            router.route("k", number)
    assert [payload for _, payload in events_of(inbox)] == [b"0", b"1", b"2"]
    assert list(inbox.marks("sensor").values()) == [3]


def test_two_programs_under_one_name_do_not_lose_events_to_each_other_silently():
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


def test_large_events_are_cut_into_several_blocks_and_too_large_ones_refused():
    inbox = MemoryInbox(1)
    inbox.max_block_bytes = 4000
    with Router(inbox, batch_events=1000, linger=60) as router:
        for number in range(40):
            router.route("k", f"{number:0200}")
        with pytest.raises(ConfigError, match="takes 1000"):
            router.route("k", "x" * 1000)
    assert len(events_of(inbox)) == 40
    assert all(len(stored.block.data) <= 4000 for stored in inbox.log)


def test_what_cannot_be_sent_is_refused_by_name():
    with Router(MemoryInbox()) as router, pytest.raises(ConfigError, match="cannot be written as JSON"):
        router.route("k", object())
    with pytest.raises(ConfigError, match="cannot name a producer"):
        Router(MemoryInbox(), "a b")
    with pytest.raises(ConfigError, match="needs the name"):
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
