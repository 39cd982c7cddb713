"""State as typed columns."""

from __future__ import annotations

import datetime
from dataclasses import dataclass

import msgspec
import pyarrow as pa
import pytest

from support.internals import to_stored
from tidewheel._checkpoint.tools.columns import Columns
from tidewheel._checkpoint.tools.export import _keys
from tidewheel.errors import StateError


def columns(keys, values, declared=None, names=()):
    made = Columns(declared, names, [(list(keys), list(values))])
    return made, made.batch(list(keys), list(values))


def test_plain_values_are_the_column_value():
    made, batch = columns(["a", "b"], [1, 2])
    assert made.schema == pa.schema([("key", pa.string()), ("value", pa.int64())])
    assert batch.to_pylist() == [{"key": "a", "value": 1}, {"key": "b", "value": 2}]


def test_fields_are_columns_and_may_be_missing():
    made, batch = columns([1, 2], [{"n": 1}, {"n": 2, "tags": ["x"]}])
    assert made.schema.names == ["key", "n", "tags"]
    assert batch.column(2).to_pylist() == [None, ["x"]]


def test_a_field_named_key_does_not_hide_the_key():
    made, batch = columns(["a"], [{"key": 7}])
    assert made.schema.names == ["key", "value_key"]
    assert batch.to_pylist() == [{"key": "a", "value_key": 7}]


def test_the_parts_of_a_tuple_keep_their_types():
    made, batch = columns([("a", 1), ("b", 2)], [0, 0])
    assert made.schema.field("key").type == pa.struct([("_0", pa.string()), ("_1", pa.int64())])
    assert batch.column(0).to_pylist()[0] == {"_0": "a", "_1": 1}


def test_values_without_a_column_type_are_json():
    made, batch = columns(["a", "b"], [[1, "x"], None])
    assert made.schema.field("value").type == pa.string()
    assert batch.column(1).to_pylist() == ['[1,"x"]', None]
    _, batch = columns(["a"], [{"empty": [], "mixed": [1, {}]}])
    assert batch.to_pylist() == [{"key": "a", "empty": "[]", "mixed": "[1,{}]"}]


def test_the_numbers_of_an_aggregate_have_names():
    _, batch = columns(["a"], [[3, 4.5]], names=["rows", "sum_amount"])
    assert batch.to_pylist() == [{"key": "a", "rows": 3, "sum_amount": 4.5}]


class Reading(msgspec.Struct):
    at: datetime.datetime
    celsius: float | None = None


@dataclass
class Point:
    x: float
    labels: list[str]


def test_a_declared_type_fixes_the_columns_also_without_values():
    assert Columns(Reading, (), []).schema.names == ["key", "at", "celsius"]
    made, batch = columns(["a"], [Point(1, [])], Point)
    assert made.schema.field("labels").type == pa.list_(pa.string())
    assert batch.to_pylist() == [{"key": "a", "x": 1.0, "labels": []}]


def test_a_value_that_does_not_fit_the_columns_is_an_error_with_a_way_out():
    made, _ = columns(["a"], [1])
    with pytest.raises(StateError, match=r"does not fit the columns key, value.*type="):
        made.batch(["b"], ["text"])
    made, _ = columns(["a"], [{"n": 1}])
    with pytest.raises(StateError, match="type="):
        made.batch(["b"], [7])


@pytest.mark.parametrize("keys", [["a", "é", ""], [1, -(2**63), 7], ["a", 1], [b"a", b"b"], [("a", 1)]], ids=repr)
def test_keys_come_back_as_they_were_whether_or_not_they_are_a_column(keys):
    found = _keys([to_stored(key) for key in keys])
    assert (found if isinstance(found, list) else found.to_pylist()) == keys


def test_columns_are_those_of_all_chunks():
    chunks = [(["a"], [{"n": 1}]), (["b"], [{"n": 2.5, "refund": {"a": 1}}]), (["c"], [{"refund": {"z": 2}}])]
    schema = Columns(None, (), chunks).schema
    assert schema.names == ["key", "n", "refund"]
    assert schema.field("n").type == pa.float64()
    assert schema.field("refund").type == pa.struct([("a", pa.int64()), ("z", pa.int64())])


@pytest.mark.parametrize(
    "chunks", [[(["a"], [{"n": 1}]), (["b"], [7])], [(["b"], [7]), (["a"], ["x"])], [(["a"], [{}])]]
)
def test_values_that_have_no_columns_in_common_are_json(chunks):
    made = Columns(None, (), chunks)
    assert made.schema == pa.schema([("key", pa.string()), ("value", pa.string())])
