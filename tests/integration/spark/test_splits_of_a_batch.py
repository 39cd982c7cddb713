"""How the splits of a batch are divided among tasks, and where a batch runs."""

from __future__ import annotations

import itertools
import os
import signal
from types import SimpleNamespace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from support.driven import run_divided
from support.waiting import eventually
from tidewheel import Job, StoredJob
from tidewheel._connectors.split import dealt, may_be_shared
from tidewheel._engine.task_layout import Layout
from tidewheel._spark.batch_tasks import BatchTasks, Outcome
from tidewheel._spark.worker_pool import WorkerPool
from tidewheel.sinks import collect
from tidewheel.sources import files


@given(st.lists(st.integers(0, 1000), max_size=8), st.integers(1, 4))
def test_splits_are_dealt_in_their_order_and_as_evenly_as_that_allows(sizes, tasks):
    hands = dealt(sizes, tasks)
    assert [position for hand in hands for position in hand] == list(range(len(sizes)))
    assert len(hands) <= tasks

    def largest(cuts):
        ends = [0, *cuts, len(sizes)]
        return max(sum(size + 1 for size in sizes[start:end]) for start, end in itertools.pairwise(ends))

    ways = itertools.combinations_with_replacement(range(len(sizes) + 1), tasks - 1)
    assert largest([hand.stop for hand in hands[:-1]]) == min(map(largest, ways))


@pytest.mark.parametrize("levels", [2, 3])
def test_a_batch_that_each_task_reads_keeps_the_order_of_its_file(tmp_path, spark, monkeypatch, levels):
    (tmp_path / "in").mkdir()
    table = pa.table({"user": [f"u{number % 7}" for number in range(100)], "cents": range(100)})
    parquet.write_table(table, tmp_path / "in" / "a.parquet", row_group_size=30)
    sink = collect()
    job = Job("clicks", state=f"file://{tmp_path}/state")
    stream = job.source("in", files(tmp_path / "in", schema="user string, cents long"))
    stream = stream.key_by("by-user", "user", value="cents").stateful_map(
        "all", lambda user, cents, seen: ([*seen, cents], [*seen, cents]), default=list
    )
    if levels == 3:
        stream = stream.key_by("by-length", len).map("same", lambda seen: seen)
    stream.sink("out", sink)
    batches: list[Outcome] = []
    run = BatchTasks.run
    monkeypatch.setattr(BatchTasks, "run", lambda *args, **named: batches.append(run(*args, **named)) or batches[-1])
    result = run_divided(job, until="end", parallelism=2, spark=spark)
    [(reports, tasks, _)] = batches
    assert tasks == 2
    # Each task has read the whole batch.
    assert {report.looked_through for report in reports if report.level == 1} == {100}
    assert result.event_count == 100
    # The first value of a user is the user's number.
    last = {row["value"][0]: row["value"] for row in sorted(sink.records, key=lambda row: len(row["value"]))}
    assert last == {user: list(range(user, 100, 7)) for user in range(7)}


@pytest.mark.parametrize("crashes", [False, True])
def test_batches_without_a_shuffle_run_in_two_processes_next_to_the_driver(tmp_path, spark, monkeypatch, crashes):
    accepts, kept = WorkerPool.accepts, []

    def await_ready(pool: WorkerPool, layout: Layout) -> bool:
        if pool._batches > 1:
            eventually(lambda: accepts(pool, layout), "the processes")
            kept[:] = [worker.process.pid for worker in pool._workers]
        return accepts(pool, layout)

    monkeypatch.setattr(WorkerPool, "accepts", await_ready)
    (tmp_path / "in").mkdir()
    for number in range(5):
        table = pa.table({"user": [f"u{user}" for user in range(20)], "n": [number] * 20})
        parquet.write_table(table, tmp_path / "in" / f"{number}.parquet")
        os.utime(tmp_path / "in" / f"{number}.parquet", (number, number))
    crashed = tmp_path / "crashed"

    def count(user: str, number: int, seen: int) -> tuple[tuple[int, int], int]:
        if crashes and number == 2 and not crashed.exists():
            crashed.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return (number, os.getpid()), seen + 1

    sink = collect()
    job = Job("clicks", state=f"file://{tmp_path}/state")
    stream = job.source("in", files(tmp_path / "in", schema="user string, n long", max_files_per_trigger=1))
    stream.key_by("by-user", "user", value="n").stateful_map("seen", count, default=0).sink("out", sink)
    result = run_divided(job, until="end", parallelism=2, spark=spark)
    assert result.event_count == 100
    assert dict(StoredJob("clicks", state=f"file://{tmp_path}/state").scan("seen")) == {
        f"u{user}": 5 for user in range(20)
    }
    processes = {number: {row["value"][1] for row in sink.records if row["value"][0] == number} for number in range(5)}
    assert processes[4] == set(kept)
    assert len(kept) == 2
    assert crashed.exists() is crashes
    assert processes[2].isdisjoint(kept) is crashes


@pytest.mark.parametrize(
    ("readings", "tasks", "megabytes", "shared"),
    [
        (["cheap"], 2, 100, True),
        (["cheap", "cheap"], 4, 100, True),
        (["dear"], 2, 100, True),
        (["dear", "dear"], 2, 1, False),
        (["dear", "cheap"], 2, 1, False),
        (["once"], 2, 1, False),
        (["cheap"], 1, 1, False),
        (["cheap", "cheap"], 8, 1, True),
        (["cheap"], 8, 3, False),
        (["cheap"], 20, 1, False),
        (["dear"], 5, 1, False),
    ],
)
def test_a_batch_is_read_by_each_task_where_that_takes_less_than_a_shuffle(readings, tasks, megabytes, shared):
    splits = [SimpleNamespace(reading=reading, size=megabytes << 20) for reading in readings]
    assert may_be_shared(splits, tasks) is shared
