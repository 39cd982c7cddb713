"""On Spark, ticks cause batches while sources are quiet, so that epochs are emitted and schedules run."""

from __future__ import annotations

import threading

from tidewheel import Job, Message, Output, RunOptions, StatefulLogic, Timer
from tidewheel._spark.driver import Driver
from tidewheel.sinks import collect
from tidewheel.sources import iterable


class Ends(StatefulLogic[int]):
    """Emits the number of messages of a key when time has come to the end of its first ten units."""

    def on_data(self, message: Message, state: int, output: Output) -> int:
        output.set_timer(10)
        return state + 1

    def on_timer(self, timer: Timer, state: int, output: Output) -> None:
        output.emit(state)


def job_of(items, folder, out):
    job = Job("quiet", state=f"file://{folder}/state")
    timed = job.source("in", iterable(items, batch_size=10)).assign_timestamps("time", lambda value: value, unit="ns")
    on_time = timed.limit_out_of_orderness("bound", "0 s")
    on_time.key_by("one", lambda value: "k").stateful_op("ends", Ends(), default=0).sink("out", out)
    return job


def test_a_quiet_stream_closes_within_a_tick_after_runs_without_ticks(spark, tmp_path):
    first, out = job_of([1, 2], tmp_path, collect()), collect()
    first.run(until="caught-up", options=RunOptions(spark=spark, local=f"{tmp_path}/local"))
    job = job_of([1, 2, 3, 11, 12], tmp_path, out)
    progress: list[int] = []
    driver = Driver(
        job,
        job.plan(),
        RunOptions(
            spark=spark,
            local=f"{tmp_path}/local",
            tick="500 ms",
            progress=lambda p: progress.append(p.sequence),
        ),
    )
    done = threading.Thread(target=driver.execute)
    done.start()
    while not out.records and done.is_alive():
        done.join(0.1)
    # Nothing but ticks brings further batches. They change nothing, so they are not committed.
    assert not spark.streams.active
    # The batch after the one that emitted begins when that one has been told of.
    batch = driver.run.head.batch
    while driver.run.head.batch < batch + 1 and done.is_alive():
        done.join(0.01)
    before = len(progress)
    while driver.run.head.batch < batch + 3 and done.is_alive():
        done.join(0.1)
    assert len(progress) == before
    driver.stop()
    done.join()
    assert out.records == [{"key": "k", "value": 5}]
    # And back to a run without ticks.
    job_of([1, 2, 3, 11, 12], tmp_path, out).run(
        until="end", options=RunOptions(spark=spark, local=f"{tmp_path}/local")
    )
    assert out.records == [{"key": "k", "value": 5}]
