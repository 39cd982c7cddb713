"""The inbox in a folder: crashes at every step, damage, several processes, trimming."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.internals import faults
from support.memory_inbox import block, in_a_child, whole
from tidewheel.errors import ConfigError, CorruptError, StorageError
from tidewheel.fleet import InboxError, Router, open_inbox
from tidewheel.fleet._inbox import Block, decode_events, lag, limited
from tidewheel.fleet._inbox.base import anonymous_producer
from tidewheel.fleet._inbox.file import FileInbox


@pytest.fixture
def inbox(tmp_path):
    with FileInbox(f"{tmp_path}/inbox", 4) as opened:
        yield opened


def again(inbox: FileInbox) -> FileInbox:
    return FileInbox(inbox.url)


def the_log(inbox: FileInbox) -> str:
    return sorted(name for name in os.listdir(inbox._folder) if name.endswith(".log"))[-1]


def test_appended_events_are_read_by_position_after_any_earlier_content(inbox):
    inbox.append("p", "s", [block(0, 1, b"1"), block(3, 1, b"2", b"3")])
    middle = inbox.end([0, 3])
    inbox.append("q", "s", [block(3, 1, b"4")])
    ends = inbox.end(range(4))
    assert [(b.producer, b.block.shard, decode_events(b).payloads) for b in whole(inbox)] == [
        ("p", 0, [b"1"]),
        ("p", 3, [b"2", b"3"]),
        ("q", 3, [b"4"]),
    ]
    assert [b.block.data for b in inbox.read({3: middle[3]}, {3: ends[3]})] == [block(3, 1, b"4").data]
    assert list(inbox.read({3: ends[3]}, {3: ends[3]})) == []
    with again(inbox) as reader:
        assert whole(reader) == whole(inbox)


def test_the_same_stamps_are_stored_once_also_after_a_restart(inbox):
    blocks = [block(0, 1, b"1"), block(1, 1, b"2")]
    for opened in (inbox, inbox, again(inbox)):
        opened.append("p", "s", blocks)
    again(inbox).append("p", "s", [*blocks[:1], block(2, 1, b"3")])
    assert [b.block.shard for b in whole(inbox)] == [0, 1, 2]
    assert again(inbox).marks("p") == {0: 1, 1: 1, 2: 1}


def test_left_out_numbers_and_another_session_are_refused(inbox):
    inbox.append("p", "s", [block(0, 1, b"1", b"2")])
    for session, wrong in (("s", block(0, 4, b"4")), ("s", block(0, 2, b"2", b"3")), ("t", block(0, 2, b"x"))):
        with pytest.raises(InboxError, match="another program uses the same producer name"):
            inbox.append("p", session, [wrong])
    inbox.append("p", "t", [block(0, 3, b"3")])


@pytest.mark.parametrize("segment", [1, 64 * 2**20], ids=["a file for each append", "one file"])
def test_each_shard_remembers_which_session_stored_its_last_event(tmp_path, segment):
    """Otherwise new events of one session would pass for repeated events of the other, and be dropped without an error."""
    with FileInbox(f"{tmp_path}/inbox", 4, segment_bytes=segment) as inbox:
        inbox.append("p", "s", [block(0, 1, b"s")])
        inbox.append("p", "t", [block(1, 1, b"t")])
        for opened in (inbox, again(inbox)):
            with pytest.raises(InboxError, match="another program uses the same producer name"):
                opened.append("p", "t", [block(0, 1, b"new")])
            opened.append("p", "s", [block(0, 1, b"s")])
            opened.append("p", "t", [block(1, 1, b"t")])
        inbox.append("p", "t", [block(0, 2, b"t")])
        for opened in (inbox, again(inbox)):
            with pytest.raises(InboxError, match="another program uses the same producer name"):
                opened.append("p", "s", [block(0, 2, b"new")])
            opened.append("p", "t", [block(0, 2, b"t")])
        assert [(b.block.shard, b.block.first) for b in whole(inbox)] == [(0, 1), (1, 1), (0, 2)]


@given(st.lists(st.tuples(st.sampled_from("pq"), st.sets(st.integers(0, 3), min_size=1)), max_size=30))
def test_any_appends_over_many_files_read_back_as_they_were(tmp_path_factory, appends):
    with FileInbox(str(tmp_path_factory.mktemp("inbox")), 4, segment_bytes=200) as inbox:
        numbers, sent = Counter(), []
        for producer, shards in appends:
            blocks = []
            for shard in sorted(shards):
                numbers[producer, shard] += 1
                blocks.append(block(shard, numbers[producer, shard], b"%d" % len(sent)))
            inbox.append(producer, "s", blocks)
            sent += [(producer, b) for b in blocks]
        assert [(b.producer, b.block) for b in whole(inbox)] == sent
        with again(inbox) as reader:
            for producer in "pq":
                assert reader.marks(producer) == {
                    shard: number for (name, shard), number in numbers.items() if name == producer
                }
        start, end = inbox.start(), inbox.end(range(4))
        assert sum(lag(inbox, start)[0].values()) == len(sent)
        assert lag(inbox, end) == (dict.fromkeys(range(4), 0), True)
        for most in (1, 5):
            cut = limited(inbox, start, end, most)
            taken = list(inbox.read(start, cut))
            assert len(taken) <= max(most, 4)
            assert [*taken, *inbox.read(cut, end)] == whole(inbox)
            assert bool(taken) == bool(sent)


def test_trimming_removes_whole_files_and_keeps_the_marks(tmp_path):
    with FileInbox(str(tmp_path), 2, segment_bytes=100) as inbox:
        for number in range(1, 11):
            inbox.append("p", "s", [block(0, number, b"x" * 50)])
        before = whole(inbox)
        half = before[5].position
        inbox.trim({0: half})
        assert whole(inbox)[-10:] == before, "a shard without a position keeps all"
        inbox.trim({0: half, 1: half})
        kept = whole(inbox)
        assert before[5:] == kept[-5:]
        assert len(kept) < 10
        with pytest.raises(InboxError, match="trimmed"):
            list(inbox.read({0: 0}, inbox.end([0])))
        inbox.trim(dict.fromkeys(range(2), 10**9))
        assert again(inbox).marks("p") == {0: 10}
        again(inbox).append("p", "s", [block(0, 10, b"x")])
        again(inbox).append("p", "s", [block(0, 11, b"y")])
        assert [b.block.first for b in whole(inbox)][-1] == 11


def test_an_inbox_opened_before_a_fork_is_refused_in_the_child(inbox):
    assert in_a_child(lambda: inbox.append("p", "s", [block(0, 1, b"child")])) == "InboxError"
    assert in_a_child(lambda: again(inbox).append("q", "s", [block(0, 1, b"child")])) == ""
    inbox.append("p", "s", [block(0, 1, b"parent")])
    assert [b.producer for b in whole(inbox)] == ["q", "p"]


class Disk:
    """Knows which bytes of the log are on the disk: after a sync that failed, what was written is lost and counts as clean."""

    def __init__(self, monkeypatch) -> None:
        self.failing = 0
        self.durable: dict[str, dict[int, int]] = {}
        self._dirty: dict[str, dict[int, int]] = {}
        self._pwritev, self._syncs = os.pwritev, {"fsync": os.fsync, "fdatasync": os.fdatasync}
        monkeypatch.setattr(os, "pwritev", self.pwritev)
        for name in self._syncs:
            monkeypatch.setattr(os, name, lambda descriptor, name=name: self.sync(name, descriptor))

    def pwritev(self, descriptor, pieces, at):
        written = self._pwritev(descriptor, pieces, at)
        dirty = self._dirty.setdefault(os.readlink(f"/proc/self/fd/{descriptor}"), {})
        dirty.update(enumerate(b"".join(pieces)[:written], at))
        return written

    def sync(self, name, descriptor):
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        dirty = self._dirty.pop(path, {})
        if path.endswith(".log") and self.failing:
            self.failing -= 1
            raise OSError(5, "Input/output error")
        self._syncs[name](descriptor)
        self.durable.setdefault(path, {}).update(dirty)


def test_events_of_a_failed_sync_are_written_again(inbox, monkeypatch):
    disk = Disk(monkeypatch)
    inbox.append("p", "s", [block(0, 1, b"first")])
    begins, before = the_log(inbox), inbox.end([0])[0]
    disk.failing = 1
    with pytest.raises(StorageError, match="Input/output error"):
        inbox.append("p", "s", [block(0, 2, b"second")])
    assert inbox.end([0])[0] == before
    inbox.append("p", "s", [block(0, 2, b"second")])
    path = f"{inbox._folder}/{begins}"
    tail = {at: byte for at, byte in enumerate(Path(path).read_bytes()) if at >= before}
    assert tail
    assert {at: disk.durable[path].get(at) for at in tail} == tail
    inbox.append("p", "s", [block(0, 3, b"third")])
    assert the_log(inbox) > begins, "nothing more is written to a file that could not be synced"
    assert [decode_events(b).payloads for b in whole(inbox)] == [[b"first"], [b"second"], [b"third"]]


@pytest.mark.parametrize("most", [1, 7, 100])
def test_a_system_that_writes_less_than_it_was_given(inbox, monkeypatch, most):
    pwrite, pwritev = os.pwrite, os.pwritev
    monkeypatch.setattr(os, "pwrite", lambda log, data, at: pwrite(log, data[: max(most, 16)], at))
    monkeypatch.setattr(os, "pwritev", lambda log, pieces, at: pwritev(log, [b"".join(pieces)[:most]], at))
    with FileInbox(f"{inbox._folder}/short", 1024) as short:
        short.append("p", "s", [block(shard, 1, b"%d" % shard) for shard in range(1024)])
        monkeypatch.undo()
        assert [decode_events(b).payloads for b in whole(again(short))] == [[b"%d" % n] for n in range(1024)]


def test_a_disk_that_keeps_failing_makes_nothing_durable(inbox, monkeypatch):
    disk = Disk(monkeypatch)
    inbox.append("p", "s", [block(0, 1, b"first")])
    disk.failing = 3
    for _ in range(3):
        with pytest.raises(StorageError):
            inbox.append("p", "s", [block(0, 2, b"second")])
        assert len(whole(inbox)) == 1
    inbox.append("p", "s", [block(0, 2, b"second")])
    assert len(whole(inbox)) == 2


def test_marks_are_removed_when_a_producer_is_silent_or_done(tmp_path, monkeypatch):
    with FileInbox(str(tmp_path), 2, segment_bytes=100) as inbox:
        inbox.append("named", "s", [block(0, 1, b"1")])
        anonymous = anonymous_producer()
        inbox.append(anonymous, "s", [block(0, 1, b"1")])
        done = anonymous_producer()
        inbox.append(done, "s", [block(0, 1, b"1")])
        inbox.forget(done)
        assert again(inbox).marks(done) == {}
        assert again(inbox).marks(anonymous) == {0: 1}
        for days, expected in ((2, {"named"}), (40, set())):
            now = time.time() + days * 86400
            monkeypatch.setattr("tidewheel.fleet._inbox.file.time.time", lambda now=now: now)
            for number in range(1, 4):
                inbox.append(f"later{days}", "s", [block(0, number, b"x" * 100)])
            with again(inbox) as fresh:
                assert {name for name in ("named", anonymous, done) if fresh.marks(name)} == expected


def test_thousands_of_producers_leave_small_files(tmp_path):
    with FileInbox(str(tmp_path), 1024, segment_bytes=10_000) as inbox:
        for number in range(300):
            with Router(inbox) as router:
                router.route_many((key, number) for key in range(30))
        assert sum(b.block.count for b in whole(inbox)) == 9000
        inbox.append("p", "s", [block(0, 1, b"x")])
        assert len(inbox._marks) == 1
        sizes = [path.stat().st_size for path in tmp_path.glob("*.log")]
        assert max(sizes) < 30_000


def test_marks_of_many_named_producers_take_half_of_the_log_at_most(tmp_path):
    with FileInbox(str(tmp_path), 64, segment_bytes=1000) as inbox:
        data = b"x" * 200
        for number in range(1, 200):
            blocks = [Block(shard, 1, 1, data) for shard in range(64)]
            inbox.append(f"producer-{number}", "s", blocks)
        sizes = sum(path.stat().st_size for path in tmp_path.glob("*.log"))
        assert sizes < 2.5 * 199 * 64 * (len(data) + 20)
        assert again(inbox).marks("producer-7") == dict.fromkeys(range(64), 1)


_APPEND = """
import sys
from tidewheel.fleet._inbox.file import FileInbox
from tidewheel.fleet._inbox import Block, encode_events
inbox = FileInbox(sys.argv[1], 4, segment_bytes=int(sys.argv[3]))
for number in range(1, int(sys.argv[4]) + 1):
    shards = range(4) if number % 2 else [number % 4]
    data = encode_events([b"sk"], [b"%d" % number])
    inbox.append(sys.argv[2], "s", [Block(s, inbox.marks(sys.argv[2]).get(s, 0) + 1, 1, data) for s in shards])
    print(number, flush=True)
"""


def run_producer(folder, name, appends, segment=10**9, fault=""):
    environment = {**os.environ, "TIDEWHEEL_FAULTS": fault}
    command = [sys.executable, "-c", _APPEND, str(folder), name, str(segment), str(appends)]
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True, cwd=folder.parent
    )


@pytest.mark.parametrize("segment", [10**9, 100])
@pytest.mark.parametrize("point", [name for name in faults.POINTS if name.startswith("inbox.")])
def test_a_producer_killed_at_any_point_loses_nothing_acknowledged(tmp_path, point, segment):
    folder = tmp_path / "inbox"
    acknowledged = run_producer(folder, "p", 9, segment, f"{point}=kill@5").communicate()[0].split()
    assert acknowledged == ["1", "2", "3", "4"]
    with FileInbox(str(folder), segment_bytes=segment) as inbox:
        stored = whole(inbox)
        payloads = Counter(decode_events(b).payloads[0] for b in stored)
        assert [payloads[b"%d" % n] for n in range(1, 5)] == [4, 1, 4, 1]
        assert payloads[b"5"] in ((0, 4) if point == "inbox.written" else (4,))
        # The one that got no answer sends again, under the same stamps.
        first = {s: inbox.marks("p").get(s, 0) - (payloads[b"5"] == 4) + 1 for s in range(4)}
        inbox.append("p", "s", [block(s, first[s], b"5") for s in range(4)])
        assert Counter(decode_events(b).payloads[0] for b in whole(inbox))[b"5"] == 4
        assert whole(inbox)[: len(stored)] == stored


def test_several_processes_append_at_once(tmp_path):
    folder = tmp_path / "inbox"
    with FileInbox(str(folder), 4) as inbox:
        producers = [run_producer(folder, name, 40, segment=4000) for name in ("p", "q", "r")]
        seen = []
        at = inbox.start()
        while any(process.poll() is None for process in producers):
            end = inbox.end(range(4))
            seen += inbox.read(at, end)
            at = end
        assert [process.communicate() and process.returncode for process in producers] == [0, 0, 0]
        seen += inbox.read(at, inbox.end(range(4)))
        assert seen == whole(inbox)
        for name in ("p", "q", "r"):
            for shard in range(4):
                numbers = [b.block.first for b in seen if b.producer == name and b.block.shard == shard]
                assert numbers == list(range(1, 21 + 10 * (shard % 2 == 0)))


@pytest.mark.parametrize("tail", [b"x", b"\0" * 100, b"\xff" * 40])
def test_a_torn_tail_is_cut_off(inbox, tail):
    inbox.append("p", "s", [block(0, 1, b"1")])
    before = whole(inbox)
    with open(f"{inbox._folder}/{the_log(inbox)}", "ab") as log:
        log.write(tail)
    assert whole(inbox) == before
    with again(inbox) as mended:
        mended.append("p", "s", [block(0, 2, b"2")])
        assert [b.block.first for b in whole(mended)] == [1, 2]


@pytest.mark.parametrize("damage", [b"", b"garbage", b"\0" * 16])
def test_a_lost_end_is_found_again_in_the_log(inbox, damage):
    inbox.append("p", "s", [block(0, 1, b"1")])
    inbox.append("p", "s", [block(0, 2, b"2")])
    before, end = whole(inbox), inbox.end([0])
    with open(f"{inbox._folder}/end", "wb") as file:
        file.write(damage)
    with again(inbox) as mended:
        assert (whole(mended), mended.end([0])) == (before, end)


def test_damage_is_named(inbox):
    inbox.append("p", "s", [block(0, 1, b"important")])
    path = f"{inbox._folder}/{the_log(inbox)}"
    with open(path, "rb") as file:
        data = file.read()
    with open(path, "wb") as log:
        log.write(data.replace(b"important", b"impostant"))
    with pytest.raises(CorruptError, match=r"shard 0 .* checksum"):
        whole(inbox)
    with open(path, "wb") as log:
        log.write(data[:-3])
    with pytest.raises(CorruptError, match="cut short"):
        again(inbox)
    with pytest.raises(InboxError, match="lost"):
        list(inbox.read({0: 0}, {0: 10**6}))
    with open(path, "wb") as log:
        log.write(data)
    with pytest.raises(CorruptError, match="no entry stands"):
        list(inbox.read({0: 3}, inbox.end([0])))


def test_invalid_inboxes_are_refused(tmp_path, inbox):
    with pytest.raises(ConfigError, match="there is no inbox"):
        open_inbox(f"{tmp_path}/nothing")
    with pytest.raises(ConfigError, match="has 4 shards, not 8"):
        open_inbox(inbox.url, 8)
    with pytest.raises(ConfigError, match="power of two"):
        open_inbox(f"{tmp_path}/new", 3)
    with pytest.raises(ConfigError, match="unknown scheme 'kafka'"):
        open_inbox("kafka:x")
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError):
        open_inbox(f"{tmp_path}/file/x", 4)
    (tmp_path / "inbox" / "inbox.json").write_text('{"format": 3, "n_shards": 4}')
    with pytest.raises(ConfigError, match="newer Tidewheel"):
        open_inbox(inbox.url)
    (tmp_path / "inbox" / "inbox.json").write_text('{"format": 1, "n_shards": 4}')
    with pytest.raises(ConfigError, match="has format 1, this version knows 2"):
        open_inbox(inbox.url)
    inbox.close()
    with pytest.raises(InboxError, match="was closed"):
        inbox.append("p", "s", [Block(0, 1, 1, b"")])
