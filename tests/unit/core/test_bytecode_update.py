"""Which fields a function adds to a dict: proven by its bytecode, or unknown."""

from __future__ import annotations

import pytest

from tidewheel._core.bytecode_update import analyse_update

LIMIT = 15
known = {}


def several_lines(flight):
    late = flight["delay"] > LIMIT
    known["late"] = late
    return {**flight, "late": late, "tail": flight["tail"].strip().upper()}


def two_variables(flight):
    delay, distance = flight["delay"], flight["distance"]
    far = distance > LIMIT
    return {**flight, "speed": distance / delay, "far": far}


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
        (lambda f: {**f, "label": f"{f['tail']!r:>9} at {f['delay']}"}, {"tail", "delay"}, ("label",)),
        (lambda f: {**f, "start": f["tail"][:2], "end": f["tail"][-2:]}, {"tail"}, ("start", "end")),
        (lambda f: {**f, "low": min(f["delay"], LIMIT, key=abs)}, {"delay"}, ("low",)),
        (two_variables, {"delay", "distance"}, ("speed", "far")),
    ],
)
def test_the_fields_that_a_function_adds_and_reads_are_found(function, read, added):
    found = analyse_update(function)
    assert found is not None
    assert (found.read.names, found.names) == (read, added)


def test_statements_that_leave_the_argument_alone_may_come_first():
    assert analyse_update(several_lines).names == ("late", "tail")


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
def test_a_function_that_may_do_more_is_not_recognised(function):
    assert analyse_update(function) is None
