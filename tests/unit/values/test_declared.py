"""Columns converted to a declared type."""

from __future__ import annotations

import dataclasses
import datetime
import enum

import pyarrow as pa
import pytest

from tidewheel._values import shape_of
from tidewheel._values.declared import as_declared, unfilled
from tidewheel.errors import StepError


class Color(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Click:
    user: str
    amount: int
    share: float | None = None


@dataclasses.dataclass
class Dated:
    when: datetime.datetime
    day: datetime.date
    color: Color
    tags: list[str]


CLICK = shape_of(Click)


def test_columns_are_chosen_ordered_and_widened():
    columns = pa.RecordBatch.from_arrays(
        [pa.array([1, 2], pa.int32()), pa.array(["x", "y"]), pa.nulls(2), pa.array(["ada", "bob"])],
        ["share", "other", "amount", "user"],
    )
    found = as_declared(columns, CLICK)
    assert found.schema == pa.schema([("user", pa.string()), ("amount", pa.int64()), ("share", pa.float64())])
    assert found.to_pydict() == {"user": ["ada", "bob"], "amount": [None, None], "share": [1.0, 2.0]}


def test_times_are_in_utc_and_types_without_a_column_are_left_as_they_are():
    when = datetime.datetime(2026, 1, 1)
    columns = pa.RecordBatch.from_pydict({"when": [when], "day": [when.date()], "color": ["red"], "tags": [["a"]]})
    found = as_declared(columns, shape_of(Dated))
    assert found.column(0).type == pa.timestamp("us", tz="UTC")
    (dated,) = shape_of(Dated).values(found)
    assert dated == Dated(when.replace(tzinfo=datetime.UTC), when.date(), Color.RED, ["a"])


def test_a_missing_column_is_named_with_the_existing_ones():
    with pytest.raises(StepError, match="lack the column amount, share of Click; they have user"):
        as_declared(pa.RecordBatch.from_pydict({"user": ["a"]}), CLICK)


@pytest.mark.parametrize("amounts", [["1"], [1.5], [True], [[1]], [b"1"]])
def test_a_column_of_another_type_is_refused_and_not_converted(amounts):
    columns = pa.RecordBatch.from_pydict({"user": ["a"], "amount": amounts, "share": [1.0]})
    with pytest.raises(StepError, match=r"the column 'amount' is of type .*, and Click declares int64"):
        as_declared(columns, CLICK)


def test_records_without_a_value_that_they_must_have_are_found():
    columns = pa.RecordBatch.from_pydict({"user": ["a", None, "c"], "amount": [None, 2, 3], "share": [None, 1.0, None]})
    assert unfilled(as_declared(columns, CLICK), CLICK) == {0: "amount", 1: "user"}
