"""A batch opens only the shards in which a timer is due, and misses none."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from support.internals import shard_of
from tidewheel import Job, Message, Output, StatefulLogic, Timer
from tidewheel._engine.due_times import DueTimes
from tidewheel._engine.report import Report
from tidewheel._state.timers import NEVER
from tidewheel._testing.plain_copies import PlainCopies
from tidewheel.sinks import collect
from tidewheel.testing import Clock, MemoryRun

MAX = 2**63 - 1
names = itertools.count()


def report(table: str, due: dict[int, tuple[int, int]]) -> Report:
    return Report(1, 0, timers={table: due})


def test_a_shard_is_awake_when_its_next_timer_is_due_by_either_clock():
    times = DueTimes(4)
    times.take(0, [], 1, [report("op/timers", {0: (10, NEVER), 1: (NEVER, 50), 2: (NEVER, NEVER)})])
    assert times.awake(1, 9, 49, {}) == {"op/timers": frozenset()}
    assert times.awake(1, 10, 49, {}) == {"op/timers": {0}}
    assert times.awake(1, None, 50, {}) == {"op/timers": {1}}
    assert times.awake(1, 9, 49, {3: None}) == {"op/timers": {3}}
    assert times.awake(1, MAX, 0, {})["op/timers"] >= {0, 1}


def test_a_shard_with_unread_state_counts_as_due():
    times = DueTimes(4)
    times.take(7, [1, 2], 8, [report("op/timers", {1: (10, NEVER)})])
    assert times.awake(8, 0, 0, {}) == {"op/timers": {2}}
    assert times.awake(8, None, 0, {}) == {"op/timers": {2}}


def test_after_a_commit_of_another_kind_nothing_is_known():
    times = DueTimes(4)
    times.take(0, [], 1, [report("op/timers", {0: (10, NEVER)})])
    assert times.awake(2, 0, 0, {}) == {}
    times.take(2, [0, 1], 3, [report("op/timers", {1: (10, NEVER)})])
    assert times.awake(3, 0, 0, {}) == {"op/timers": {0}}


class Alarms(StatefulLogic[int]):
    """Sets or cancels the timer that the message says; tells each that fires."""

    def on_data(self, message: Message, state: int, output: Output) -> int:
        row = message.value
        (output.set_timer if row.there else output.cancel_timer)(row.time, "", row.clock)
        return state + 1

    def on_timer(self, timer: Timer, state: int, output: Output) -> int:
        output.emit(f"{timer.time} {timer.clock}")
        return state


def job(out) -> Job:
    made = Job(f"due-{next(names)}", state="memory:unit-due-times", n_shards=8)
    keyed = made.source("in", lambda spark: None).key_by("by", "key")
    keyed.stateful_op("op", Alarms(), default=0).sink("out", out)
    return made


def record(key: int, there: bool, time: int, clock: str) -> dict:
    return {"key": key, "there": there, "time": time, "clock": clock}


changes = st.tuples(st.integers(0, 9), st.booleans(), st.integers(1, 30), st.sampled_from(["event", "wall"]))
steps = st.lists(
    st.one_of(
        st.tuples(st.just("batch"), st.lists(changes, max_size=4)),
        st.tuples(st.just("epoch"), st.integers(0, 6)),
        st.tuples(st.just("tick"), st.integers(0, 6)),
        st.just(("restart", None)),
    ),
    max_size=14,
)


@settings(max_examples=40, deadline=None)
@given(steps=steps)
def test_every_timer_fires_in_the_batch_that_reaches_it(steps):
    out, clock, model, expected = collect(), Clock(0), set(), []
    epoch, made = 0, job(out)
    run = MemoryRun(made, clock=lambda: clock.now)
    try:
        for what, value in steps:
            records, before = [], epoch
            if what == "restart":
                run.close()
                run = MemoryRun(made, clock=lambda: clock.now)
                continue
            if what == "batch":
                records = [record(*change) for change in value]
                for key, there, time, on in value:
                    (model.add if there else model.discard)((key, time, on))
            elif what == "epoch":
                epoch += value
            else:
                clock.now += value
            run.batch({"in": records} if records else {}, epoch=epoch if epoch > before else None)
            due = {each for each in model if each[1] <= (epoch if each[2] == "event" else clock.now)}
            expected += sorted((key, f"{time} {on}") for key, time, on in due)
            model -= due
            assert sorted((row["key"], row["value"]) for row in out.records) == sorted(expected)
    finally:
        run.close()


def test_a_batch_opens_no_shard_in_which_nothing_is_due(monkeypatch):
    opened, shard = [], PlainCopies.shard
    monkeypatch.setattr(PlainCopies, "shard", lambda copies, number: opened.append(number) or shard(copies, number))
    with MemoryRun(job(collect())) as run:
        run.batch({"in": [record(key, True, 10 + key, "event") for key in range(50)]})
        run.batch({}, epoch=5)
        opened.clear()
        run.batch({}, epoch=6)
        assert opened == []
        run.batch({}, epoch=10)
        assert set(opened) == {shard_of(0, 8)}


def test_a_timer_set_and_cancelled_in_one_batch_is_no_change():
    with MemoryRun(job(collect())) as run:
        run.batch({"in": [record(1, True, 10, "event")]})
        deltas = run.run.head.shards[shard_of(1, 8)].deltas
        run.batch({"in": [record(1, True, 20, "event"), record(1, False, 20, "event"), record(1, True, 10, "event")]})
        (new,) = set(run.run.head.shards[shard_of(1, 8)].deltas) - set(deltas)
        assert new.keys == 1, "the key's count, and no timer"
