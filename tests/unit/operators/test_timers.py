"""Timers of stateful_op: any number per key, by event time or by the clock, cancellable."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewheel import Job, Message, Output, StatefulLogic, Timer
from tidewheel._engine.stopped_job import StoppedJob
from tidewheel._state.timers import decode, encode
from tidewheel._testing.clock import Clock
from tidewheel.errors import StepError
from tidewheel.sinks import collect
from tidewheel.testing import MemoryRun, StepTester

MAX = 2**63 - 1


class Alarms(StatefulLogic[int]):
    """Does what the message says: ("set", time, name), ("cancel", time, name); tells each timer that fires."""

    def on_data(self, message: Message, state: int, output: Output) -> int:
        what, time, *rest = message.value
        (output.set_timer if what == "set" else output.cancel_timer)(time, *rest)
        return state + 1

    def on_timer(self, timer: Timer, state: int, output: Output) -> int | None:
        output.emit([timer.time, timer.name, state])
        return state


def alarms(logic=None, **options):
    return StepTester(lambda keyed: keyed.stateful_op("op", logic or Alarms(), default=0), **options)


def fired(messages):
    return [(message.key, *message.value) for message in messages]


def test_timers_fire_once_in_time_order_when_the_epoch_reaches_them():
    op = alarms()
    for time, name in [(20, "b"), (10, "a"), (10, "c"), (30, "")]:
        op.send("k", ("set", time, name), 1)
    assert fired(op.epoch(9)) == []
    assert fired(op.epoch(20)) == [("k", 10, "a", 4), ("k", 10, "c", 4), ("k", 20, "b", 4)]
    assert fired(op.epoch(29)) == []
    assert fired(op.epoch(MAX)) == [("k", 30, "", 4)]


def test_setting_a_timer_twice_fires_once_and_a_cancelled_one_never():
    op = alarms()
    for what in ("set", "set"):
        op.send("k", (what, 10, ""), 1)
    op.send("k", ("set", 11, ""), 1)
    op.send("k", ("cancel", 11, ""), 1)
    op.send("k", ("cancel", 99, "never set"), 1)
    assert fired(op.epoch(50)) == [("k", 10, "", 5)]


def test_timers_of_the_clock_fire_when_the_pinned_time_reaches_them():
    op = alarms(clock=Clock(0))
    op.send("k", ("set", 2_000_000_000, "", "wall"))
    assert fired(op.tick(1)) == []
    assert fired(op.epoch(5_000_000_000)) == []
    assert fired(op.tick(1)) == [("k", 2_000_000_000, "", 1)]
    assert fired(op.tick(9)) == []


def test_a_timer_for_a_time_that_has_passed_fires_with_the_next_step():
    op = alarms()
    op.epoch(50)
    op.send("k", ("set", 10, ""), 60)
    assert [(m.value, m.time) for m in op.tick() + op.epoch(51)] == [([10, "", 1], 51)]


class Every(StatefulLogic[int]):
    """Counts, every ten units."""

    def on_data(self, message: Message, state: int, output: Output) -> int:
        output.set_timer(10)
        return 0

    def on_timer(self, timer: Timer, state: int, output: Output) -> int:
        output.emit(state + 1)
        output.set_timer(timer.time + 10)
        return state + 1


def test_a_timer_that_sets_the_next_catches_up_and_ends_with_the_run():
    op = alarms(Every())
    op.send("k", 1, 1)
    assert [(m.value, m.time) for m in op.epoch(35)] == [(1, 10), (2, 20), (3, 30)]
    assert [(m.value, m.time) for m in op.epoch(MAX)] == [(4, 40)]


class Forever(Every):
    def on_timer(self, timer: Timer, state: int, output: Output) -> int:
        output.set_timer(timer.time)
        return state


def test_a_timer_that_would_fire_for_ever_is_an_error_that_names_it():
    op = alarms(Forever())
    op.send("k", 1, 1)
    with pytest.raises(StepError, match=r"step 'op', key 'k', timer '' at 10: .*fire forever"):
        op.epoch(10)


def test_a_logic_that_sets_timers_without_handling_them_is_refused():
    op = StepTester(lambda keyed: keyed.stateful_op("op", lambda m, s, output: output.set_timer(1), default=0))
    with pytest.raises(StepError, match="step 'op' sets timers, so its logic must define on_timer"):
        op.send("k", 1, 1)


def test_on_timer_drops_a_state_by_returning_none():
    class Once(Every):
        def on_timer(self, timer: Timer, state: int, output: Output) -> None:
            return None

    op = alarms(Once())
    op.send("k", 1, 1)
    assert op.state("k") == 0
    op.epoch(10)
    assert op.state("k") is None


keys = st.text() | st.integers(-(2**63), 2**63 - 1) | st.binary() | st.tuples(st.integers(0, 9), st.text(max_size=3))


@given(keys, st.integers(-(2**63), 2**63 - 2), st.text(max_size=20), st.sampled_from(["event", "wall"]))
def test_a_timer_comes_back_from_its_key_in_the_store(key, time, name, clock):
    timer = Timer(key, time, name, clock)
    assert decode(encode(timer)) == timer


@given(st.lists(st.integers(-(2**63), 2**63 - 2)), keys)
def test_the_order_of_the_store_is_the_order_of_the_times(times, key):
    assert [decode(entry).time for entry in sorted(encode(Timer(key, time)) for time in times)] == sorted(times)


def test_timers_move_with_their_key():
    def job(out):
        made = Job("moving", state="memory:timers-move", n_shards=4)
        source = made.source("in", lambda spark: None)
        keyed = source.key_by("by", "key").map("what", lambda row: ("set", row.time, "t"))
        keyed.stateful_op("op", Alarms(), default=0).map("time", lambda fired: fired[0]).sink("out", out)
        return made

    with MemoryRun(job(collect())) as run:
        run.batch({"in": [{"key": "ada", "time": 5}, {"key": "ada", "time": 7}, {"key": "bob", "time": 6}]})
    with StoppedJob(job(collect())) as stopped:
        assert stopped.interrogate() == {"ada", "bob"}
        stopped.acquire("cyd", stopped.collect("ada"))
        assert stopped.interrogate() == {"bob", "cyd"}
        stopped.commit()
    out = collect()
    with MemoryRun(job(out)) as run:
        run.batch({}, epoch=6)
        run.batch({}, epoch=9)
    assert sorted((r["key"], r["value"]) for r in out.records) == [("bob", 6), ("cyd", 5), ("cyd", 7)]
