"""`align=`: a source that would run ahead of a long history is not read until that has caught up; on Spark."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta

import pytest

from tidewheel import Job, RunOptions, count, tumbling
from tidewheel.checkpoints import CheckpointStore
from tidewheel.sinks import collect
from tidewheel.sources import files

HOUR = 3600 * 10**9
HOURS, PARTS = 6, 3
"""The history has so many files for each hour, the live source has one."""


@pytest.fixture
def inputs(tmp_path):
    for name, parts in (("history", PARTS), ("live", 1)):
        (tmp_path / name).mkdir()
        for number in range(HOURS * parts):
            at = datetime(2026, 3, 1, tzinfo=UTC) + timedelta(hours=number / parts)
            path = tmp_path / name / f"{number:03}.json"
            path.write_text("".join(f"{json.dumps({'at': str(at + timedelta(minutes=m))})}\n" for m in range(10)))
            os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))
    return tmp_path


def job_of(folder, name, align):
    job, out, late = Job(name, state=f"file://{folder}/state", n_shards=2, keep=1000, align=align), collect(), collect()
    streams = []
    for source in ("history", "live"):
        records = job.source(
            source, files(f"{folder}/{source}", "json", schema="at timestamp", max_files_per_trigger=1, order="name")
        )
        # If its time of waiting counted as silence, a source would be idle at once, and its messages would be late.
        streams.append(records.event_time("at", max_delay="0 s", idle_after="1 ms", name=f"{source}-clock"))
        streams[-1].late.sink(f"{source}-late", late)
    both = streams[0].union("both", streams[1])
    both.key_by("all", lambda row: "k").window("hours", tumbling("1 hour"), n=count()).sink("out", out)
    return job, out, late


def commits(spark, folder, name, align, stop_after=0):
    """Run a job to the end, in two runs if it is to stop after so many batches; return the manifests of its batches."""
    out: list = []
    late: list = []
    for stops in [stop_after, 0] if stop_after else [0]:
        job, rows, rejected = job_of(folder, name, align)
        ran: list = []
        started: list = []

        def progress(batch, stops=stops, ran=ran, started=started):
            ran.append(batch)
            if len(ran) == stops:
                started[0].stop()

        options = RunOptions(spark=spark, local=f"{folder}/local-{name}", progress=progress)
        started.append(job.start(until="caught-up", parallelism=1, options=options))
        started[0].wait()
        out += rows.records
        late += rejected.records
    assert not late
    assert [row["n"] for row in out] == [10 * (PARTS + 1)] * (HOURS - 1)
    stored = CheckpointStore.open(f"file://{folder}/state").of(name).list()
    return [each for each in sorted(stored, key=lambda each: each.sequence) if each.kind == "batch"]


def most_ahead(made):
    """Return by how many hours the live source was ahead of the history, at most, while that had unread files."""
    leads = [
        each.frontiers["live-clock"].time - each.frontiers["history-clock"].time
        for each in made
        if each.source_offsets["history"] != made[-1].source_offsets["history"]
    ]
    return max(leads) / HOUR


def test_a_live_source_waits_for_a_history_also_over_a_restart(spark, inputs):
    free = commits(spark, inputs, "free", None)
    aligned = commits(spark, inputs, "aligned", "90 minutes")
    again = commits(spark, inputs, "again", "90 minutes", stop_after=4)
    assert most_ahead(free) > 3
    # A batch may pass the limit by what it has itself, here a file of an hour.
    assert most_ahead(aligned) < 2.5
    assert [each.source_offsets for each in again] == [each.source_offsets for each in aligned]
