"""E1: an epoch goes out after the data of the batch that carries it; epochs merge by minimum and never go back."""

from __future__ import annotations

from collections.abc import MutableMapping
from datetime import timedelta
from typing import Any

from tidewheel import Message, Output, StatefulLogic
from tidewheel.sinks import collect
from tidewheel.testing import Clock, MemoryRun


class Log(StatefulLogic[int]):
    """Tells, in the order in which it meets them, the messages and the epochs."""

    def on_data(self, message: Message, state: int, output: Output) -> int:
        output.emit(f"data {message.value}")
        return 1

    def on_epoch(self, epoch: int, states: MutableMapping[Any, int], output: Output) -> None:
        for key in states:
            output.send(Message(key, f"epoch {epoch}", epoch))


def logged(stream: Any, out: Any) -> None:
    stream.key_by("one", lambda value: "k").stateful_op("log", Log(), default=0).sink("out", out)


def test_e1_an_epoch_follows_the_data_of_the_batch_after_its_cause(runner):
    job, out = runner.job(), collect()
    source = runner.source(job, "in", [5, 6, 3, 9], batch=1)
    on_time = source.assign_timestamps("time", lambda time: time, unit="ns").generate_epochs(
        "epochs", lambda m, last: m.time
    )
    late = on_time.late
    logged(on_time, out)
    late.sink("late", collect())
    runner.run(job)
    # 3 is behind the epoch of 6, so it is late; the epoch that it would give is smaller, and ignored.
    assert [record["value"] for record in out.records] == [
        "data 5",
        "data 6",
        "epoch 5",
        "epoch 6",
        "data 9",
        "epoch 9223372036854775807",
    ]


def two_inputs(job, clock, idle=timedelta(seconds=10)):
    out = collect()
    streams = []
    for name in ("a", "b"):
        source = job.source(name, lambda spark: None)
        timed = source.assign_timestamps(f"time-{name}", lambda row: row.value, unit="ns")
        on_time = timed.generate_epochs(f"epochs-{name}", lambda message, last: message.value.epoch, idle_after=idle)
        streams.append(on_time)
    logged(streams[0].union("both", streams[1]).map("value", lambda row: row.value), out)
    return out, MemoryRun(job, clock=clock)


def row(value, epoch="same"):
    return {"value": value, "epoch": value if epoch == "same" else epoch}


def epochs(out):
    return [record["value"] for record in out.records if record["value"].startswith("epoch")]


def test_e1_epochs_merge_by_minimum_once_each_input_has_one(memory_runner):
    out, run = two_inputs(memory_runner.job(), Clock())
    with run:
        run.batch({"a": [row(7)]})
        run.batch({})
        assert epochs(out) == []
        run.batch({"b": [row(4)]})
        run.batch({})
        assert epochs(out) == ["epoch 4"]
        run.batch({"b": [row(20, None), row(21)]})
        run.batch({})
        assert epochs(out) == ["epoch 4", "epoch 7"]
        run.batch({"a": [row(8, 1)]})
        run.batch({})
        assert epochs(out) == ["epoch 4", "epoch 7"]


def test_e1_an_idle_input_holds_nothing_back_until_it_has_data_again(memory_runner):
    clock = Clock()
    out, run = two_inputs(memory_runner.job(), clock)
    with run:
        run.batch({"a": [row(7)], "b": [row(4)]})
        clock.advance(11)
        run.batch({"a": [row(9)]})
        run.batch({})
        assert epochs(out) == ["epoch 4", "epoch 9"]
        run.batch({"b": [row(10)], "a": [row(30)]})
        run.batch({})
        assert epochs(out) == ["epoch 4", "epoch 9", "epoch 10"]


def test_e1_an_input_that_has_ended_holds_nothing_back(memory_runner):
    out, run = two_inputs(memory_runner.job(), Clock(), idle=None)
    with run:
        run.batch({"a": [row(7)], "b": [row(4, 2**63 - 1)]})
        run.batch({})
        assert epochs(out) == ["epoch 7"]


def test_e1_the_frontier_survives_a_restart(memory_runner):
    def job():
        made = memory_runner.job("restarted")
        out = collect()
        timed = made.source("in", lambda spark: None).assign_timestamps("time", lambda row: row.value, unit="ns")
        on_time = timed.limit_out_of_orderness("bound", "2 ns")
        late = on_time.late
        logged(on_time.map("value", lambda row: row.value), out)
        late.sink("late", late_out := collect())
        return made, out, late_out

    made, _, _ = job()
    with MemoryRun(made) as run:
        run.batch({"in": [{"value": 10}]})
        assert run.run.head.epoch == 7
    made, out, late = job()
    with MemoryRun(made) as run:
        run.batch({"in": [{"value": 7}, {"value": 8}]})
        assert epochs(out) == ["epoch 7"]
        assert [record["value"] for record in late.records] == [7]
        assert run.run.head.counts["bound/late"] == 1


def test_e1_an_epoch_reaches_a_level_after_the_data_that_it_caused(runner):
    job, out = runner.job(), collect()
    source = runner.source(job, "in", [1, 2, 3], batch=1)
    on_time = source.assign_timestamps("time", lambda time: time, unit="ns").generate_epochs(
        "epochs", lambda m, last: m.time
    )
    first = on_time.key_by("one", lambda value: "k").stateful_op("first", Log(), default=0)
    first.key_by("again", lambda text: "j").stateful_op("second", Log(), default=0).sink("out", out)
    runner.run(job)
    texts = [record["value"] for record in out.records]
    for epoch in (1, 2, 2**63 - 1):
        assert texts.index(f"data epoch {epoch}") < texts.index(f"epoch {epoch}")
