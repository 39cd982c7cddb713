"""Entries are sorted by shard, table and key, in memory and on disk alike."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tidewheel._state import newest_items, sorted_runs
from tidewheel._state.sorted_runs import SortedRuns
from tidewheel.errors import StateError

entries = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.sampled_from(["sums", "sums/timers"]),
        st.binary(min_size=1, max_size=2),
        st.none() | st.binary(max_size=3),
    ),
    max_size=60,
)


def read(runs: SortedRuns) -> list[tuple[int, str, bytes, bytes | None]]:
    return [(shard, table, *item) for shard in runs.shards() for table, items in runs.tables(shard) for item in items]


@pytest.mark.parametrize("memory_bytes", [1, 2000, 1 << 20])
@pytest.mark.parametrize("small_keys", [0, 1000])
@given(entries=entries)
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_entries_in_any_order_come_out_sorted_with_the_last_value(monkeypatch, memory_bytes, small_keys, entries):
    monkeypatch.setattr(sorted_runs, "MEMORY_BYTES", memory_bytes)
    monkeypatch.setattr(newest_items, "_SMALL_KEYS", small_keys)
    expected = sorted({(shard, table, key): value for shard, table, key, value in entries}.items())
    with SortedRuns() as runs:
        for entry in entries:
            runs.add(*entry)
        assert read(runs) == [(*place, value) for place, value in expected]
        assert read(runs) == [(*place, value) for place, value in expected]


@pytest.mark.parametrize("memory_bytes", [1, 1000, 1 << 20])
def test_a_duplicate_key_is_reported_wherever_it_is(monkeypatch, memory_bytes):
    monkeypatch.setattr(sorted_runs, "MEMORY_BYTES", memory_bytes)

    def sort(runs: SortedRuns) -> None:
        for key in (b"a", b"b", b"c", b"d", b"e", b"b"):
            runs.add(0, "sums", key, b"")
        read(runs)

    with SortedRuns(lambda key: StateError(f"twice: {key!r}")) as runs, pytest.raises(StateError, match="twice: b'b'"):
        sort(runs)


def test_spilled_files_have_no_name_and_do_not_survive_a_kill(monkeypatch, tmp_path):
    monkeypatch.setattr(sorted_runs, "MEMORY_BYTES", 1)
    monkeypatch.setattr(sorted_runs.tempfile, "tempdir", str(tmp_path))
    with SortedRuns() as runs:
        runs.add(0, "sums", b"a", b"1")
        assert runs._runs
        assert not os.listdir(tmp_path)
    assert not os.listdir(tmp_path)


def test_a_full_disk_is_reported(monkeypatch, tmp_path):
    monkeypatch.setattr(sorted_runs, "MEMORY_BYTES", 1)
    monkeypatch.setattr(sorted_runs.tempfile, "tempdir", str(tmp_path / "nowhere"))
    with SortedRuns() as runs, pytest.raises(StateError, match=r"state that is being sorted.*nowhere"):
        runs.add(0, "sums", b"a", b"1")
