"""The batches of a job that reads an inbox run again without Spark."""

from __future__ import annotations

import random

import pytest
from pyspark.sql.types import DataType

from support.replayed import ReadingRun
from tidewheel import Job, StoredJob, sinks, sources
from tidewheel.fleet import Router, open_inbox


@pytest.mark.parametrize("schema", [None, "user string, cents long"])
def test_batches_of_an_inbox_run_again(tmp_path, monkeypatch, schema):
    monkeypatch.setattr(DataType, "fromDDL", None)  # It asks a running Spark.
    url = f"file://{tmp_path}/inbox"
    with open_inbox(url, 4) as inbox, Router(inbox) as router:
        for cents in range(5):
            router.route("ada", {"user": "ada", "cents": cents})
    job = Job("payments", state=f"file://{tmp_path}/state", n_shards=4, keep=100)
    payments = job.source("in", sources.inbox(url, schema=schema)).key_by("by-user", "user" if schema else "key")
    counted = payments.stateful_map("count", lambda user, payment, n: (n, n + 1), default=0)
    counted.sink("out", sinks.collect())
    with ReadingRun(job) as run:
        run.read_all(random.Random(1), 1)
    stored = StoredJob("payments", state=job.state)
    assert stored.replay(job, 2).same
    assert [message.after for message in stored.messages(job, 2, "count", "ada")] == [1, 2, 3, 4, 5]
