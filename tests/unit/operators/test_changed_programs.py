"""Timed operators whose durations change from one version of a program to the next: what waits is not forgotten."""

from __future__ import annotations

from tidewheel import tumbling
from tidewheel.testing import OperatorTester


def joining(join, **options):
    def build(keyed):
        left, right = keyed.branch("sides", lambda v: v[0] == "l", lambda v: v[0] == "r")
        return getattr(left, join)("join", right, function=lambda a, b: [a, b], how="left", **options)

    return OperatorTester(build)


def continued(before, after):
    after.restore(before.snapshot())
    after.last_epoch = before.last_epoch
    return after


def values(messages):
    return [(message.value, message.time) for message in messages]


def test_rows_that_wait_in_an_interval_join_wait_as_long_as_the_new_interval_says():
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
        return OperatorTester(
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
