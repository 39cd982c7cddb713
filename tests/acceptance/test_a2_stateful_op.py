"""A2: `stateful_op(name, logic)`: on_data, on_epoch, on_schedule; none, one or many messages out."""

from __future__ import annotations

import contextlib
from collections.abc import MutableMapping
from typing import Any

from support.internals import shard_of
from tidewheel import Job, Message, Output, StatefulLogic, Timer
from tidewheel.errors import StepError
from tidewheel.sinks import collect
from tidewheel.sources import iterable
from tidewheel.testing import Clock, MemoryRun, StepTester


class Pairs(StatefulLogic[int]):
    """Emits nothing for the first of two messages and both for the second; tells what is left over at the end."""

    def on_data(self, message: Message, state: int, output: Output) -> int | None:
        if state == 0:
            return int(message.value)
        output.emit(state)
        output.emit(message.value)
        return None

    def on_epoch(self, epoch: int, states: MutableMapping[Any, int], output: Output) -> None:
        for key in states:
            output.send(Message(key, -states[key]))
            del states[key]


def test_a2_none_one_or_many_messages_and_states_at_the_epoch(runner):
    job, out = runner.job(), collect()
    numbers = runner.source(job, "numbers", [1, 2, 3, 4, 5], batch=2)
    numbers.key_by("parity", lambda number: number % 2).stateful_op("pairs", Pairs(), default=0).sink("out", out)
    runner.run(job)
    by_key = {key: [r["value"] for r in out.records if r["key"] == key] for key in (0, 1)}
    assert by_key == {0: [2, 4], 1: [1, 3, -5]}


def test_a2_a_plain_function_stands_in_for_a_logic(runner):
    def last(message: Message, state: int, output: Output) -> int:
        output.emit(state)
        return int(message.value)

    job, out = runner.job(), collect()
    numbers = runner.source(job, "numbers", [1, 2, 3], batch=1)
    numbers.key_by("one", lambda number: "k").stateful_op("last", last, default=0).sink("out", out)
    runner.run(job)
    assert [record["value"] for record in out.records] == [0, 1, 2]


class Ticking(StatefulLogic[int]):
    """Counts how often it is scheduled, in the state of every key."""

    def on_data(self, message: Message, state: int, output: Output) -> int:
        return state

    def on_schedule(self, states: MutableMapping[Any, int], output: Output) -> None:
        for key in states:
            states[key] += 1
            output.send(Message(key, states[key]))


def test_a2_on_schedule_gets_all_states_of_a_shard_even_without_data(memory_runner):
    job, out = memory_runner.job(), collect()
    numbers = memory_runner.source(job, "numbers", [1, 2, 2], batch=1)
    numbers.key_by("each", lambda number: number).stateful_op("tick", Ticking(), default=0).sink("out", out)
    memory_runner.run(job)
    # Key 1 is scheduled in its own batch, in the two batches of key 2, and in the flush.
    assert [r["value"] for r in out.records if r["key"] == 1] == [1, 2, 3, 4]
    assert [r["value"] for r in out.records if r["key"] == 2] == [1, 2, 3]


class Beginning(StatefulLogic[int]):
    """Gives a key of each shard a state in the first schedule, and tells of it at an epoch."""

    def on_data(self, message: Message, state: int, output: Output) -> int | None:
        return None

    def on_schedule(self, states: MutableMapping[Any, int], output: Output) -> None:
        for key in range(100):
            with contextlib.suppress(StepError):  # Only keys of the shard can be set.
                states.setdefault(key, 1)
                break

    def on_epoch(self, epoch: int, states: MutableMapping[Any, int], output: Output) -> None:
        for key in states:
            output.send(Message(key, shard_of(key, 4)))


def test_a2_shards_without_state_or_data_get_schedules_and_epochs(memory_runner):
    job, out = memory_runner.job(n_shards=4), collect()
    numbers = memory_runner.source(job, "numbers", [1], batch=1)
    numbers.key_by("each", lambda number: number).stateful_op("begin", Beginning(), default=0).sink("out", out)
    memory_runner.run(job)
    assert sorted(record["value"] for record in out.records) == [0, 1, 2, 3]


class Delayed(StatefulLogic[int]):
    """Emits a value five seconds after it came, by the clock of the batches."""

    def on_data(self, message: Message, state: int, output: Output) -> int:
        output.set_timer(output.now + 5_000_000_000, clock="wall")
        return int(message.value)

    def on_timer(self, timer: Timer, state: int, output: Output) -> None:
        output.emit([state, output.now])


def test_a2_a_logic_gets_the_time_of_its_batch_from_the_testers_clock():
    tester = StepTester(lambda keyed: keyed.stateful_op("delay", Delayed(), default=0))
    began = tester.clock.now
    tester.send("k", 7)
    assert tester.tick(4) == []
    assert [message.value for message in tester.tick(1)] == [[7, began + 5_000_000_000]]


def test_a2_all_tasks_of_a_batch_get_the_same_time():
    clock, out = Clock(), collect()
    job = Job("now", state="memory:a2-now", n_shards=4)
    source = job.source("in", iterable([]), type=dict).key_by("by", "n")
    source.stateful_op("now", lambda message, state, output: output.emit(output.now)).sink("out", out)
    with MemoryRun(job, parallelism=4, partitions=2, clock=clock) as run:
        run.batch({"in": [{"n": n} for n in range(8)]})
    assert {record["value"] for record in out.records} == {clock.now}
