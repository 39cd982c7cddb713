"""Batch: two faces of the same messages, and nothing that gets lost between them."""

from __future__ import annotations

import dataclasses

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewheel._values import ANY, DICT, ROW, SCALAR, Batch, shape_of

COLUMNS = pa.RecordBatch.from_pydict({"user": ["ada", "bob", "eve"], "n": [1, None, 3]})
KEYS = pa.array(["a", "b", "c"])


@dataclasses.dataclass
class Click:
    user: str
    n: int | None


def test_columns_become_values_when_they_are_asked_for():
    assert Batch(shape_of(Click), columns=COLUMNS).values == [Click("ada", 1), Click("bob", None), Click("eve", 3)]
    assert Batch(DICT, columns=COLUMNS).values[1] == {"user": "bob", "n": None}
    assert [row.user for row in Batch(ROW, columns=COLUMNS).values] == ["ada", "bob", "eve"]


def test_values_become_columns_when_they_are_asked_for():
    batch = Batch(shape_of(Click), values=[Click("ada", 1), Click("bob", None)])
    assert batch.columns.to_pydict() == {"user": ["ada", "bob"], "n": [1, None]}
    assert batch.columns is batch.columns


def test_columns_made_of_values_do_not_count_as_columns():
    # Undeclared records would come back from them as dicts, and dicts with names that they never had.
    batch = Batch(ANY, values=[{"a": 1}, {"b": 2}])
    assert batch.columns.num_columns == 2
    assert not batch.has_columns
    assert not batch.keyed_by(keys=[1, 2]).has_columns
    assert batch.values == [{"a": 1}, {"b": 2}]
    assert Batch(DICT, columns=COLUMNS).has_columns


def test_keys_are_a_list_or_a_column():
    assert Batch(SCALAR, values=[1, 2, 3], key_column=KEYS).keys == ["a", "b", "c"]
    assert Batch(SCALAR, values=[1], keys=[("a", 1)]).keys == [("a", 1)]
    assert Batch(SCALAR, values=[1], keys=["a"]).keyed
    assert Batch(SCALAR, values=[1, 2, 3], key_column=KEYS).keyed
    assert not Batch(SCALAR, values=[1]).keyed


def test_other_values_keep_keys_and_times():
    batch = Batch(SCALAR, values=[1, 2, 3], key_column=KEYS, times=[7, 8, 9])
    for other in (batch.with_values(ANY, ["x", "y", "z"]), batch.with_columns(DICT, COLUMNS)):
        assert (other.keys, other.times) == (["a", "b", "c"], [7, 8, 9])
    assert batch.keyed_by(keys=[1, 2, 3]).keys == [1, 2, 3]
    assert batch.keyed_by(column=pa.array([4, 5, 6])).keys == [4, 5, 6]


@given(
    st.lists(st.integers(0, 2)),
    st.sampled_from(["columns", "values", "both"]),
    st.sampled_from(["none", "list", "column", "both"]),
    st.booleans(),
)
def test_take_picks_all_faces_alike(positions, face, keyed, timed):
    batch = Batch(
        DICT,
        columns=COLUMNS if face != "values" else None,
        values=COLUMNS.to_pylist() if face == "values" else None,
        keys=["a", "b", "c"] if keyed in ("list", "both") else None,
        key_column=KEYS if keyed in ("column", "both") else None,
        times=[7, 8, 9] if timed else None,
    )
    if face == "both":
        assert batch.values
    taken = batch.take(positions)
    assert len(taken) == len(positions)
    assert taken.values == [COLUMNS.to_pylist()[position] for position in positions]
    assert taken.columns.num_rows == len(positions)
    assert taken.keyed == (keyed != "none")
    if taken.keyed:
        assert taken.keys == ["abc"[position] for position in positions]
    assert taken.times == ([[7, 8, 9][position] for position in positions] if timed else None)


def test_joined_batches_are_one_in_order():
    left = Batch(DICT, columns=COLUMNS, key_column=KEYS, times=[1, 2, 3])
    right = Batch(DICT, columns=COLUMNS.slice(0, 1), key_column=pa.array(["z"]), times=[4])
    joined = Batch.joined([left, right])
    assert joined.has_columns
    assert joined.key_column is not None
    assert joined.values == [*left.values, *right.values]
    assert joined.keys == ["a", "b", "c", "z"]
    assert joined.times == [1, 2, 3, 4]
    assert Batch.joined([left]) is left


@pytest.mark.parametrize(
    "right",
    [
        Batch(DICT, columns=pa.RecordBatch.from_pydict({"user": ["z"], "n": [1.5]}), keys=[("z",)]),
        Batch(DICT, columns=pa.RecordBatch.from_pydict({"user": ["z"], "n": pa.nulls(1)}), key_column=pa.array([1])),
        Batch(DICT, columns=pa.RecordBatch.from_pydict({"user": ["z"]}), key_column=pa.array(["z"])),
        Batch(DICT, values=[{"anything": object}], key_column=pa.array(["z"])),
    ],
)
def test_batches_whose_columns_differ_are_joined_as_values(right):
    left = Batch(DICT, columns=COLUMNS, key_column=KEYS)
    joined = Batch.joined([left, right])
    assert joined.values == [*left.values, *right.values]
    assert joined.keys == [*left.keys, *right.keys]
