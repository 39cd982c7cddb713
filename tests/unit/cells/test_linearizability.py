"""The checker, on histories known to be good and known to be bad."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.linearizability import EXCHANGE, READ, WRITE, Operation, is_linearizable


def read(called, returned, result):
    return Operation(READ, called, returned, result=result)


def write(called, returned, new):
    return Operation(WRITE, called, returned, new=new)


def exchange(called, returned, expected, new, applied):
    return Operation(EXCHANGE, called, returned, new=new, expected=expected, result=applied)


def maybe(kind, called, new, expected=None):
    return Operation(kind, called, new=new, expected=expected)


GOOD = {
    "nothing": [],
    "read of nothing": [read(0, 1, None)],
    "one after the other": [write(0, 1, 1), read(2, 3, 1), write(4, 5, 2), read(6, 7, 2)],
    "a read during a write sees the old": [write(0, 1, 1), write(2, 9, 2), read(3, 4, 1)],
    "a read during a write sees the new": [write(0, 1, 1), write(2, 9, 2), read(3, 4, 2)],
    "old, then new, during the write": [write(0, 9, 1), read(1, 2, None), read(3, 4, 1)],
    "two writes at once, either order": [write(0, 9, 1), write(0, 9, 2), read(10, 11, 1)],
    "one of two exchanges": [exchange(0, 9, None, 1, True), exchange(0, 9, None, 2, False)],
    "exchanges in a row": [exchange(0, 1, None, 1, True), exchange(2, 3, 1, 2, True), read(4, 5, 2)],
    "a lost write that happened late": [maybe(WRITE, 0, 1), read(1, 2, None), read(8, 9, 1)],
    "a lost write that never happened": [maybe(WRITE, 0, 1), read(8, 9, None)],
    "a lost exchange that happened": [write(0, 1, 1), maybe(EXCHANGE, 2, 2, 1), read(3, 4, 2)],
    "a lost exchange that did not": [write(0, 1, 1), maybe(EXCHANGE, 2, 2, 7), read(3, 4, 1)],
}
BAD = {
    "a value from nowhere": [read(0, 1, 5)],
    "a lost acknowledged write": [write(0, 1, 1), read(2, 3, None)],
    "a stale read": [write(0, 1, 1), write(2, 3, 2), read(4, 5, 1)],
    "new, then old": [write(0, 9, 1), read(1, 2, 1), read(3, 4, None)],
    "two winners on one value": [exchange(0, 9, None, 1, True), exchange(0, 9, None, 2, True)],
    "an exchange that should have applied": [write(0, 1, 1), exchange(2, 3, 1, 2, False)],
    "an exchange that should not have": [write(0, 1, 1), exchange(2, 3, 7, 2, True)],
    "a lost write seen before its call": [read(0, 1, 1), maybe(WRITE, 2, 1)],
    "a lost write that comes and goes": [maybe(WRITE, 0, 1), read(1, 2, 1), read(3, 4, None)],
    "two readers that disagree on the order": [
        write(0, 9, 1),
        write(0, 9, 2),
        read(10, 11, 1),
        read(12, 13, 2),
    ],
}


@pytest.mark.parametrize("name", GOOD)
def test_good(name):
    assert is_linearizable(GOOD[name])


@pytest.mark.parametrize("name", BAD)
def test_bad(name):
    assert not is_linearizable(BAD[name])


@st.composite
def histories(draw):
    """Operations applied one by one at known moments, with calls and returns stretched around those moments."""
    value, history = None, []
    for moment in range(draw(st.integers(1, 25))):
        called = moment - draw(st.floats(0, 3))
        returned = moment + draw(st.floats(0, 3))
        kind = draw(st.sampled_from([READ, WRITE, EXCHANGE]))
        new, expected = draw(st.integers(0, 3)), draw(st.one_of(st.none(), st.integers(0, 3)))
        operation = Operation(kind, called, returned, new, expected)
        result = value if kind == READ else value == expected
        _, value = operation.step(value) if kind != EXCHANGE else (True, new if result else value)
        lost = draw(st.integers(0, 9)) == 0
        history.append(
            Operation(kind, called, new=new, expected=expected)
            if lost
            else Operation(kind, called, returned, new, expected, result)
        )
    return history


@given(histories())
def test_every_history_made_by_a_real_register_is_accepted(history):
    assert is_linearizable(history)


@given(histories(), st.randoms())
def test_a_read_of_a_value_that_was_never_written_is_refused(history, chance: random.Random):
    called = chance.uniform(-3, 25)
    assert not is_linearizable([*history, read(called, called + 1, "never written")])
