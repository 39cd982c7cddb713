"""A run with `until="caught-up"` finishes everything that is due by event time."""

from __future__ import annotations

from tidewheel import Job, Message, Output, RunOptions, StatefulLogic, Timer, count, tumbling
from tidewheel._core import faults
from tidewheel.sinks import collect
from tidewheel.sources import iterable
from tidewheel.testing import Clock, MemoryRun, run_in_memory


def events(*times):
    return [{"k": "x", "at": time} for time in times]


def windowed(items, out, state, **bound):
    job = Job("finishes", state=state, n_shards=4)
    timed = job.source("in", iterable(items, batch_size=2), type=dict).assign_timestamps("at", "at", unit="ns")
    on_time = timed.limit_out_of_orderness("bound", "0 s", **bound)
    tens = on_time.key_by("by", "k").window("tens", tumbling("10 ns"), n=count())
    tens.sink("out", out)
    return job


def starts(out):
    return [(row["start"], row["n"]) for row in out.records]


def test_due_results_are_emitted_before_the_run_ends_and_others_stay_open():
    job = windowed([], collect(), "memory:finish-once")
    state = "memory:finish-state"
    first = run_in_memory(job, [{"in": events(1, 5)}, {"in": events(25)}], flush=False, state=state)
    assert [(row["start"], row["n"]) for row in first.outputs["out"]] == [(0, 2)]
    second = run_in_memory(job, [{"in": events(31)}], flush=False, state=state)
    assert [(row["start"], row["n"]) for row in second.outputs["out"]] == [(0, 2), (20, 1)]
    assert second.checkpoint.kind == "stop"
    assert second.checkpoint.delivered_epoch == second.checkpoint.epoch


class Echo(StatefulLogic[int]):
    """Passes messages on, and once more when time has come five further, with a timestamp 25 later."""

    def on_data(self, message: Message, state: int, output: Output) -> int:
        assert message.time is not None
        output.emit(message.value)
        output.set_timer(message.time + 5)
        return state + 1

    def on_timer(self, timer: Timer, state: int, output: Output) -> None:
        output.send(Message("x", {"k": "x", "at": timer.time + 20}, timer.time + 20))


def test_an_epoch_whose_data_causes_another_epoch_is_followed_by_it():
    job, out = Job("cascade", state="memory:finish-cascade", n_shards=4), collect()
    timed = job.source("in", iterable([]), type=dict).assign_timestamps("at", "at", unit="ns")
    echoed = timed.key_by("by", "k").stateful_op("echo", Echo(), default=0)
    on_time = echoed.limit_out_of_orderness("bound", "0 s")
    on_time.key_by("again", "k").window("tens", tumbling("10 ns"), n=count()).sink("out", out)
    with MemoryRun(job) as run:
        run.batch({"in": events(1, 7)})
        assert starts(out) == []
        run.finish()
        # Epoch 6 brings 26 out, with it epoch 25 is due; that brings 32 out, and with it epoch 31.
        assert (starts(out), run.run.head.delivered_epoch) == ([(0, 2), (20, 1)], 31)


def test_an_input_that_follows_the_machines_clock_does_not_keep_a_run_alive():
    clock, out = Clock(), collect()
    with MemoryRun(windowed([], out, "memory:finish-silent", advance_after="1 ms"), clock=clock) as run:
        run.batch({"in": events(1, 5)})
        clock.advance(60)
        run.finish()
        assert starts(out) == []
        assert run.run.head.frontiers["bound"].silent is None


def test_a_run_that_died_before_it_had_finished_is_finished_by_the_next():
    out, state = collect(), "memory:finish-died"
    with MemoryRun(windowed([], out, state)) as run:
        run.batch({"in": events(1, 25)})
        faults.arm("commit.before=raise")
        try:
            run.finish()
        except faults.InjectedFault:
            pass
        finally:
            faults.arm("")
    assert starts(out) == []
    with MemoryRun(windowed([], out, state)) as run:
        run.finish()
        sequence = run.run.head.sequence
        run.finish()
        assert run.run.head.sequence == sequence, "what is done is not done again"
    assert starts(out) == [(0, 1)]


def test_two_bounded_runs_emit_the_output_of_one_unbounded_run_on_spark(spark, tmp_path):
    items = events(1, 5, 12, 25, 31, 47)

    def job(many, out, state):
        return windowed(items[:many], out, f"file://{tmp_path}/{state}")

    apart, labels = collect(), []
    for many in (3, 6, 6):
        result = job(many, apart, "apart").run(
            until="caught-up",
            options=RunOptions(
                spark=spark,
                local=f"{tmp_path}/local",
                progress=lambda batch: labels.append(str(batch).partition(",")[0]),
            ),
        )
        # The latest event, and what it waits in.
        assert (result.epoch, result.holding) == ({3: 12, 6: 47}[many] - 1, ("tens",))
    # The third run found nothing to do.
    assert labels == ["batch 0", "batch 1", "epoch", "batch 2", "batch 3", "epoch"]
    whole = collect()
    with MemoryRun(windowed([], whole, "memory:finish-whole")) as run:
        for at in range(0, 6, 2):
            run.batch({"in": items[at : at + 2]})
        for _ in range(3):
            run.batch({})
    assert starts(apart) == starts(whole) == [(0, 2), (10, 1), (20, 1), (30, 1)]
    items.append({"k": "x", "at": 2})
    ended = job(7, apart, "apart").run(until="end", options=RunOptions(spark=spark, local=f"{tmp_path}/local"))
    assert (starts(apart)[-1], ended.epoch, ended.holding, ended.late) == ((40, 1), None, (), {"bound": 1})
