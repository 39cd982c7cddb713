"""StepTester: steps alone, step by step."""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import dataclass
from typing import Any

import pytest

from tidewheel import Job, Message, Output, StatefulLogic, count, sum_
from tidewheel._state.timers import Timer
from tidewheel.errors import StateError, StepError
from tidewheel.sinks import collect
from tidewheel.testing import Clock, StepTester


def summing(stream):
    return stream.stateful_map("sum", lambda key, n, total: (total + n, total + n), default=0)


@dataclass
class Seen:
    times: int = 0


class Waiting(StatefulLogic[int]):
    """Gives out at the epoch, or at the schedule, what it was sent."""

    def on_data(self, message: Message, state: int, output: Output) -> int:
        return state + int(message.value)

    def on_epoch(self, epoch: int, states: MutableMapping[Any, int], output: Output) -> None:
        for key in list(states):
            output.send(Message(key, states.pop(key), epoch))

    def on_schedule(self, states: MutableMapping[Any, int], output: Output) -> None:
        for key in states:
            output.send(Message(key, -states[key]))


def waiting(stream):
    return stream.stateful_op("wait", Waiting(), default=0)


def test_a_message_returns_its_outputs():
    tester = StepTester(summing)
    assert tester.send("a", 3) == [Message("a", 3)]
    assert tester.send("b", 1) == [Message("b", 1)]
    assert tester.send("a", 4, time=9) == [Message("a", 7, 9)]


def test_many_messages_are_one_batch():
    tester = StepTester(lambda s: s.aggregate("total", total=sum_("n"), rows=count()))
    out = tester.send_all([Message("a", {"n": 1}), Message("a", {"n": 2}), Message("b", {"n": 3})])
    assert {message.key: (message.value.total, message.value.rows) for message in out} == {"a": (3, 2), "b": (3, 1)}
    (again,) = tester.send("a", {"n": 10})
    assert (again.value.total, again.value.rows) == (13, 3)


def test_times_are_given_to_all_messages_or_to_none():
    with pytest.raises(ValueError, match="all messages of a batch must have a time or none"):
        StepTester(summing).send_all([Message("a", 1, 5), Message("a", 1)])


def test_an_epoch_releases_waiting_messages_and_a_smaller_one_is_ignored():
    tester = StepTester(waiting)
    assert tester.send("a", 3, time=1) == []
    assert tester.epoch(10) == [Message("a", 3, 10)]
    tester.send("a", 4, time=11)
    assert tester.epoch(10) == []
    assert tester.epoch(9) == []
    assert tester.epoch(11) == [Message("a", 4, 11)]


def test_a_tick_runs_the_schedule_and_moves_the_clock():
    clock = Clock(0)
    tester = StepTester(waiting, clock=clock)
    tester.send("a", 3)
    assert tester.tick(seconds=2) == [Message("a", -3)]
    assert clock.now == 2_000_000_000


def test_with_several_shards_whole_states_come_shard_by_shard():
    sizes = []

    class Sizes(Waiting):
        def on_epoch(self, epoch, states, output):
            sizes.append(len(states))

    tester = StepTester(lambda s: s.stateful_op("sizes", Sizes(), default=0), n_shards=4)
    tester.send_all([Message(number, 1) for number in range(20)])
    tester.epoch(1)
    assert len(sizes) == 4
    assert sum(sizes) == 20


def test_interrogate_collect_and_acquire():
    tester = StepTester(summing)
    tester.send("a", 3)
    tester.send("b", 4)
    assert tester.interrogate() == {"a", "b"}
    assert tester.collect("a") == {"sum": 3}
    assert tester.collect("a") == {}
    assert tester.interrogate() == {"b"}
    tester.acquire("a", {"sum": 100})
    assert tester.send("a", 1) == [Message("a", 101)]


def test_state_is_acquired_for_known_operators_only():
    with pytest.raises(StateError, match="no step 'other' with state; there are sum"):
        StepTester(summing).acquire("a", {"other": 1})


def test_a_snapshot_is_restored_also_into_another_tester():
    tester = StepTester(summing, n_shards=8)
    tester.send("a", 3)
    snapshot = tester.snapshot()
    tester.send("a", 4)
    tester.send("b", 4)
    tester.restore(snapshot)
    assert tester.interrogate() == {"a"}
    assert tester.send("a", 1) == [Message("a", 4)]
    other = StepTester(summing)
    other.restore(snapshot)
    assert other.state("a") == 3


def test_state_comes_back_as_its_declared_type():
    def seen(key: str, value: int, state: Seen) -> tuple[int, Seen]:
        return state.times, Seen(state.times + 1)

    tester = StepTester(lambda s: s.stateful_map("seen", seen))
    tester.send("a", 0)
    assert tester.state("a") == Seen(1)
    assert tester.state("b") is None


def test_state_that_cannot_be_stored_is_refused_where_it_is_made():
    tester = StepTester(lambda s: s.stateful_map("odd", lambda key, value, state: (value, object())))
    with pytest.raises(StepError, match="step 'odd', key 'a', record 1: a state value of type object cannot be stored"):
        tester.send("a", 1)


def test_a_step_that_fails_leaves_the_state_as_it_was():
    def strict(key, value, total):
        if value < 0:
            raise ValueError("negative")
        return total + value, total + value

    tester = StepTester(lambda s: s.stateful_map("sum", strict, default=0))
    tester.send("a", 3)
    with pytest.raises(StepError, match=r"step 'sum', key 'a', record -1: ValueError: negative"):
        tester.send_all([Message("a", 5), Message("a", -1)])
    assert tester.state("a") == 3


def test_several_operators_another_key_and_a_sink():
    tester = StepTester(
        lambda s: (
            summing(s)
            .key_by("parity", lambda total: total % 2)
            .stateful_map("count", lambda key, value, n: (n + 1, n + 1), default=0)
            .sink("out", collect())
        )
    )
    tester.send("a", 1)
    assert tester.send("b", 3) == [Message(1, 2)]
    assert tester.written["out"] == [{"key": 1, "value": 1}, {"key": 1, "value": 2}]
    assert tester.state("a", "sum") == 1
    with pytest.raises(StateError, match="say which step's state: sum, count"):
        tester.state("a")


def test_the_first_of_several_streams_is_returned_and_others_by_name():
    def parted(stream):
        even = stream.filter("even", lambda n: n % 2 == 0)
        odd = stream.filter("odd", lambda n: n % 2)
        return even, odd

    tester = StepTester(parted)
    assert tester.send_all([Message("a", 1), Message("a", 2)]) == [Message("a", 2)]
    assert tester.taken(1) == [Message("a", 1)]
    assert tester.taken(1) == []


class Later(StatefulLogic[int]):
    """Gives its state out when a timer of ten seconds is due."""

    def on_data(self, message: Message, state: int, output: Output) -> int:
        output.set_timer(10_000_000_000, clock="wall")
        return state + int(message.value)

    def on_timer(self, timer: Timer, state: int, output: Output) -> None:
        output.emit(state)


def test_timers_are_due_at_a_tick_and_move_with_their_key():
    tester = StepTester(lambda s: s.stateful_op("later", Later(), default=0), clock=Clock(0), n_shards=4)
    tester.send_all([Message("a", 1), Message("b", 2)])
    assert tester.tick(seconds=9) == []
    taken = tester.collect("a")
    assert taken == {"later": 1, "later/timers": [Timer("a", 10_000_000_000, clock="wall")]}
    assert [message.key for message in tester.tick(seconds=1)] == ["b"]
    tester.acquire("c", taken)
    assert [(message.key, message.value) for message in tester.tick()] == [("c", 1)]
    assert tester.interrogate() == set()


def test_functions_see_the_cells_given_by_the_test_and_defaults():
    job = Job("live")
    limit, unit = job.cell("limit", int, default=1), job.cell("unit", str, default="EUR")
    tester = StepTester(lambda s: s.map("over", lambda n: (n > limit.value, unit.value)), cells={"limit": 5})
    assert tester.send("ada", 3) == [Message("ada", (False, "EUR"))]
    tester.cells["limit"] = 2
    assert tester.send("ada", 3) == [Message("ada", (True, "EUR"))]
    with pytest.raises(RuntimeError, match="inside the functions of a running job only"):
        _ = limit.value
