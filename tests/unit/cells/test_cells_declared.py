from __future__ import annotations

import dataclasses
import datetime
import typing
from typing import Annotated, Any, Literal, Optional, Union

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewheel import Job
from tidewheel._cells.declared import ValueCodec, type_name
from tidewheel.cells import Encoding
from tidewheel.errors import ConfigError


class Point(msgspec.Struct):
    x: int
    y: int = 0


@dataclasses.dataclass
class Pair:
    left: str
    right: float


@pytest.mark.parametrize(
    ("declared", "name"),
    [
        (float, "float"),
        (dict[str, int], "dict[str, int]"),
        (dict[str, list[int | None]], "dict[str, list[int | None]]"),
        (Optional[int], "int | None"),  # noqa: UP045
        (Union[int, str], "int | str"),  # noqa: UP007
        (typing.List[int], "list[int]"),  # noqa: UP006
        (tuple[int, ...], "tuple[int, ...]"),
        (Annotated[int, msgspec.Meta(gt=0)], "int"),
        (Literal["a", 1], "Literal['a', 1]"),
        (Any, "Any"),
        (Point, "Point"),
        (list[Pair], "list[Pair]"),
        (datetime.datetime, "datetime"),
    ],
)
def test_names_are_pinned_since_they_are_part_of_a_cell_s_identity(declared, name):
    assert type_name(declared) == name


class Other(msgspec.Struct):
    x: int


@pytest.mark.parametrize(("check", "declared"), [(type_name, 5), (ValueCodec, Point | Other)])
def test_types_that_cannot_be_declared_are_refused(check, declared):
    with pytest.raises(ConfigError, match="cannot be the declared type of a cell"):
        check(declared)


@pytest.mark.parametrize("value", [Point(1, 2), Point(3)])
def test_structs(value):
    codec = ValueCodec(Point)
    assert codec.decode(codec.encode(value, "x", "Point"), "x", "Point") == value


def test_dataclasses_and_times():
    codec = ValueCodec(tuple[Pair, datetime.datetime])
    value = (Pair("a", 0.5), datetime.datetime(2030, 1, 2, tzinfo=datetime.UTC))
    assert codec.decode(codec.encode(value, "x", ""), "x", "") == value


@given(st.dictionaries(st.text(max_size=3), st.integers(-(2**63), 2**64 - 1), max_size=5), st.randoms())
def test_equal_values_have_the_same_bytes(value, chance):
    items = list(value.items())
    chance.shuffle(items)
    codec = ValueCodec(dict[str, int])
    assert codec.encode(value, "x", "") == codec.encode(dict(items), "x", "")


@given(st.one_of(st.integers(-(2**53), 2**53), st.floats(allow_nan=False)))
def test_numbers_in_a_float_cell_are_floats(number):
    codec = ValueCodec(float)
    assert codec.encode(number, "x", "float") == codec.encode(float(number), "x", "float")


@pytest.mark.parametrize("value", ["text", 1.5, None, object(), 2**70, [1]])
def test_a_value_other_than_an_int_is_refused(value):
    with pytest.raises(Encoding) as caught:
        ValueCodec(int).encode(value, "cell x", "int")
    assert caught.value.value is value


def test_a_value_by_a_writer_of_another_type_is_refused():
    with pytest.raises(Encoding, match="the value at cell x is not a Point"):
        ValueCodec(Point).decode(ValueCodec(str).encode("text", "", ""), "cell x", "Point")


def test_dicts_with_number_keys_have_the_same_bytes_in_any_order():
    class Rates(msgspec.Struct):
        by_id: dict[int, set[str]]
        at: datetime.datetime

    at = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    codec: ValueCodec[Rates] = ValueCodec(Rates)
    one, other = ({2: {"a", "b"}, -1: {"c"}, 300: set()}, {300: set(), -1: {"c"}, 2: {"b", "a"}})
    encoded = codec.encode(Rates(one, at), "here", "Rates")
    assert encoded == codec.encode(Rates(other, at), "here", "Rates")
    assert codec.decode(encoded, "here", "Rates") == Rates(one, at)


@pytest.mark.parametrize(
    ("declared", "kind"),
    [
        (dict[tuple[int, int], float], "tuple"),
        (list[dict[bool, int]], "bool"),
        (dict[str, dict[int | None, int]], "none"),
    ],
)
def test_keys_that_cannot_be_written_are_refused_at_the_declaration(declared, kind):
    with pytest.raises(ConfigError, match=rf"keys of a dict .* kind {kind}\. .*list\[tuple\[KEY, VALUE\]\]"):
        ValueCodec(declared)
    with pytest.raises(ConfigError, match=f"of the kind {kind}"):
        Job("live").cell("rates", declared)
