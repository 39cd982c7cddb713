"""State read from files alone equals a dict of all commits."""

from __future__ import annotations

import threading
from collections import Counter
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.internals import ShardParts
from support.state_build import History
from support.waiting import SOON
from tidewheel._state.key_lookup import WHOLE_BYTES, KeyLookup
from tidewheel._state.shard_contents import shard_get, shard_items, shard_tables

KEYS = st.binary(min_size=1, max_size=2) | st.just(b"k" * 600)
CHANGES = st.dictionaries(
    st.sampled_from(["sums", "sums/timers"]), st.dictionaries(KEYS, st.none() | st.binary(max_size=4)), max_size=2
)
COMMITS = st.lists(st.tuples(st.none() | CHANGES, st.booleans()), max_size=6)
several = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)


@pytest.fixture
def folder(tmp_path):
    numbers = iter(range(10**6))
    return lambda: tmp_path / str(next(numbers))


@several
@given(commits=COMMITS)
def test_items_tables_and_single_keys_are_those_of_a_dict(folder, commits):
    history = History(folder(), shard=3)
    for changes, snapshot in commits:
        history.commit(changes, snapshot=snapshot)
    expected = history.expected()
    found = list(shard_items(history.parts, 3, history.fetch))
    assert found == sorted(found)
    assert {(table, key): value for table, key, value in found} == {
        (table, key): value for table, items in expected.items() for key, value in items.items()
    }
    assert set(expected) <= shard_tables(history.parts, 3, history.fetch)
    for table in ("sums", "sums/timers"):
        only = [(key, value) for _, key, value in shard_items(history.parts, 3, history.fetch, table)]
        assert only == sorted(expected.get(table, {}).items())
        for key in {key for changes, _ in commits for key in (changes or {}).get(table, {})} | {b"absent"}:
            got = shard_get(history.parts, 3, table, key, history.fetch)
            assert got == expected.get(table, {}).get(key)
            for whole_bytes in (16, 400, WHOLE_BYTES):
                lookup = KeyLookup(history.read_range, whole_bytes=whole_bytes)
                assert lookup.get(history.parts, 3, table, key) == got


def test_a_shard_without_parts_holds_nothing():
    def fetch(ref):
        raise AssertionError("there is nothing to fetch")

    assert list(shard_items(ShardParts(), 0, fetch)) == []
    assert shard_tables(ShardParts(), 0, fetch) == set()
    assert shard_get(ShardParts(), 0, "sums", b"a", fetch) is None


def test_a_single_key_is_looked_up_newest_part_first_and_no_further(tmp_path):
    history = History(tmp_path)
    history.commit({"sums": {b"a": b"1", b"b": b"1"}})
    history.commit({"sums": {b"a": b"2", b"b": None}})
    history.fetched.clear()
    assert shard_get(history.parts, 0, "sums", b"a", history.fetch) == b"2"
    assert shard_get(history.parts, 0, "sums", b"b", history.fetch) is None
    assert set(history.fetched) == {"delta-2"}


def test_a_look_up_reads_in_two_rounds_whatever_the_number_of_parts(tmp_path):
    history = History(tmp_path)
    for number in range(12):
        large = Random(number).randbytes(1000)
        history.commit({"sums": {b"a": large, b"z": large}})
    together = threading.Barrier(12, timeout=SOON)
    reads = []

    def read_range(name: str, start: int, length: int) -> bytes:
        reads.append(name)
        together.wait()  # Nobody gets an answer before all twelve have asked.
        return history.read_range(name, start, length)

    lookup = KeyLookup(read_range, whole_bytes=400)
    assert lookup.get(history.parts, 0, "sums", b"unknown") is None
    assert Counter(reads) == dict.fromkeys(set(reads), 2), "the end of each file, and a block"
    reads.clear()
    assert lookup.get(history.parts, 0, "sums", b"a") == Random(11).randbytes(1000)
    assert len(reads) == 12, "the indexes are known"


def test_a_lookup_reads_each_small_file_once_within_its_memory_bound(tmp_path):
    history = History(tmp_path)
    for number in range(5):
        history.commit({"sums": {b"a": b"%d" % number}})
    reads = []

    def read_range(name: str, start: int, length: int) -> bytes:
        reads.append(name)
        return history.read_range(name, start, length)

    lookup = KeyLookup(read_range)
    assert lookup.get(history.parts, 0, "sums", b"b") is None
    assert len(reads) == len(set(reads)) == 5
    assert lookup.get(history.parts, 0, "sums", b"a") == b"4"
    assert len(reads) == 5
    frugal = KeyLookup(read_range, held_bytes=1)
    for _ in range(2):
        assert frugal.get(history.parts, 0, "sums", b"a") == b"4"
    assert len(reads) == 14, "of five files one is kept"
