"""Timed steps whose durations change between versions of a program keep what is waiting."""

from __future__ import annotations

import pytest

from tidewheel import count, session, tumbling
from tidewheel.testing import StepTester


def joining(join, **options):
    def build(keyed):
        left, right = keyed.branch("sides", lambda v: v[0] == "l", lambda v: v[0] == "r")
        return getattr(left, join)("join", right, function=lambda a, b: [a, b], how="left", **options)

    return StepTester(build)


def continued(before, after):
    after.restore(before.snapshot())
    after.last_epoch = before.last_epoch
    return after


def values(messages):
    return [(message.value, message.time) for message in messages]


def test_waiting_rows_of_an_interval_join_follow_the_new_interval():
    before = joining("interval_join", after="10 ns")
    before.send("k", "l1", 100)
    before.send("k", "l2", 105)
    op = continued(before, joining("interval_join", after="20 ns"))
    assert op.epoch(110) == []
    assert values(op.send("k", "r1", 118)) == [(["l1", "r1"], 118), (["l2", "r1"], 118)]
    assert op.epoch(119) == []
    op.epoch(138)
    assert op.state("k", "join") is None


def test_a_row_without_a_partner_is_emitted_when_the_new_interval_ends():
    before = joining("interval_join", after="10 ns")
    before.send("k", "l1", 100)
    op = continued(before, joining("interval_join", after="20 ns"))
    assert op.epoch(110) == []
    assert values(op.epoch(1000)) == [(["l1", None], 120)]
    assert op.state("k", "join") is None


def test_a_right_value_of_an_as_of_join_goes_when_the_new_tolerance_ends():
    before = joining("as_of_join", tolerance="10 ns")
    before.send("k", "r1", 100)
    op = continued(before, joining("as_of_join", tolerance="20 ns"))
    op.epoch(111)
    assert values(op.send("k", "l1", 120)) == []
    assert values(op.epoch(120)) == [(["l1", "r1"], 120)]
    op.epoch(121)
    assert op.state("k", "join") is None


def test_a_window_that_was_emitted_goes_when_the_new_lateness_ends():
    def counting(lateness):
        return StepTester(
            lambda keyed: keyed.window("w", tumbling("10 ns"), lambda n, v: n + 1, default=0, allowed_lateness=lateness)
        )

    before = counting("5 ns")
    before.send("k", 1, 3)
    before.epoch(10)
    op = continued(before, counting("20 ns"))
    op.epoch(15)
    assert [message.value.correction for message in op.send("k", 1, 4)] == [True]
    op.epoch(29)
    assert op.state("k") is None


def test_a_shorter_interval_emits_a_waiting_row_once():
    before = joining("interval_join", after="20 ns")
    before.send("k", "l1", 100)
    op = continued(before, joining("interval_join", after="10 ns"))
    assert values(op.send("k", "r1", 115)) == []
    assert values([*op.epoch(110), *op.epoch(130)]) == [(["l1", None], 111)]
    assert op.state("k", "join") is None


def test_an_as_of_join_forgets_values_after_the_new_tolerance():
    before = joining("as_of_join", tolerance="20 ns")
    before.send("k", "r1", 100)
    op = continued(before, joining("as_of_join", tolerance="10 ns"))
    op.send("k", "l1", 110)
    op.send("k", "l2", 111)
    assert values(op.epoch(121)) == [(["l1", "r1"], 110), (["l2", None], 111)]
    assert op.state("k", "join") is None


def folding(windows, function):
    if function:
        return StepTester(lambda keyed: keyed.window("w", windows, lambda n, _: n + 1, default=0, merge=int.__add__))
    return StepTester(lambda keyed: keyed.window("w", windows, value=count()))


@pytest.mark.parametrize("function", [True, False], ids=["function", "aggregates"])
def test_a_session_ends_by_the_gap_that_its_last_message_had(function):
    before = folding(session("10 ns"), function)
    before.send("k", {}, 100)
    op = continued(before, folding(session("30 ns"), function))
    op.send("k", {}, 105)
    assert op.epoch(133) == []
    assert [(message.value.end, message.value.value) for message in op.epoch(134)] == [(135, 2)]
    before = folding(session("30 ns"), function)
    before.send("k", {}, 100)
    op = continued(before, folding(session("10 ns"), function))
    op.send("k", {}, 131)
    found = [(message.value.start, message.value.end, message.value.value) for message in op.epoch(140)]
    assert found == [(100, 130, 1), (131, 141, 1)]


@pytest.mark.parametrize("lateness", ["0 s", "10 ns"])
@pytest.mark.parametrize(
    ("windows", "next_end"), [(tumbling("10 ns"), 20), (session("10 ns"), 23)], ids=["tumbling", "session"]
)
def test_a_window_is_emitted_at_its_end_despite_an_older_longer_lateness(windows, next_end, lateness):
    def counting(lateness):
        return StepTester(lambda keyed: keyed.window("w", windows, n=count(), allowed_lateness=lateness))

    before = counting("20 ns")
    before.send("k", {}, 3)
    assert len(before.epoch(12)) == 1
    op = continued(before, counting(lateness))
    op.send("k", {}, next_end - 10 if next_end == 23 else 15)
    assert [(message.value.end, message.value.n) for message in op.epoch(next_end - 1)] == [(next_end, 1)]
    assert op.epoch(100) == []
    assert op.state("k") is None
