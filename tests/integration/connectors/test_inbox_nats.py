"""The inbox at a NATS server: the same contract as in a folder, and a server that is killed and comes back."""

from __future__ import annotations

import threading
import uuid
from datetime import UTC, datetime, timedelta

import pytest

from servers.nats_server import nats, running_nats  # noqa: F401
from support.memory_inbox import block, in_a_child, whole
from support.waiting import eventually
from tidewheel.errors import ConfigError
from tidewheel.fleet import InboxError, InboxUnavailable, Router, open_inbox
from tidewheel.fleet._inbox import Block, decode_events, lag, limited
from tidewheel.fleet._inbox.with_nats import marks as nats_marks
from tidewheel.fleet._inbox.with_nats.inbox import NatsInbox


@pytest.fixture
def url(nats):  # noqa: F811
    return nats.url(f"t-{uuid.uuid4().hex}")


@pytest.fixture
def inbox(url):
    with open_inbox(url, 4) as opened:
        yield opened


def test_appended_blocks_are_read_back_by_position(inbox, url):
    inbox.append("p", "s", [block(0, 1, b"1"), block(3, 1, b"2", b"3")])
    middle = inbox.end([0, 3])
    inbox.append("q", "s", [block(3, 1, b"4")])
    ends = inbox.end(range(4))
    found = [(b.producer, b.block.shard, decode_events(b).payloads) for b in whole(inbox)]
    assert sorted(found[:2]) == [("p", 0, [b"1"]), ("p", 3, [b"2", b"3"])]
    assert found[2:] == [("q", 3, [b"4"])]
    assert [b.block.data for b in inbox.read({3: middle[3]}, {3: ends[3]})] == [block(3, 1, b"4").data]
    assert list(inbox.read(ends, ends)) == []
    with open_inbox(url) as reader:
        assert whole(reader) == whole(inbox)


def test_the_same_stamps_are_stored_once_also_after_a_restart(inbox, url):
    blocks = [block(0, 1, b"1"), block(1, 1, b"2")]
    with open_inbox(url) as other:
        for opened in (inbox, inbox, other):
            opened.append("p", "s", blocks)
        assert other.marks("p") == {0: 1, 1: 1}
        other.append("p", "s", [block(0, 2, b"3")])
    inbox.append("p", "s", [block(0, 2, b"3")])
    assert sorted(b.block.shard for b in whole(inbox)) == [0, 0, 1]


def test_left_out_numbers_and_another_session_are_refused(inbox):
    inbox.append("p", "s", [block(0, 1, b"1", b"2")])
    for session, wrong in (("s", block(0, 4, b"4")), ("s", block(0, 2, b"2", b"3")), ("t", block(0, 2, b"x"))):
        with pytest.raises(InboxError, match="another program uses the same producer name"):
            inbox.append("p", session, [wrong])
    inbox.append("p", "t", [block(0, 3, b"3")])
    assert len(whole(inbox)) == 2


def test_each_shard_remembers_which_session_stored_its_last_event(inbox, url):
    inbox.append("p", "s", [block(0, 1, b"s")])
    inbox.append("p", "t", [block(1, 1, b"t")])
    inbox.trim(inbox.end(range(4)))
    with open_inbox(url) as other:
        for opened in (inbox, other):
            with pytest.raises(InboxError, match="another program uses the same producer name"):
                opened.append("p", "t", [block(0, 1, b"new")])
            opened.append("p", "s", [block(0, 1, b"s")])
            opened.append("p", "t", [block(1, 1, b"t")])
    assert whole(inbox) == []


def test_many_blocks_are_read_in_pieces_and_a_limit_cuts_them(inbox, monkeypatch):
    monkeypatch.setattr("tidewheel.fleet._inbox.with_nats.inbox._FETCH", 20)
    with Router(inbox, "p", max_waiting=8) as router:
        router.route_many((number, number) for number in range(800))
    start, end = inbox.start(), inbox.end(range(4))
    blocks = whole(inbox)
    assert len(blocks) > 200
    assert sorted(int(payload) for b in blocks for payload in decode_events(b).payloads) == list(range(800))
    cut = limited(inbox, start, end, 100)
    taken = list(inbox.read(start, cut))
    assert 90 <= sum(b.block.count for b in taken) <= 100
    assert [*taken, *inbox.read(cut, end)] == blocks


def test_trimming(inbox):
    for number in range(1, 6):
        inbox.append("p", "s", [block(0, number, b"x")])
    third = whole(inbox)[2].position
    inbox.trim({0: third})
    assert len(whole(inbox)) == 5, "a shard without a position keeps all"
    inbox.trim(dict.fromkeys(range(4), third))
    assert [b.block.first for b in whole(inbox)] == [3, 4, 5]
    with pytest.raises(InboxError, match="trimmed"):
        list(inbox.read({0: 1}, inbox.end([0])))
    inbox.trim(dict.fromkeys(range(4), 6))
    assert whole(inbox) == []
    inbox.append("p", "s", [block(0, 6, b"y")])
    assert [b.block.first for b in whole(inbox)] == [6]


def test_young_records_can_be_kept_from_a_trim(inbox, monkeypatch):
    inbox.append("p", "s", [block(0, 1, b"x")])
    between = datetime.now(UTC)

    class Later(datetime):
        @classmethod
        def now(cls, tz=None):
            return between + timedelta(seconds=60)

    for number in (2, 3):
        inbox.append("p", "s", [block(0, number, b"x")])
    monkeypatch.setattr("tidewheel.fleet._inbox.with_nats.inbox.datetime", Later)
    inbox.trim(dict.fromkeys(range(4), 4), older_than="60 s")
    assert [b.block.first for b in whole(inbox)] == [2, 3]


def test_marks_outlive_the_messages_that_were_trimmed(inbox, url):
    events = [(f"u{n % 10}", {"n": n}) for n in range(100)]
    for already in (0, 100, 100):
        with open_inbox(url) as fresh, Router(fresh, "import", replay=True) as router:
            router.route_many(events)
            router.flush()
            assert (router.delivered, router.duplicates) == (100 - already, already)
        inbox.trim(inbox.end(range(4)))
        assert whole(inbox) == []
    with Router(inbox, "import") as router:
        router.route("u1", {"n": 100})
    assert sum(inbox.marks("import").values()) == 101


def test_a_stored_block_is_recognised_after_a_lost_answer_and_a_trim(inbox, url):
    blocks = [block(0, 1, b"x"), block(1, 1, b"y")]
    inbox.append("p", "s", blocks)
    with open_inbox(url) as fresh:
        fresh.trim(fresh.end(range(4)))
        fresh.append("p", "s", blocks)
    inbox.append("p", "s", blocks)
    assert whole(inbox) == []


def test_planning_reads_stamps_and_no_blocks(inbox, monkeypatch):
    for number in range(1, 4):
        inbox.append("p", "s", [Block(shard, number, 1, b"x" * 100_000) for shard in range(4)])
    monkeypatch.setattr(inbox, "_shard", None)
    assert lag(inbox, inbox.start()) == (dict.fromkeys(range(4), 3), True)
    assert lag(inbox, inbox.start(), max_blocks=4)[1] is False
    cut = limited(inbox, inbox.start(), inbox.end(range(4)), 5)
    assert set(cut.values()) == {6}


def test_an_inbox_opened_before_a_fork_is_refused_in_the_child(inbox):
    assert in_a_child(lambda: inbox.append("p", "s", [block(0, 1, b"x")])) == "InboxError"
    inbox.append("p", "s", [block(0, 1, b"x")])
    assert len(whole(inbox)) == 1


def test_events_to_skip_are_remembered(inbox, url):
    inbox.skip(1, 2, 3)
    inbox.skip(0, 7, 1)
    with open_inbox(url) as fresh:
        assert fresh.skipped() == {(1, 2, 3), (0, 7, 1)}


def test_events_to_skip_outlive_producers_and_go_with_their_blocks(monkeypatch, url):
    monkeypatch.setattr(nats_marks, "NAMED_MARKS_S", 0.5)
    with open_inbox(url, 4) as inbox:
        inbox.append("p", "s", [block(0, 1, b"1")])
        inbox.append("p", "s", [block(1, 1, b"2")])
        inbox.skip(1, 2, 1)
        inbox.skip(0, 1, 1)
        inbox.trim(dict.fromkeys(range(4), 2))
        eventually(lambda: 0 not in inbox.marks("p"), "the removal of the marks by the server")
        assert (1, 2, 1) in inbox.skipped()
        inbox.skip(2, 3, 1)
        assert inbox.skipped() == {(1, 2, 1), (2, 3, 1)}, "position 1 is trimmed"


def test_a_killed_server_loses_nothing_that_it_acknowledged(tmp_path):
    with (
        running_nats(tmp_path / "nats") as server,
        NatsInbox(server.url(), 4, timeout=0.5) as inbox,
        Router(inbox, "p", max_waiting=20) as router,
    ):
        done = threading.Event()

        def produce():
            router.route_many((number, number) for number in range(2000))
            router.flush()
            done.set()

        thread = threading.Thread(target=produce)
        thread.start()
        for delivered in (200, 900):
            while router.delivered < delivered and not done.is_set():
                done.wait(0.001)
            server.kill()
            server.start()
        thread.join()
        with open_inbox(server.url()) as patient:
            payloads = [int(payload) for b in whole(patient) for payload in decode_events(b).payloads]
        assert sorted(payloads) == list(range(2000))
        server.kill()
        with pytest.raises(InboxUnavailable, match="does not answer"):
            inbox.end([0])


def test_invalid_inboxes_are_refused(inbox, url):
    with pytest.raises(ConfigError, match="there is no inbox"):
        open_inbox(url + "x")
    with pytest.raises(ConfigError, match="has 4 shards, not 8"):
        open_inbox(url, 8)
    for wrong in ("nats://localhost", "nats://localhost/a.b"):
        with pytest.raises(ConfigError, match="must name a server and an inbox"):
            open_inbox(wrong)
    with pytest.raises(ConfigError, match="cannot be made: replicas > 1 not supported"):
        open_inbox(f"{url}y?replicas=3", 4)
    with pytest.raises(InboxUnavailable, match="does not answer"):
        NatsInbox("nats://127.0.0.1:9/x", 4, timeout=0.1)
    inbox.close()
    with pytest.raises(InboxError, match="was closed"):
        inbox.end([0])


def test_a_block_that_the_server_cannot_take_is_refused_at_once(inbox):
    with pytest.raises(InboxError, match=r"a block of .* bytes is for .*; make blocks smaller, or raise max_payload"):
        inbox.append("p", "s", [block(0, 1, b'"' + b"x" * inbox.max_block_bytes + b'"')])
    inbox.append("p", "s", [block(0, 1, b"1")])
    assert len(whole(inbox)) == 1


def test_an_inbox_that_an_older_version_made_stays_readable_by_it(nats, url):  # noqa: F811
    name = url.rpartition("/")[2]
    nats.make_stream(
        name, f"{name}.*.*", allow_direct=True, metadata={"tidewheel-shards": "4", "tidewheel-format": "2"}
    )
    with open_inbox(url, 4) as inbox, Router(inbox) as router:
        router.route_many((f"k{n}", n) for n in range(20))
        router.flush()
        # The first byte of what that version reads: an array.
        assert {each.block.data[0] for each in whole(inbox)} == {0x95}
    with open_inbox(f"{url}-new", 4) as inbox, Router(inbox) as router:
        router.route_many((f"k{n}", n) for n in range(20))
        router.flush()
        assert {each.block.data[0] for each in whole(inbox)} == {0x28}


FOREIGN = {
    "no header": (2, "stranger", {}),
    "a header of another kind": (2, "stranger", {"Tidewheel-Block": "hello"}),
    "a number that is none": (2, "stranger", {"Tidewheel-Block": "s 1 +1 0"}),
    "numbers that go back": (2, "stranger", {"Tidewheel-Block": "s 5 3 6"}),
    "a number beyond 64 bits": (2, "stranger", {"Tidewheel-Block": f"s {2**63} 1 0"}),
    "a shard that is none": ("x", "stranger", {"Tidewheel-Block": "s 1 1 0"}),
    "a shard that there is not": (4, "stranger", {"Tidewheel-Block": "s 1 1 0"}),
    "a shard with a zero before it": ("02", "stranger", {"Tidewheel-Block": "s 1 1 0"}),
    "a producer that cannot be": (2, "not~one", {"Tidewheel-Block": "s 1 1 0"}),
    "under a producer's own name": (2, "p", {}),
    "a status as the server has it": (2, "stranger", {"Status": "204"}),
}


@pytest.mark.parametrize("foreign", FOREIGN.values(), ids=FOREIGN)
def test_a_foreign_message_in_the_stream_is_passed_over(inbox, url, nats, foreign):  # noqa: F811
    shard, producer, headers = foreign
    inbox.append("p", "s", [block(2, 1, b"1"), block(3, 1, b"2")])
    nats.send(f"{url.rpartition('/')[2]}.{shard}.{producer}", [b"boo"], headers=headers)
    inbox.append("p", "s", [block(2, 2, b"3")])
    with open_inbox(url) as opened:
        found = [(b.block.shard, decode_events(b).payloads) for b in whole(opened)]
        assert sorted(found) == [(2, [b"1"]), (2, [b"3"]), (3, [b"2"])]
        sizes = [(shard, count) for _, shard, count in opened.sizes(opened.start(), opened.end(range(4)))]
        assert sorted(sizes) == [(2, 1), (2, 1), (3, 1)]
        assert lag(opened, opened.start())[0] == {0: 0, 1: 0, 2: 2, 3: 1}
        opened.skip(2, 1, 1)
        assert opened.marks("p") == {2: 2, 3: 1}
        opened.trim(opened.end(range(4)))
        assert whole(opened) == []
        assert opened.marks("p") == {2: 2, 3: 1}


def test_a_producer_continues_after_a_foreign_message_on_its_subject(inbox, url, nats):  # noqa: F811
    name = url.rpartition("/")[2]
    inbox.append("p", "s", [block(2, 1, b"1")])
    nats.send(f"{name}.2.p", [b"boo"], headers={})
    with open_inbox(url) as other:
        other.append("p", "s", [block(2, 1, b"1")])
        other.append("p", "s", [block(2, 2, b"2")])
        nats.send(f"{name}.2.p", [b"boo"], headers={})
        end = other.end(range(4))
        other.trim({shard: position - 1 for shard, position in end.items()})
        assert other.marks("p") == {2: 2}
    with open_inbox(url) as later:
        later.append("p", "s", [block(2, 2, b"2")])
        later.append("p", "s", [block(2, 3, b"3")])
        assert [decode_events(b).payloads for b in whole(later)] == [[b"3"]]
