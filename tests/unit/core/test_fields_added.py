"""Which fields a function adds to a dict: proven by its code, or not told at all."""

from __future__ import annotations

import sys

import pytest

from tidewheel._core.fields_added import fields_added

LIMIT = 15
known = {}


def several_lines(flight):
    late = flight["delay"] > LIMIT
    known["late"] = late
    return {**flight, "late": late, "tail": flight["tail"].strip().upper()}


def first_of_two(flight):
    if flight["delay"] > LIMIT:
        return {**flight, "late": True}
    return None


def shadowed(flight):
    flight = {**flight, "late": True}
    return {**flight, "later": True}


def seen_inside(flight):
    return {**flight, "late": (lambda: flight)()}


def asynchronous():
    async def added(flight):
        return {**flight, "late": True}

    return added


@pytest.mark.skipif(
    sys.version_info >= (3, 12), reason="each version has its own code; what is not known proves nothing"
)
@pytest.mark.parametrize(
    ("function", "read", "added"),
    [
        (lambda f: {**f, "late": f["delay"] > 15}, {"delay"}, ("late",)),
        (
            lambda f: {**f, "late": f["delay"] > LIMIT, "far": not f["distance"] < 9},
            {"delay", "distance"},
            ("late", "far"),
        ),
        (lambda f: {**f, "delay": 0, "parts": [f["tail"], -f["delay"]]}, {"tail", "delay"}, ("delay", "parts")),
        (lambda f: {**f, "at": round(f["delay"] / 60, ndigits=1), "in": {"a": 1}}, {"delay"}, ("at", "in")),
        (lambda f: {**f, "late": True, **{"late": False}}, set(), ("late",)),
        (lambda f: {**f}, set(), ()),
    ],
)
def test_a_function_that_only_adds_fields_tells_which(function, read, added):
    found = fields_added(function)
    assert found is not None
    assert (found.read.names, found.names) == (read, added)


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="as above")
def test_statements_before_the_result_may_do_anything_that_leaves_the_argument_alone():
    assert fields_added(several_lines).names == ("late", "tail")


@pytest.mark.parametrize(
    "function",
    [
        pytest.param(lambda f: {"late": True, **f}, id="the argument's fields win"),
        pytest.param(lambda f: {**f, **f["more"]}, id="fields that only the data tell"),
        pytest.param(lambda f: {**f, f["name"]: 1}, id="a name that only the data tell"),
        pytest.param(lambda f: {**f, 1: 1}, id="a key that is no name"),
        pytest.param(lambda f: len({**f, "late": 1}), id="the result is looked at"),
        pytest.param(lambda f: [{**f, "late": 1}], id="the result is put into something"),
        pytest.param(lambda f: {**{**f, "a": 1}, "b": 2}, id="the result is copied"),
        pytest.param(lambda f: {**f, "all": {**f}}, id="all fields are read"),
        pytest.param(lambda f: {**f, "n": len(f)}, id="the argument is passed on"),
        pytest.param(lambda f: {**f, "x": f.get("x")}, id="a method of the argument"),
        pytest.param(lambda f: {**f, "x": f[0]}, id="no field"),
        pytest.param(lambda f: {**f, "x": locals()}, id="all variables are looked at"),
        pytest.param(lambda f, *rest: f, id="nothing is added"),
        pytest.param(lambda: {}, id="no argument"),
        first_of_two,
        shadowed,
        seen_inside,
        asynchronous(),
        dict,
    ],
)
def test_a_function_that_may_do_more_tells_nothing(function):
    assert fields_added(function) is None
