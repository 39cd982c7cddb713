"""iterable: positions are offsets, and the same positions give the same items."""

from __future__ import annotations

import dataclasses
import datetime
import pickle

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import Row as SparkRow

from tidewheel._connectors.memory.iterable_stream import IterableReader, cuts
from tidewheel._values import ROW, row_class, shape_of
from tidewheel.errors import ConfigError, StateError
from tidewheel.sources import iterable


@dataclasses.dataclass
class Click:
    user: str
    amount: int
    at: datetime.datetime | None = None


class Point(msgspec.Struct):
    x: float
    tags: list[str] = []


def test_items_come_in_batches_read_by_several_tasks_and_a_restart_continues(reading):
    batches = reading.run(iterable(list(range(7)), batch_size=5, partitions=2))
    assert [[row["value"] for row in batch] for batch in batches] == [[0, 1, 2, 3, 4], [5, 6]]
    assert reading.partitions == {0: 2, 1: 2}
    reading.forget_commit(1)
    del reading.batches[1]
    again = reading.run(iterable(list(range(8)), batch_size=5, partitions=2))
    assert again == [[{"value": 5}, {"value": 6}, {"value": 7}]], "a batch that was not committed may become larger"


def test_fewer_items_than_were_read_is_an_error():
    reader = IterableReader(pa.table({"value": [1, 2]}), None, 1)
    assert reader.end(2) == 2
    with pytest.raises(StateError, match="it has read 3 items, and its iterable has 2 now"):
        reader.end(3)


def test_records_of_every_kind_give_their_columns(reading):
    moment = datetime.datetime(2025, 1, 31, 12, tzinfo=datetime.UTC)
    assert reading.run(iterable([Click("ada", 3, moment), Click("bob", 4)])) == [
        [{"user": "ada", "amount": 3, "at": moment}, {"user": "bob", "amount": 4, "at": None}]
    ]


@pytest.mark.parametrize(
    ("items", "columns", "shape"),
    [
        ([{"a": 1, "b": "x"}, {"a": None, "b": "y"}], {"a": [1, None], "b": ["x", "y"]}, ROW),
        ([row_class(("a",))(1)], {"a": [1]}, ROW),
        ([SparkRow(a=1)], {"a": [1]}, ROW),
        ([Point(1.0, ["t"])], {"x": [1.0], "tags": [["t"]]}, shape_of(Point)),
        ([Click("ada", 3)], {"user": ["ada"], "amount": [3], "at": [None]}, shape_of(Click)),
        ([1, 2], {"value": [1, 2]}, shape_of(int)),
        (["a", None], {"value": ["a", None]}, shape_of(str)),
        ([1, 2.5], {"value": [1.0, 2.5]}, shape_of(None)),
    ],
)
def test_items_as_columns(items, columns, shape):
    source = iterable(iter(items))
    assert source.table().to_pydict() == columns
    if shape.kind != "any":
        assert source.shape == shape
    else:
        assert source.shape.kind == "scalar"


def test_declared_types_decide_the_columns():
    source = iterable([{"user": "ada", "amount": 3, "more": 1}]).declared(shape_of(Click))
    assert source.table().to_pydict() == {"user": ["ada"], "amount": [3], "at": [None]}


def test_nothing_needs_a_declared_type():
    with pytest.raises(ConfigError, match="declare them at the source"):
        iterable([]).table()
    assert iterable([]).declared(shape_of(Click)).table().num_rows == 0


def test_items_that_do_not_fit_together():
    with pytest.raises(ConfigError, match="columns of one type"):
        iterable([1, "x"]).table()


@pytest.mark.parametrize("settings", [{"batch_size": 0}, {"partitions": 0}])
def test_settings_that_cannot_work_are_refused(settings):
    with pytest.raises(ConfigError, match="at least 1"):
        iterable([1], **settings)


def test_the_items_do_not_travel_to_the_tasks():
    assert len(pickle.dumps(iterable(list(range(100_000))))) < 1000


@given(st.integers(0, 1000), st.integers(1, 20))
def test_cuts_cover_everything_once_and_evenly(length, slices):
    pieces = cuts(length, slices)
    assert [at for start, size in pieces for at in range(start, start + size)] == list(range(length))
    assert len(pieces) <= slices
    sizes = [size for _, size in pieces]
    assert not sizes or max(sizes) - min(sizes) <= 1
