"""A shard that is read by block equals a dict of all commits; and copies are made where blocks would be too many."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.internals import FileRef, ShardParts
from support.state_build import History, contents
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
    reads = []

    def read_range(name: str, start: int, length: int) -> bytes:
        reads.append(length)
        return history.read_range(name, start, length)

    lookup = KeyLookup(read_range, whole_bytes=16)
    lookup.files(history.parts)
    reads.clear()
    near, far = keys[:100], keys[3000:3010]
    assert lookup.find(history.parts, 0, TABLE, near + far).values() == [
        history.state[TABLE][key] for key in near + far
    ]
    assert len(reads) == 2
    assert sum(reads) < history.parts.deltas[0].file.size / 10


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


class ColdHost:
    """A job with sixteen shards of a table, and a host without copies of them."""

    def __init__(self, folder, keys_per_shard: int = 500) -> None:
        self.n_shards, draw, writer = 16, Random(3), StateFileWriter()
        self.keys = [b"%06d" % number for number in range(keys_per_shard)]
        self.state = {shard: {key: draw.randbytes(500) for key in self.keys} for shard in range(self.n_shards)}
        for shard, items in self.state.items():
            writer.add(shard, TABLE, sorted(items.items()))
        data, checksum = writer.finish()
        ref = FileRef("delta-1", len(data), checksum)
        self.data = {ref.name: data}
        self.parts = {shard: ShardParts(None, (part,)) for shard, part in writer.parts(ref, 1).items()}
        self.shard_bytes = self.parts[0].deltas[0].bytes
        self.copies = LocalCopies(folder, CopyLimits(stale_bytes=3 * self.shard_bytes))

    def task(self) -> TaskState:
        lookup = KeyLookup(lambda name, start, length: self.data[name][start : start + length])
        fetch = lambda ref: StateFile.of(self.data[ref.name], ref)  # noqa: E731
        return TaskState(self.n_shards, 1, self.parts, self.copies, fetch, lookup=lambda: lookup)

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
        assert copy.behind(host.parts[shard], 1) == host.shard_bytes
        copy.catch_up(host.parts[shard], 1, lambda ref: StateFile.of(host.data[ref.name], ref))
        assert copy.behind(host.parts[shard], 1) == 0
    task = host.task()
    host.look(task, host.keys[:2])
    assert not task.by_block
    task.close()
