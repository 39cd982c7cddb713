"""Shapes: declarations, and the conversion of values to columns and back for each shape."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
from typing import Any, Optional

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewheel import Row
from tidewheel._values import ANY, DICT, ROW, SCALAR, Shape, row_class, shape_of
from tidewheel._values.shape import arrow_type, to_columns
from tidewheel.errors import GraphError, StepError

INT64 = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
MOMENT = st.datetimes(datetime.datetime(1700, 1, 1), datetime.datetime(2200, 1, 1), timezones=st.just(datetime.UTC))


@dataclasses.dataclass
class Point:
    x: int
    y: float


class Place(msgspec.Struct):
    name: str
    at: Point | None = None


@dataclasses.dataclass
class Click:
    user: str
    amount: int
    when: datetime.datetime
    note: Optional[str] = None  # noqa: UP045


@dataclasses.dataclass
class Tour:
    day: datetime.date
    stops: list[Place]
    prices: dict[str, float]
    tags: set[str]
    route: tuple[Point, ...]


class Keyworded(msgspec.Struct, kw_only=True):
    user: str
    amount: int = 0


@dataclasses.dataclass
class Doubled:
    amount: int
    twice: int = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self.twice = 2 * self.amount


POINTS = st.builds(Point, x=INT64, y=st.floats(allow_nan=False))
PLACES = st.builds(Place, name=TEXT, at=st.none() | POINTS)
CLICKS = st.builds(Click, user=TEXT, amount=INT64, when=MOMENT, note=st.none() | TEXT)
TOURS = st.builds(
    Tour,
    day=st.dates(),
    stops=st.lists(PLACES, max_size=3),
    prices=st.dictionaries(TEXT, st.floats(allow_nan=False), max_size=3),
    tags=st.sets(TEXT, max_size=3),
    route=st.lists(POINTS, max_size=3).map(tuple),
)


def there_and_back(values: list[Any], shape: Shape) -> list[Any]:
    return shape.values(to_columns(values, shape))


@given(st.lists(CLICKS))
def test_dataclasses_come_back_as_they_were(clicks):
    assert there_and_back(clicks, shape_of(Click)) == clicks


@given(st.lists(PLACES))
def test_structs_with_optional_records_come_back(places):
    assert there_and_back(places, shape_of(Place)) == places


@given(st.lists(TOURS, max_size=4))
def test_lists_maps_sets_and_tuples_of_records_come_back(tours):
    assert there_and_back(tours, shape_of(Tour)) == tours


@given(st.lists(st.builds(Keyworded, user=TEXT, amount=INT64)))
def test_structs_that_take_keywords_only_come_back(values):
    assert there_and_back(values, shape_of(Keyworded)) == values


@given(st.lists(st.builds(Doubled, amount=st.integers(-1000, 1000))))
def test_fields_that_a_record_makes_itself_are_made_again(values):
    assert there_and_back(values, shape_of(Doubled)) == values


@given(st.lists(st.tuples(TEXT, INT64, st.none() | st.floats(allow_nan=False))))
def test_rows_come_back(tuples):
    rows = [row_class(("user", "amount", "share"))(*values) for values in tuples]
    if rows:
        assert there_and_back(rows, ROW) == rows


@given(st.lists(st.fixed_dictionaries({"user": TEXT, "n": INT64, "points": st.lists(INT64, max_size=3)}), min_size=1))
def test_dicts_with_the_same_names_come_back(dicts):
    assert there_and_back(dicts, DICT) == dicts


def test_dicts_that_lack_names_get_none_for_them():
    assert there_and_back([{"a": 1}, {"b": "x"}], DICT) == [{"a": 1, "b": None}, {"a": None, "b": "x"}]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (int, st.lists(INT64)),
        (float, st.lists(st.floats(allow_nan=False))),
        (str, st.lists(TEXT)),
        (bytes, st.lists(st.binary())),
        (bool, st.lists(st.booleans())),
        (datetime.datetime, st.lists(MOMENT)),
        (datetime.date, st.lists(st.dates())),
        (int | None, st.lists(st.none() | INT64)),
    ],
)
def test_scalars_come_back(kind, values):
    @given(values)
    def check(found):
        shape = shape_of(kind)
        assert shape.kind == "scalar"
        assert there_and_back(found, shape) == found

    check()


def test_declared_columns_have_their_types_even_without_rows():
    schema = pa.schema([("name", pa.string()), ("at", pa.struct([("x", pa.int64()), ("y", pa.float64())]))])
    assert to_columns([], shape_of(Place)).schema == schema
    assert to_columns([Place("a")], shape_of(Place)).schema == schema


def test_values_without_fields_are_one_column():
    assert to_columns([1, 2], ANY).to_pydict() == {"value": [1, 2]}
    assert to_columns([(1, 2), (3, 4)], ANY).to_pydict() == {"value": [[1, 2], [3, 4]]}
    assert to_columns([], ANY).to_pydict() == {"value": []}
    assert to_columns([None, None], SCALAR).to_pydict() == {"value": [None, None]}


def test_undeclared_records_become_columns_by_their_fields():
    assert to_columns([Point(1, 2.0), Point(3, 4.0)], ANY).to_pydict() == {"x": [1, 3], "y": [2.0, 4.0]}
    assert to_columns([Keyworded(user="a", amount=1)], ANY).to_pydict() == {"user": ["a"], "amount": [1]}


def test_records_deep_inside_undeclared_values_become_structs():
    columns = to_columns([{"stops": [Place("a", Point(1, 2.0))], "tags": {"x"}, "paid": decimal.Decimal("1.5")}], ANY)
    assert columns.to_pylist() == [
        {"stops": [{"name": "a", "at": {"x": 1, "y": 2.0}}], "tags": ["x"], "paid": decimal.Decimal("1.5")}
    ]


def test_columns_that_are_no_identifiers_keep_their_names():
    columns = pa.RecordBatch.from_pydict({"user id": ["ada"], "class": [1], "n": [2]})
    (row,) = ROW.values(columns)
    assert (row._0, row._1, row.n) == ("ada", 1, 2)
    assert to_columns([row], ROW).to_pydict() == columns.to_pydict()


def test_rows_of_several_kinds_have_the_columns_of_all_of_them():
    narrow, wide = row_class(("a", "b"))(1, 2), row_class(("b", "a", "c"))(4, 3, 5)
    assert to_columns([narrow, wide], ROW).to_pydict() == {"a": [1, 3], "b": [2, 4], "c": [None, 5]}


def test_records_take_the_columns_they_have_fields_for_in_any_order():
    columns = pa.RecordBatch.from_pydict({"y": [1.5], "other": ["x"], "x": [7]})
    assert shape_of(Point).values(columns) == [Point(7, 1.5)]


def test_a_record_that_does_not_fit_is_named_with_the_reason():
    columns = pa.RecordBatch.from_pydict({"name": ["a"], "at": [{"x": "seven", "y": 1.0}]})
    with pytest.raises(StepError, match=r"'seven'.*does not fit Place: Expected `int`, got `str` - at `\$.at.x`"):
        shape_of(Place).values(columns)


def test_maps_are_dicts_in_rows_too():
    column = pa.array([{"a": 1}, {}], pa.map_(pa.string(), pa.int64()))
    assert [row.m for row in ROW.values(pa.RecordBatch.from_arrays([column], ["m"]))] == [{"a": 1}, {}]


@pytest.mark.parametrize(
    ("declared", "kind"),
    [
        (None, "any"),
        (Any, "any"),
        (Row, "row"),
        (dict, "dict"),
        (dict[str, int], "dict"),
        (Point, "record"),
        (Place, "record"),
        (int, "scalar"),
        (Optional[str], "scalar"),  # noqa: UP045
        (list[int], "any"),
        (int | str, "any"),
        (int | str | None, "any"),
    ],
)
def test_a_declared_type_has_a_shape(declared, kind):
    assert shape_of(declared).kind == kind


def test_types_without_a_column_form_are_refused_with_alternatives():
    class Color(enum.Enum):
        RED = 1

    for declared in (Color, object, dict, list, int | str):
        with pytest.raises(GraphError, match="has no column type; use bool, int"):
            arrow_type(declared)


def test_shapes_describe_themselves():
    assert [shape.describe() for shape in (shape_of(Click), ROW, ANY, SCALAR)] == ["Click", "Row", "any", "scalar"]
    assert shape_of(Click).columns() == ("user", "amount", "when", "note")
    assert ROW.columns() is None
