"""A shard that is read by block equals a dict of all commits; and copies are made where blocks would be too many."""

from __future__ import annotations

import threading
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.internals import FileRef, ShardParts
from support.state_build import History, contents
from support.waiting import SOON
from tidewheel._state import block_reader, key_lookup, task_state
from tidewheel._state.block_reader import BlockReader
from tidewheel._state.key_lookup import KeyLookup
from tidewheel._state.local_copies import CopyLimits, LocalCopies
from tidewheel._state.state_file import StateFile, StateFileWriter
from tidewheel._state.task_state import TaskState

KEYS = st.binary(min_size=1, max_size=2) | st.just(b"k" * 600)
ITEMS = st.dictionaries(KEYS, st.none() | st.binary(max_size=40), max_size=12)
COMMITS = st.lists(
    st.tuples(st.dictionaries(st.sampled_from(["sums", "sums/timers"]), ITEMS), st.booleans()), max_size=6
)
several = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
TABLE = "sums"


@pytest.fixture
def folder(tmp_path):
    numbers = iter(range(10**6))
    return lambda: tmp_path / str(next(numbers))


def no_copy():
    raise AssertionError("no copy is needed")


def by_block(history: History, make_copy=no_copy, room: int = 10**9, whole_bytes: int = 16) -> BlockReader:
    lookup = KeyLookup(history.read_range, whole_bytes=whole_bytes)
    return BlockReader(lookup, history.parts, history.shard, room, make_copy)


def recorded_lookup(history: History) -> tuple[KeyLookup, list[int]]:
    """Return a look-up that knows the indexes of all files, and a list of the lengths of its later reads."""
    reads: list[int] = []

    def read_range(name: str, start: int, length: int) -> bytes:
        reads.append(length)
        return history.read_range(name, start, length)

    lookup = KeyLookup(read_range, whole_bytes=16)
    lookup.files(history.parts)
    reads.clear()
    return lookup, reads


@several
@given(commits=COMMITS, bounds=st.lists(KEYS, min_size=2, max_size=2), whole_bytes=st.sampled_from([16, 600, 10**6]))
def test_any_history_is_that_of_a_dict(folder, commits, bounds, whole_bytes):
    history = History(folder(), shard=3)
    for changes, snapshot in commits:
        history.commit(changes, snapshot=snapshot)
    reader = by_block(history, whole_bytes=whole_bytes)
    start, stop = sorted(bounds)
    for table in ("sums", "sums/timers", "unknown"):
        expected = history.expected().get(table, {})
        asked = sorted({key for changes, _ in commits for key in changes.get(table, {})} | {b"absent"})
        assert reader.get_many(table, asked) == [expected.get(key) for key in asked]
        assert [reader.get(table, key) for key in asked] == [expected.get(key) for key in asked]
        within = [item for item in sorted(expected.items()) if start <= item[0] < stop]
        assert list(reader.items(table, start, stop)) == within
        assert list(reader.items(table, start)) == [item for item in sorted(expected.items()) if start <= item[0]]
        assert (reader.count(table) == 0) == (not expected)
        assert reader.count(table) >= len(expected)


def test_neighbouring_blocks_are_read_at_once_and_distant_ones_are_not(tmp_path):
    history, draw = History(tmp_path), Random(1)
    keys = [b"%06d" % number for number in range(4000)]
    history.commit({TABLE: {key: draw.randbytes(100) for key in keys}})
    lookup, reads = recorded_lookup(history)
    near, far = keys[:100], keys[3000:3010]
    found = lookup.find(history.parts, 0, TABLE, near + far)
    assert found.values() == [history.state[TABLE][key] for key in near + far]
    assert len(reads) == 2
    assert sum(reads) < history.parts.deltas[0].file.size / 10
    reads.clear()
    found = lookup.find(history.parts, 0, TABLE, keys[::8])
    found.values()
    assert found.size == sum(reads), "the gaps are read too"


def test_a_copy_is_made_once_more_would_be_read_than_there_is_room(tmp_path):
    history, draw = History(tmp_path / "files"), Random(2)
    keys = [b"%06d" % number for number in range(2000)]
    history.commit({TABLE: {key: draw.randbytes(100) for key in keys}})
    copies, made = LocalCopies.at(tmp_path / "copies"), []

    def make_copy():
        copy = copies.shard(0)
        made.append(copy.catch_up(history.parts, history.sequence, history.fetch))
        return copy.begin()

    with by_block(history, make_copy, room=10_000) as reader:
        assert reader.get_many(TABLE, keys[:10]) == [history.state[TABLE][key] for key in keys[:10]]
        assert not made
        assert reader.get_many(TABLE, keys) == [history.state[TABLE][key] for key in keys]
        assert reader.get(TABLE, keys[0]) == history.state[TABLE][keys[0]]
        assert reader.count(TABLE) == len(keys)
        assert len(made) == 1
    with by_block(history, make_copy) as reader:
        assert contents(reader) == history.expected(), "a whole table is read from a copy"
    assert len(made) == 2
    copies.close()


def test_a_copy_is_made_once_the_rounds_take_longer(tmp_path):
    history = History(tmp_path / "files")
    history.commit({TABLE: {b"%06d" % number: b"value" for number in range(2000)}})
    copies, made = LocalCopies.at(tmp_path / "copies"), []

    def make_copy():
        made.append(copies.shard(0).catch_up(history.parts, history.sequence, history.fetch))
        return copies.shard(0).begin()

    rounds = 0
    with by_block(history, make_copy, room=10 * block_reader._ROUND_BYTES) as reader:
        while not made and rounds < 20:
            assert reader.get(TABLE, b"%06d" % (100 * rounds)) == b"value"
            rounds += 1
    assert rounds == 11
    copies.close()


def test_a_small_table_is_read_without_a_copy(tmp_path):
    """Otherwise a step with few keys would cause a copy of the large state of another step."""
    history, draw = History(tmp_path), Random(4)
    history.commit({TABLE: {b"%06d" % number: draw.randbytes(100) for number in range(2000)}, "few": {b"a": b"1"}})
    history.commit({"few": {b"a": None, b"b": b"2"}})
    reader = by_block(history, room=10_000)
    assert list(reader.items("few")) == [(b"b", b"2")]
    assert list(reader.items("none")) == []


def test_the_beginnings_of_a_range_are_read_at_once_whatever_the_number_of_parts(tmp_path):
    history, parts = History(tmp_path), 12
    for number in range(parts):
        history.commit({TABLE: {b"%02d" % number: None, b"%02d" % (number + 1): b"\x01"}})
    together = threading.Barrier(parts, timeout=SOON)

    def read_range(name: str, start: int, length: int) -> bytes:
        together.wait()  # Nobody gets an answer before all have asked.
        return history.read_range(name, start, length)

    reader = BlockReader(KeyLookup(read_range, whole_bytes=16), history.parts, history.shard, 10**9, no_copy)
    assert list(reader.items(TABLE, b"00", b"99")) == [(b"%02d" % parts, b"\x01")]


def test_a_table_is_known_to_have_keys_without_reading_dropped_ones(tmp_path):
    history = History(tmp_path)
    history.commit({TABLE: {b"%06d" % number: b"value" for number in range(2000)}})
    history.commit({TABLE: {**{b"%06d" % number: None for number in range(1000)}, b"x": b"1"}})
    lookup, reads = recorded_lookup(history)
    assert BlockReader(lookup, history.parts, history.shard, 10**9, no_copy).count(TABLE) >= 1001
    assert reads == []


def test_few_blocks_are_in_memory_together_whatever_the_number_of_keys(tmp_path, monkeypatch):
    history, at_once = History(tmp_path), KeyLookup.at_once
    keys = [b"%06d" % number for number in range(0, 4000, 8)]
    for number in range(3):
        history.commit({TABLE: {key: Random(number).randbytes(300) for key in keys}})
    together = []
    monkeypatch.setattr(key_lookup, "_GAP_BYTES", 0)
    monkeypatch.setattr(key_lookup, "_READ_BYTES", 300)
    monkeypatch.setattr(
        KeyLookup, "at_once", lambda self, work, over: together.append(len(over)) or at_once(self, work, over)
    )
    assert by_block(history).get_many(TABLE, keys) == [history.state[TABLE][key] for key in keys]
    assert max(together) == key_lookup._THREADS


class ColdHost:
    """A job with sixteen shards of a table, and a host without copies of them."""

    def __init__(self, folder, keys_per_shard: int = 500, **limits: int) -> None:
        self.n_shards, self.sequence, draw, writer = 16, 1, Random(3), StateFileWriter()
        self.keys = [b"%06d" % number for number in range(keys_per_shard)]
        self.state = {shard: {key: draw.randbytes(500) for key in self.keys} for shard in range(self.n_shards)}
        for shard, items in self.state.items():
            writer.add(shard, TABLE, sorted(items.items()))
        data, checksum = writer.finish()
        ref = FileRef("delta-1", len(data), checksum)
        self.data = {ref.name: data}
        self.parts = {shard: ShardParts(None, (part,)) for shard, part in writer.parts(ref, 1).items()}
        self.shard_bytes = self.parts[0].deltas[0].bytes
        self.copies = LocalCopies(folder, CopyLimits(stale_bytes=3 * self.shard_bytes, **limits))
        self.read = 0

    def read_range(self, name: str, start: int, length: int) -> bytes:
        self.read += length
        return self.data[name][start : start + length]

    def commit(self, sequence: int, changes: dict[bytes, bytes]) -> None:
        """Make the same changes in each shard."""
        writer = StateFileWriter()
        for shard, items in self.state.items():
            writer.add(shard, TABLE, sorted(changes.items()))
            items.update(changes)
        data, checksum = writer.finish()
        ref = FileRef(f"delta-{sequence}", len(data), checksum)
        self.data[ref.name] = data
        for shard, part in writer.parts(ref, sequence).items():
            self.parts[shard] = ShardParts(None, (*self.parts[shard].deltas, part))
        self.sequence = sequence

    def task(self) -> TaskState:
        lookup = KeyLookup(self.read_range)
        fetch = lambda ref: StateFile.of(self.data[ref.name], ref)  # noqa: E731
        return TaskState(self.n_shards, self.sequence, self.parts, self.copies, fetch, lookup=lambda: lookup)

    def look(self, task: TaskState, keys: list[bytes]) -> None:
        for shard, items in self.state.items():
            assert task.reader(shard).get_many(TABLE, keys) == [items[key] for key in keys]


@pytest.fixture
def host(tmp_path):
    host = ColdHost(tmp_path)
    yield host
    host.copies.close()


def test_each_batch_of_a_cold_host_makes_some_copies_and_reads_other_shards_by_block(host):
    for there in (0, 3, 6, 9, 12, 15):
        task = host.task()
        host.look(task, host.keys[:2])
        made = min(3, host.n_shards - there)
        assert task.caught_up == made * host.shard_bytes
        assert len(task.by_block) == host.n_shards - there - made
        assert task.visits() == (host.n_shards, host.n_shards - there)
        sizes = list(task.sizes(lambda shard: True))
        assert {keys for _, _, keys, _ in sizes} == {len(host.keys)}
        assert {shard for shard, *_ in sizes} == set(range(host.n_shards)) - task.by_block
        task.close()


def test_a_batch_of_many_keys_makes_all_copies(host):
    task = host.task()
    host.look(task, host.keys)
    assert task.caught_up == host.n_shards * host.shard_bytes
    assert not task.by_block
    assert {shard for shard, *_ in task.sizes(lambda shard: True)} == set(range(host.n_shards))
    task.close()


def test_copies_that_are_made_after_blocks_were_read_are_released_too(tmp_path, monkeypatch):
    monkeypatch.setattr(task_state, "FILLED_COPIES", 2)
    host = ColdHost(tmp_path, many_keys=2, many_pages=0)
    released, relieve = [], host.copies.relieve
    monkeypatch.setattr(host.copies, "relieve", lambda: released.append(1) or relieve())
    task = host.task()
    host.look(task, host.keys[:2])
    released.clear()
    by_block = len(task.by_block)
    host.look(task, host.keys)
    assert len(released) >= by_block // 2
    assert task.caught_up == host.n_shards * host.shard_bytes
    assert {shard for shard, *_ in task.sizes(lambda shard: True)} == set(range(host.n_shards))
    task.close()
    host.copies.close()


def test_copies_that_lack_little_are_updated_without_opening_the_files_that_they_have(host):
    task = host.task()
    for shard in range(host.n_shards):
        task.update_copy(shard)
    task.close()
    for sequence in range(2, 2000, 100):
        host.commit(sequence, {host.keys[0]: Random(sequence).randbytes(1500)})
    host.copies.limits = CopyLimits(stale_bytes=0)
    task = host.task()
    host.look(task, host.keys[:1])
    assert not task.by_block
    assert host.read == 0
    task.close()


def test_updating_the_copies_of_a_standby_reads_nothing_by_block(host):
    task = host.task()
    for shard in range(host.n_shards):
        task.update_copy(shard)
    assert task.caught_up == host.n_shards * host.shard_bytes
    assert not task.by_block
    task.close()


def test_a_copy_that_lacks_only_the_newest_commit_is_updated_whatever_its_size(host):
    for shard in range(host.n_shards):
        copy = host.copies.shard(shard)
        assert copy.lacks(host.parts[shard], 1) == host.parts[shard].deltas
        copy.catch_up(host.parts[shard], 1, lambda ref: StateFile.of(host.data[ref.name], ref))
        assert copy.lacks(host.parts[shard], 1) == ()
    task = host.task()
    host.look(task, host.keys[:2])
    assert not task.by_block
    task.close()
