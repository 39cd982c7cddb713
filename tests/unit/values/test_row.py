"""Row: columns as attributes, a tuple otherwise."""

from __future__ import annotations

import copy
import pickle

import cloudpickle
import pytest

from tidewheel import Row
from tidewheel._values import row_class


def test_columns_are_attributes_and_a_row_is_a_tuple():
    row = row_class(("user", "amount"))("ada", 3)
    assert (row.user, row.amount) == ("ada", 3)
    assert row == ("ada", 3)
    assert isinstance(row, Row)
    assert repr(row) == "Row(user='ada', amount=3)"
    assert {row: 1}[("ada", 3)] == 1


def test_the_same_columns_have_the_same_class():
    assert row_class(("a", "b")) is row_class(("a", "b"))
    assert row_class(("a", "b")) is not row_class(("b", "a"))


def test_rows_are_pickled_by_their_columns():
    row = row_class(("user id", "n"))("ada", 1)
    for back in (pickle.loads(pickle.dumps(row)), cloudpickle.loads(cloudpickle.dumps(row)), copy.deepcopy(row)):
        assert back == row
        assert type(back) is type(row)
        assert back._columns == ("user id", "n")


def test_columns_named_like_methods_of_a_tuple_are_columns():
    row = row_class(("count", "index"))(1, 2)
    assert (row.count, row.index) == (1, 2)
    assert pickle.loads(pickle.dumps(row)).count == 1


def test_a_column_is_read_by_name_and_a_wrong_name_lists_the_columns():
    row = row_class(("user", "total cents"))("ada", 3)
    assert (row["user"], row["total cents"], row[1], row[-1], row[:1]) == ("ada", 3, 3, 3, ("ada",))
    with pytest.raises(KeyError, match="no column 'usr'; there are user, total cents"):
        row["usr"]
    with pytest.raises(AttributeError, match="no column 'usr'; there are user, total cents"):
        _ = row.usr
    assert pickle.loads(pickle.dumps(row)) == copy.copy(row) == copy.deepcopy(row) == row
