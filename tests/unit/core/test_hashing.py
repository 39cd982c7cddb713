"""The shards of whole columns equal those of single keys."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from support.internals import shard_of
from tidewheel._core.hashing import shards_of_bytes, shards_of_ints

SHARDS = st.sampled_from([1, 2, 64, 4096])


@given(st.lists(st.text(max_size=50)), SHARDS)
def test_the_shards_of_texts(keys, n_shards):
    assert shards_of_bytes(pa.array(keys, pa.string()), n_shards).tolist() == [shard_of(key, n_shards) for key in keys]


@given(st.integers(0, 40).flatmap(lambda size: st.lists(st.binary(min_size=size, max_size=size))), SHARDS)
def test_the_shards_of_bytes_of_one_length(keys, n_shards):
    assert shards_of_bytes(pa.array(keys, pa.binary()), n_shards).tolist() == [shard_of(key, n_shards) for key in keys]


@given(st.lists(st.binary(max_size=40), min_size=3), SHARDS)
def test_the_shards_of_a_part_of_a_column(keys, n_shards):
    assert shards_of_bytes(pa.array(keys)[1:-1], n_shards).tolist() == [shard_of(key, n_shards) for key in keys[1:-1]]


@given(st.lists(st.integers(-(2**63), 2**63 - 1)), SHARDS)
def test_the_shards_of_integers(keys, n_shards):
    column = pa.array(keys, pa.int64()).to_numpy()
    assert shards_of_ints(column, n_shards).tolist() == [shard_of(key, n_shards) for key in keys]
