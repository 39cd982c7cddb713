"""Values are checked against the description of their declared type, without the program that defines it."""

from __future__ import annotations

import enum
import json
from dataclasses import dataclass, field
from datetime import date
from typing import Annotated, Any, Literal, NamedTuple, TypedDict

import msgspec
import pytest

from tidewheel._cells.declared import CheckedCodec, ValueCodec
from tidewheel._cells.type_description import describe
from tidewheel.cells import Encoding


@dataclass
class Limits:
    low: int
    high: int | None = None
    names: list[str] = field(default_factory=list)


class Tree(msgspec.Struct, rename="camel"):
    node_name: str
    below: list[Tree] = []


class Cat(msgspec.Struct, tag="cat"):
    lives: int


class Dog(msgspec.Struct, tag="dog"):
    name: str


class Point(NamedTuple):
    x: int
    y: int


class Pair(msgspec.Struct, array_like=True):
    left: int
    right: str = ""


class Color(enum.Enum):
    RED = "red"


class Named(TypedDict, total=False):
    name: str


@pytest.mark.parametrize(
    ("declared", "good", "bad"),
    [
        (dict[str, float], [{"EUR": 1, "USD": 0.92}], ["hello", [1], {"EUR": 1.0, "USD": "0.92"}]),
        (dict, [{"a": 1}], ["hello", [1]]),
        (list[str], [["a"]], ["a", [1], {}]),
        (set[int], [[1, 2]], [["a"]]),
        (tuple[int, str], [[1, "a"]], [[1], ["a", 1]]),
        (float | None, [1, 2.5], ["high", []]),
        (Limits, [{"low": 1}, {"low": 1, "high": 2, "names": ["a"]}], [{"low": "x"}, {}, {"low": 1, "hihg": 2}, "x"]),
        (dict[str, Limits], [{"a": {"low": 1}}], [{"a": {"low": None}}]),
        (Tree, [{"nodeName": "a", "below": [{"nodeName": "b"}]}], [{"node_name": "a"}, {"nodeName": 1}]),
        (Cat | Dog, [{"type": "cat", "lives": 9}], [{"type": "cat", "name": "x"}, {"lives": 9}]),
        (Point, [[1, 2]], [[1, "a"], [1]]),
        (Pair, [[1], [1, "a"]], ["a"]),
        (Color, ["red"], ["blue", 1]),
        (Literal["a", 1], ["a", 1], ["b", 2]),
        (Named, [{"name": "x"}, {}], [{"name": 1}]),
        (date, ["2026-01-31"], ["2026-02-31", 3]),
        (bytes, ["aGk="], ["?"]),
        (Annotated[int, msgspec.Meta(ge=0, le=9)], [3], [-1, 10]),
        (Any, ["x", 1, {}], []),
    ],
)
def test_a_description_accepts_the_values_of_its_type(declared, good, bad):
    by_description = CheckedCodec(json.loads(json.dumps(describe(declared))))
    program = ValueCodec(declared)
    for value in good:
        data = by_description.encode(value, "here", "T")
        program.decode(data, "here", "T")
    for value in bad:
        with pytest.raises(Encoding, match="cannot be written to here, which is declared as T"):
            by_description.encode(value, "here", "T")


def test_a_missing_field_gets_the_default_of_the_program():
    data = CheckedCodec(describe(Limits)).encode({"low": 1}, "here", "Limits")
    assert ValueCodec(Limits).decode(data, "here", "Limits") == Limits(1)


def test_values_of_the_program_fit_too():
    codec = CheckedCodec(describe(dict[str, Limits]))
    plain = {"a": {"low": 2, "high": None, "names": []}}
    assert codec.encode({"a": Limits(2)}, "here", "T") == codec.encode(plain, "here", "T")


def test_a_type_that_only_its_program_knows_is_not_checked():
    class Own:
        pass

    assert describe(Own) == "any"
    assert describe(dict[str, Own]) == {"is": "dict", "key": "str", "of": "any"}
    assert describe("nothing") == "any"
