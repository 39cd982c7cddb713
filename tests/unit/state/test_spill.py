"""Spill: encoded states of keys that do not fit into memory."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewheel._state.spill import Spill
from tidewheel._state.state_file import DROPPED, MISSING

KEYS = st.sampled_from([b"sa", b"sb", b"s" + b"k" * 510, b"s" + b"k" * 511, b"s" + b"k" * 600]) | st.binary(
    min_size=1, max_size=3
)
PUTS = st.lists(st.tuples(st.integers(0, 2), st.dictionaries(KEYS, st.none() | st.binary(max_size=5))), max_size=6)


@given(PUTS)
def test_it_holds_the_newest_of_each_key_as_a_dict_would(puts):
    spill, model = Spill(), {}
    try:
        for shard, items in puts:
            spill.put(shard, sorted(items.items()))
            model.setdefault(shard, {}).update(items)
        assert spill.shards() == set(model)
        for shard in range(4):
            held = model.get(shard, {})
            assert dict(spill.items(shard)) == held
            asked = [*held, b"absent"]
            expected = [DROPPED if held[key] is None else held[key] for key in held]
            assert spill.get_many(shard, asked) == [*expected, MISSING]
    finally:
        spill.close()


def test_a_state_of_no_bytes_is_not_a_dropped_key():
    spill = Spill()
    spill.put(0, [(b"a", b""), (b"b", None)])
    assert spill.get_many(0, [b"a", b"b"]) == [b"", DROPPED]
    spill.close()


def test_nothing_is_left_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    spill = Spill()
    spill.put(0, [(b"a", b"1")])
    assert list(tmp_path.iterdir())
    spill.close()
    assert list(tmp_path.iterdir()) == []
