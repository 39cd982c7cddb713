"""deduplicate: one message of each id, and none whose time is less than a horizon away from it."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from tidewheel.testing import OperatorTester


def deduplicating(horizon=10):
    return OperatorTester(lambda keyed: keyed.deduplicate("once", f"{horizon} ns"))


def passed(op, *times):
    return [message.time for time in times for message in op.send("k", time, time)]


def test_an_older_message_does_not_make_it_forget_the_newer_one():
    assert passed(deduplicating(), 100, 80, 101) == [100, 80]


def test_an_older_message_is_remembered_as_well():
    assert passed(deduplicating(), 100, 80, 80, 85, 71, 70) == [100, 80, 70]


def test_what_was_let_through_is_forgotten_one_by_one():
    op = deduplicating()
    assert passed(op, 100, 80) == [100, 80]
    op.epoch(90)
    assert op.state("k") == {"": 110}
    op.epoch(110)
    assert op.state("k") is None


def test_state_of_one_number_an_id_is_read():
    op = deduplicating()
    op.acquire("k", {"once": {"": 110}})
    assert passed(op, 105, 120) == [120]


@given(st.lists(st.integers(0, 60), max_size=12), st.integers(1, 12), st.integers(0, 2**32))
def test_as_a_model_that_remembers_all_whatever_commits_lie_between(times, horizon, seed):
    op, expected, out = deduplicating(horizon), [], []
    chance = random.Random(seed)
    for time in times:
        if all(abs(time - other) >= horizon for other in expected):
            expected.append(time)
        out += passed(op, time)
        if chance.random() < 0.3:
            op.restore(op.snapshot())
    assert out == expected
