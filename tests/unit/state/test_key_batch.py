"""The distinct keys of many messages, in the order of the store, however they are found."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.internals import shard_of, to_stored
from tidewheel._state.key_batch import sorted_keys
from tidewheel._state.key_order import stable_order

KEYS = {
    "short text": (pa.string(), st.text("ab", max_size=3)),
    "text": (pa.string(), st.text(st.characters(codec="utf-8"), max_size=6)),
    "long text": (pa.string(), st.text("ab", max_size=20)),
    "bytes": (pa.binary(), st.binary(max_size=9)),
    "numbers": (pa.int64(), st.integers(-(2**63), 2**63 - 1) | st.integers(-2, 2)),
}


@pytest.mark.parametrize("repeated", [True, False])
@pytest.mark.parametrize("keys", KEYS)
@given(data=st.data())
def test_keys_are_distinct_and_in_order_and_each_message_has_its_place(keys, repeated, data):
    kind, values = KEYS[keys]
    # Cut off on both sides: a column may begin and end anywhere in its buffers.
    listed = data.draw(st.lists(values, min_size=3, max_size=40))
    column, listed = pa.array(listed, kind)[1:-1], listed[1:-1]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tidewheel._state.key_batch._MANY", 0)
        patch.setattr("tidewheel._state.key_batch.repeats", lambda column: repeated)
        batch = sorted_keys(column, 8)
        order, counts = batch.together()
    assert batch.keys == sorted(set(listed), key=lambda key: (shard_of(key, 8), to_stored(key)))
    assert batch.stored == [to_stored(key) for key in batch.keys]
    assert [batch.keys[place] for place in batch.places()] == listed
    assert [shard for shard, part in batch.shards.items() for _ in batch.keys[part]] == [
        shard_of(key, 8) for key in batch.keys
    ]
    # Messages of one key stay in their order.
    assert order.to_pylist() == sorted(range(len(listed)), key=lambda position: batch.places()[position])
    assert counts == [listed.count(key) for key in batch.keys]


@given(st.lists(st.integers(0, 2**64 - 1) | st.integers(0, 3), max_size=300))
def test_equal_numbers_stay_in_their_order(listed):
    order = stable_order(np.array(listed, np.uint64))
    assert order.tolist() == sorted(range(len(listed)), key=listed.__getitem__)


def test_many_equal_numbers_stay_in_their_order():
    """Sorting has other branches for long arrays."""
    numbers = np.random.default_rng(1).integers(0, 5_000, 100_000).astype(np.uint64)
    assert (stable_order(numbers) == np.argsort(numbers, kind="stable")).all()
