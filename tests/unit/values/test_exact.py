"""Values become columns only if the columns give exactly the same values back."""

from __future__ import annotations

import dataclasses
import datetime
from collections import OrderedDict

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewheel._values import row_class
from tidewheel._values.exact import exact_columns, optional_array, plain_array

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
PLAIN = st.none() | st.integers() | TEXT | st.floats(allow_nan=False) | st.booleans() | st.binary(max_size=3)


@dataclasses.dataclass
class Click:
    user: str
    n: int | None = None


@dataclasses.dataclass(slots=True)
class Slotted:
    user: str
    n: float = 0.0


@dataclasses.dataclass
class Lone:
    n: int


class Order(msgspec.Struct):
    user: str
    n: int = 0


@dataclasses.dataclass
class Doubling:
    n: int

    def __post_init__(self) -> None:
        self.n *= 2


class Checked(msgspec.Struct):
    n: int

    def __post_init__(self) -> None:
        self.n += 1


@dataclasses.dataclass
class Turned:
    a: int
    b: int

    def __init__(self, b: int, a: int) -> None:
        self.a, self.b = a, b


class Keyworded(msgspec.Struct, kw_only=True):
    a: int


KINDS = [Click, Slotted, Order, row_class(("user", "n")), row_class(("user id", "class"))]


@pytest.mark.parametrize("kind", KINDS)
def test_records_and_rows_come_back_as_they_were_or_have_no_columns(kind):
    @given(st.lists(st.builds(kind, PLAIN, PLAIN), min_size=1, max_size=6))
    def check(values):
        exact = exact_columns(values)
        if exact is not None:
            form, columns = exact
            back = form.values(columns)
            assert back == values
            assert [type(value) for value in back] == [type(value) for value in values]
            assert [list(map(type, parts(value))) for value in back] == [list(map(type, parts(v))) for v in values]

    check()


def parts(value) -> tuple:
    if isinstance(value, tuple):
        return tuple(value)
    return dataclasses.astuple(value) if dataclasses.is_dataclass(value) else msgspec.structs.astuple(value)


@pytest.mark.parametrize(
    "values",
    [
        [Click("a", 1), Click("b")],
        [Order("a", 1)],
        [Lone(1), Lone(2)],
        [Slotted("a")],
        [{"a": 1, "b": "x"}, {"a": None, "b": "y"}],
    ],
)
def test_plain_records_have_columns(values):
    exact = exact_columns(values)
    assert exact is not None
    form, columns = exact
    assert form.values(columns) == values


def more(click: Click) -> Click:
    click.extra = 1  # type: ignore[attr-defined]
    return click


@pytest.mark.parametrize(
    "values",
    [
        [Click("a", 1), Order("a", 1)],
        [Click("a", 1), Click("a", 1.5)],
        [Click("a", 2**70)],
        [Click("\ud800")],
        [Click(["a"])],
        [Click(datetime.datetime(2026, 1, 1))],
        [more(Click("a"))],
        [Doubling(1)],
        [Checked(1)],
        [Turned(1, 2)],
        [Keyworded(a=1)],
        [{"a": 1}, {"b": 1}],
        [{"a": 1, "b": 2}, {"b": 2, "a": 1}],
        [{"a": 1}, {"a": 1, "b": 2}],
        [{1: 1}],
        [{}],
        [{"a": 1}, OrderedDict(a=1)],
        [(1, 2)],
        [row_class(("a",))(1), row_class(("b",))(1)],
        [row_class(())()],
    ],
)
def test_values_that_would_change_have_no_columns(values):
    assert exact_columns(values) is None


def test_columns_of_plain_values():
    assert plain_array([1, 2]).to_pylist() == [1, 2]
    assert plain_array([1, None]) is None
    assert plain_array([]) is None
    assert optional_array([1, None]).to_pylist() == [1, None]
    assert optional_array([None]).to_pylist() == [None]
    for values in ([1, True], [1, 1.0], ["a", b"a"], [2**70], [(1,)], ["\ud800"]):
        assert plain_array(values) is None
        assert optional_array(values) is None
