"""Rows are found by their keys, many at once, and the order of stored rows depends only on their content."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from tidewheel._values import keyed_table
from tidewheel._values.keyed_table import KeyedTable, NotAKey, key_column, sorted_rows

NAMES = pa.table({"name": ["ada", "bob", "eve"], "n": [1, 2, 3]})


def rows_of(table: KeyedTable, *keys: pa.Array) -> list[dict | None]:
    return [None if row < 0 else table.rows.take([row]).to_pylist()[0] for row in table.find(list(keys))]


def test_rows_are_found_by_text_integers_and_bytes():
    for keys in (["ada", "bob"], [7, -1], [b"x", b""]):
        table = KeyedTable.of(pa.table({"key": keys, "n": [1, 2]}), ["key"])
        found = table.find([pa.array([keys[1], keys[0], keys[1]])])
        assert table.rows.column("n").take(pa.array(found)).to_pylist() == [2, 1, 2]


def test_an_absent_key_and_a_null_have_no_row():
    table = KeyedTable.of(NAMES, ["name"])
    assert [row and row["n"] for row in rows_of(table, pa.array(["eve", None, "zoe"]))] == [3, None, None]
    assert list(table.find([pa.array([None, None], pa.string())])) == [-1, -1]


def test_a_table_without_rows_has_none():
    assert list(KeyedTable.of(NAMES.slice(0, 0), ["name"]).find([pa.array(["ada"])])) == [-1]


def test_a_key_of_several_columns_needs_all_of_them():
    table = KeyedTable.of(pa.table({"a": ["x", "x", "y"], "b": [1, 2, 1], "n": [10, 20, 30]}), ["a", "b"])
    found = rows_of(table, pa.array(["x", "y", "y", None]), pa.array([2, 1, 2, 1]))
    assert [row and row["n"] for row in found] == [20, 30, None, None]


def test_keys_with_equal_hashes_are_distinguished(monkeypatch):
    monkeypatch.setattr(keyed_table, "hashes_of", lambda keys: np.full(len(keys[0]), 5, np.int64))
    table = KeyedTable.of(NAMES, ["name"])
    assert [row and row["n"] for row in rows_of(table, pa.array(["eve", "zoe", "ada", "bob"]))] == [3, None, 1, 2]
    assert sorted_rows(NAMES, ["name"]).equals(sorted_rows(NAMES.take([2, 0, 1]), ["name"]))


def test_the_order_of_rows_does_not_depend_on_that_of_the_source():
    draw = random.Random(3)
    table = pa.table({"key": [f"key-{n}" for n in range(500)], "n": range(500)})
    order = list(range(500))
    draw.shuffle(order)
    assert sorted_rows(table, ["key"]).equals(sorted_rows(table.take(order), ["key"]))


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ({"key": ["a", "b", "a"]}, "the key 'a' comes twice"),
        ({"key": ["a", None]}, "the key 'key' is null in row 2"),
        ({"key": [1.5]}, "the column 'key' cannot be a key: it has the type double"),
    ],
)
def test_null_duplicate_or_invalid_keys_are_refused_with_the_name(rows, said):
    with pytest.raises(NotAKey, match=said):
        sorted_rows(pa.table(rows), ["key"])


def test_a_duplicate_key_of_several_columns_is_named_whole():
    with pytest.raises(NotAKey, match=r"the key \('x', 1\) comes twice"):
        sorted_rows(pa.table({"a": ["x", "x"], "b": [1, 1]}), ["a", "b"])


def test_columns_of_similar_types_are_one_kind_of_key():
    assert key_column(pa.array([1], pa.int8())).type == pa.int64()
    assert key_column(pa.array(["a"], pa.large_string())).type == pa.string()
    assert key_column(pa.array(["a"]).dictionary_encode()).type == pa.string()
