"""Intervals that overlap, for many keys at once, against a loop over them."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tidewheel._time.intervals import overlapping

INTERVALS = st.lists(st.tuples(st.integers(0, 3), st.integers(-50, 50), st.integers(1, 20)), max_size=30)


@settings(max_examples=50, deadline=None)
@given(INTERVALS)
def test_groups_are_those_that_a_loop_finds(intervals):
    keys, starts, lengths = (np.array([each[at] for each in intervals], np.int64) for at in range(3))
    order, new = overlapping(keys, starts, starts + lengths)
    reached: dict[int, int] = {}
    expected = []
    for key, start, length in sorted(intervals, key=lambda each: each[:2]):
        expected.append(key not in reached or start >= reached[key])
        reached[key] = start + length if expected[-1] else max(reached[key], start + length)
    assert [(keys[at], starts[at]) for at in order] == sorted(each[:2] for each in intervals)
    # Which of two intervals with one start comes first does not matter: the second is never new.
    assert new.tolist() == expected


def test_times_near_the_ends_of_64_bits_do_not_overflow():
    starts = np.array([4 * 10**18, -4 * 10**18, 4 * 10**18 + 5], np.int64)
    order, new = overlapping(np.array([1, 1, 0]), starts, starts + 10**18)
    assert order.tolist() == [2, 1, 0]
    assert new.tolist() == [True, True, True]
