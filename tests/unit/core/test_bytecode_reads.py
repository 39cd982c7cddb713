"""Which fields of an argument a function reads: proven by its bytecode, or unknown."""

from __future__ import annotations

import functools

import pytest

from tidewheel._core.bytecode_reads import analyse_reads


def several_lines(key, flight, state):
    if flight.delay > 15 and not flight.cancelled:
        state = state + flight.delay
    for number in range(3):
        state += number
    return f"{flight.tail}: {state}", state


def generates(flight):
    yield flight.delay
    yield flight.tail.upper()


def assigns_others(flight):
    delay = flight["delay"]
    distance = flight["distance"]
    return delay / distance


class Fines:
    rate = 3

    def fine(self, flight):
        return self.rate * flight.delay


@pytest.mark.parametrize(
    ("function", "position", "names", "by"),
    [
        (lambda f: f.delay > 15, 0, {"delay"}, "attribute"),
        (lambda f: f.delay + f.distance * f.delay, 0, {"delay", "distance"}, "attribute"),
        (lambda total, f: total + f.delay, 1, {"delay"}, "attribute"),
        (lambda f: f["delay"] > f["distance"], 0, {"delay", "distance"}, "item"),
        (lambda f: f.tail.strip().upper(), 0, {"tail"}, "attribute"),
        (lambda f: 1, 0, set(), None),
        (several_lines, 1, {"delay", "cancelled", "tail"}, "attribute"),
        (generates, 0, {"delay", "tail"}, "attribute"),
        (Fines().fine, 0, {"delay"}, "attribute"),
        (assigns_others, 0, {"delay", "distance"}, "item"),
    ],
)
def test_the_fields_that_a_function_reads_are_found(function, position, names, by):
    read = analyse_reads(function, position)
    assert read is not None
    assert (read.names, read.by) == (names, by)


def keeps(flight, kept=[]):  # noqa: B006
    kept.append(flight)
    return flight.delay


def changes(flight):
    flight.delay = 3
    return flight.delay


def changes_an_item(flight):
    flight["delay"] = 3
    return flight["delay"]


def sets_anew(flight):
    flight = {"other": flight.delay}
    return flight


def looks_at_its_variables(flight):
    return locals()["flight"], flight.delay


def deletes(flight):
    delay = flight.delay
    del flight
    return delay


@functools.cache
def wrapped(flight):
    return flight.delay


class Callable:
    def __call__(self, flight):
        return flight.delay


@pytest.mark.parametrize(
    "function",
    [
        lambda f: f,
        lambda f: (f.delay, f),
        lambda f: print(f),
        lambda f: f == f.delay,
        lambda f: [f.delay for _ in range(2)] if f else 0,
        lambda f: lambda: f.delay,
        lambda f: f[0],
        lambda f: f[f.delay],
        lambda f: f["delay"] + f.delay,
        lambda f: {**f, "late": True},
        lambda f: f.total(),
        lambda *fs: fs[0].delay,
        lambda f: len(f) + f.delay,
        lambda f: "delay" in f,
        keeps,
        changes,
        changes_an_item,
        sets_anew,
        looks_at_its_variables,
        deletes,
        wrapped,
        Callable(),
        functools.partial(several_lines, "key"),
        len,
        int,
    ],
)
def test_a_function_that_does_anything_else_gets_the_whole_value(function):
    assert analyse_reads(function, 0) is None
