"""Tasks read only the fields that the program's functions use; errors and dead letters show whole records."""

from __future__ import annotations

import json
import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tidewheel import Job, RunOptions
from tidewheel._spark.batch_tasks import BatchTasks
from tidewheel.errors import StepError
from tidewheel.sinks import collect
from tidewheel.sources import files


@pytest.fixture
def columns_read(monkeypatch):
    """The columns of each file that tasks were asked to read, in the order of the batches."""
    columns, run = [], BatchTasks._run_splits

    def noting(tasks, splits, spec):
        columns.extend(list(split.only or split.columns.names) for _, split in splits)
        return run(tasks, splits, spec)

    monkeypatch.setattr(BatchTasks, "_run_splits", noting)
    return columns


def summed(job: Job, folder):
    rows = job.source("in", files(str(folder), max_files_per_trigger=1))
    by_user = rows.filter("all", lambda row: row.user != "").key_by("by-user", "user")
    by_user.stateful_map("sum", lambda user, row, total: (total + row.amount, total + row.amount), default=0).sink(
        "out", out := collect()
    )
    return out


def write(folder, number: int, amounts: list[int | None]) -> None:
    folder.mkdir(exist_ok=True)
    columns = {"note": ["x", "y"], "user": ["a", "b"], "amount": pa.array(amounts, pa.int64())}
    pq.write_table(pa.table(columns), folder / f"{number}.parquet")
    # Spark takes files by their times, and two that are written in a moment may have the same.
    os.utime(folder / f"{number}.parquet", (1_700_000_000 + number,) * 2)


PART, WHOLE = ["user", "amount"], ["note", "user", "amount"]


def test_rejected_records_are_complete_and_so_are_all_later_reads(spark, tmp_path, columns_read):
    for number, amounts in enumerate([[1, 2], [3, None], [4, 5]]):
        write(tmp_path / "in", number, amounts)
    job = Job("j", state=f"file://{tmp_path}/state")
    out = summed(job, tmp_path / "in")
    job.dead_letter("dead", dead := collect())
    job.run(until="end", options=RunOptions(spark=spark, local=f"{tmp_path}/local"))
    assert columns_read == [PART, PART, WHOLE, WHOLE]
    assert [json.loads(letter["record"]) for letter in dead.records] == [{"note": "y", "user": "b", "amount": None}]
    assert sorted(row["value"] for row in out.records) == [1, 2, 4, 7, 8]


def test_an_error_shows_the_whole_record(spark, tmp_path, columns_read):
    write(tmp_path / "in", 0, [1, None])
    job = Job("j", state=f"file://{tmp_path}/state")
    summed(job, tmp_path / "in")
    with pytest.raises(StepError, match=r"key 'b', record Row\(note='y', user='b', amount=None\)"):
        job.run(until="end", options=RunOptions(spark=spark, local=f"{tmp_path}/local"))
    assert columns_read == [PART, WHOLE]
