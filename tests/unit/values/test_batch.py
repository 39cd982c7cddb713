"""Batch: the same messages as values and as columns, without loss between them."""

from __future__ import annotations

import dataclasses
import datetime

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewheel._core.bytecode_reads import FieldsRead
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


READ = FieldsRead(frozenset({"n"}), "attribute")


@pytest.mark.parametrize("shape", [ROW, shape_of(Click)])
def test_a_function_that_reads_one_field_gets_that_field(shape):
    batch = Batch(shape, columns=COLUMNS)
    values = batch.values_read(READ)
    assert [value.n for value in values] == [1, None, 3]
    assert not any(hasattr(value, "user") for value in values)
    assert [value.user for value in batch.values] == ["ada", "bob", "eve"]


def test_a_function_that_reads_a_missing_column_gets_the_whole_value():
    missing = FieldsRead(frozenset({"n", "other"}), "attribute")
    assert Batch(ROW, columns=COLUMNS).values_read(missing) == Batch(ROW, columns=COLUMNS).values
    assert Batch(DICT, columns=COLUMNS).values_read(READ) == Batch(DICT, columns=COLUMNS).values
    assert Batch(ROW, columns=COLUMNS).values_read(None) == Batch(ROW, columns=COLUMNS).values


def test_values_that_exist_already_are_passed_to_functions():
    batch = Batch(DICT, columns=COLUMNS)
    batch.values[0]["n"] = 7
    assert batch.values_read(FieldsRead(frozenset({"n"}), "item")) is batch.values


@dataclasses.dataclass
class Computed:
    user: str
    n: int | None

    def __post_init__(self) -> None:
        self.n = 10 * (self.n or 0)


@dataclasses.dataclass
class Guarded:
    user: str
    n: int | None

    def __getattribute__(self, name):
        return "guarded" if name == "n" else super().__getattribute__(name)


@pytest.mark.parametrize(("kind", "expected"), [(Computed, [10, 0, 30]), (Guarded, ["guarded"] * 3)])
def test_a_class_that_computes_its_fields_is_made_whole(kind, expected):
    assert [value.n for value in Batch(shape_of(kind), columns=COLUMNS).values_read(READ)] == expected


def test_messages_in_another_order_are_read_in_that_order():
    batch = Batch(ROW, columns=COLUMNS, key_column=KEYS).reordered(pa.array([2, 0, 1]))
    assert len(batch) == 3
    assert [value.n for value in batch.values_read(READ)] == [3, 1, None]
    assert [value.user for value in batch.values] == ["eve", "ada", "bob"]
    assert batch.keys == ["c", "a", "b"]
    assert batch.columns.column(0).to_pylist() == ["eve", "ada", "bob"]


def test_an_unchanged_field_is_the_same_column():
    columns = pa.RecordBatch.from_pydict(
        {
            "at": pa.array([1, 2], pa.timestamp("us", "Asia/Tokyo")),
            "n": pa.array([1, 2], pa.int16()),
            "tags": [["a"], []],
        }
    )
    batch = Batch(DICT, columns=columns)
    mapped = batch.with_values(ANY, [{"at": v["at"], "n": v["n"], "more": 2 * v["n"]} for v in batch.values])
    exact = mapped.keyed_by(keys=["a", "b"]).exact()
    assert exact.carried.schema.types == [pa.timestamp("us", "Asia/Tokyo"), pa.int16(), pa.int64()]
    assert not exact.has_columns
    assert exact.values == mapped.values
    changed = batch.with_values(ANY, [{"at": v["at"] + datetime.timedelta(1)} for v in batch.values])
    assert changed.exact() is changed


def test_a_list_that_may_have_changed_is_not_replaced_by_its_column():
    batch = Batch(DICT, columns=pa.RecordBatch.from_pydict({"tags": [["a"], []]}))
    for value in batch.values:
        value["tags"].append("b")
    mapped = batch.with_values(ANY, list(batch.values))
    assert mapped.exact() is mapped
    assert mapped.values == [{"tags": ["a", "b"]}, {"tags": ["b"]}]
