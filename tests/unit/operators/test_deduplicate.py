"""deduplicate: one message of each id within the horizon."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidewheel import Message
from tidewheel._operators.keyed import known_ids
from tidewheel._operators.keyed.deduplicate import Deduplicate
from tidewheel._state.layout import StateLayout
from tidewheel._state.segments import is_segments
from tidewheel.errors import StepError
from tidewheel.testing import StepTester


def deduplicating(horizon=10):
    return StepTester(lambda keyed: keyed.deduplicate("once", f"{horizon} ns"))


def passed(op, *times):
    return [message.time for time in times for message in op.send("k", time, time)]


def test_an_older_message_does_not_make_it_forget_the_newer_one():
    assert passed(deduplicating(), 100, 80, 101) == [100, 80]


def test_an_older_message_is_remembered_as_well():
    assert passed(deduplicating(), 100, 80, 80, 85, 71, 70) == [100, 80, 70]


def test_ids_are_forgotten_one_by_one():
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
def test_it_agrees_with_a_model_that_remembers_all_ids(times, horizon, seed):
    op, expected, out = deduplicating(horizon), [], []
    chance = random.Random(seed)
    for time in times:
        if all(abs(time - other) >= horizon for other in expected):
            expected.append(time)
        out += passed(op, time)
        if chance.random() < 0.3:
            op.restore(op.snapshot())
    assert out == expected


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(0, 12), st.integers(0, 40)),
        st.tuples(st.just("epoch"), st.just(0), st.integers(0, 60)),
        st.tuples(st.just("restore"), st.just(0), st.just(0)),
    ),
    max_size=60,
)
"""Times of messages count from the last epoch."""


@settings(deadline=None)
@given(STEPS, st.integers(1, 25))
def test_in_segments_as_a_model_that_forgets_each_id_at_its_time(steps, horizon):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(known_ids, "SEGMENT_IDS", 1)
        op = StepTester(lambda keyed: keyed.deduplicate("once", f"{horizon} ns", by=lambda value: value))
        model: dict[int, list[int]] = {}
        for step, name, time in steps:
            if step == "send":
                time += 0 if op.last_epoch is None else op.last_epoch + 1
                let_through = all(abs(time - other) >= horizon for other in model.get(name, []))
                assert len(op.send("k", name, time)) == let_through
                if let_through:
                    model.setdefault(name, []).append(time)
            elif step == "epoch":
                op.epoch(time)
                model = {id: [t for t in times if t + horizon > op.last_epoch] for id, times in model.items()}
            else:
                op.restore(op.snapshot())
            there = bool(op.interrogate())
            assert there == any(model.values())
            if not there:
                assert op.snapshot() == {}


def test_a_message_changes_one_segment_of_a_key_with_many_ids():
    op = StepTester(lambda keyed: keyed.deduplicate("once", "1000000 ns", by=lambda value: value))
    op.send_all([Message("k", number, number) for number in range(5_000)])
    before = op.snapshot()
    assert sum(is_segments(table) for table, _ in before) > 4
    assert op.send("k", 4_321, 5_000) == []
    assert op.snapshot() == before
    assert len(op.send("k", 5_000, 5_000)) == 1
    after = op.snapshot()
    assert sum(after[entry] != before.get(entry) for entry in after if is_segments(entry[0])) == 1
    # A few ids whose time has come are left where they are, and known no more.
    op.epoch(1_000_000 + 9)
    assert op.snapshot().keys() - after.keys() == set()
    assert [len(op.send("k", number, 1_000_010)) for number in (9, 11)] == [1, 0]
    op.epoch(3_000_000)
    assert op.snapshot() == {}


def test_many_ids_of_a_key_may_be_all_that_can_be_stored():
    op = StepTester(lambda keyed: keyed.deduplicate("once", "1000000 ns", by=lambda value: value))
    ids = [*(2**64 - 1 - number for number in range(600)), *(-(2**63) + number for number in range(600)), "", b""]
    assert len(op.send_all([Message("k", name, time) for time, name in enumerate(ids)])) == len(ids)
    assert any(is_segments(table) for table, _ in op.snapshot())
    assert op.send_all([Message("k", name, 2_000) for name in ids]) == []


def test_the_layout_records_the_horizon_and_accepts_that_of_older_versions():
    began = Deduplicate(10)
    later = Deduplicate(30).continuing(began.state_layout)
    assert later.horizon == 30
    assert later.state_layout == began.state_layout != Deduplicate(30).state_layout
    assert began.takes(StateLayout("deduplicate"))
    assert not began.takes(Deduplicate(30).state_layout)


def test_the_id_may_be_a_column_and_duplicates_are_counted():
    op = StepTester(lambda keyed: keyed.deduplicate("once", "10 ns", by="id"))
    sent = [op.send("k", {"id": name}, 100 + at) for at, name in enumerate("abab")]
    assert [len(each) for each in sent] == [1, 1, 0, 0]
    assert op.counts["once/dropped"] == 2
    with pytest.raises(StepError, match="the value has no field 'id'"):
        op.send("k", {"other": 1}, 105)
