"""A batch that runs again in the layout that its commit records adds floats in the same order."""

from __future__ import annotations

import random

import pytest

from support.replayed import check_replays
from tidewheel import Job, agg, sinks, sources
from tidewheel._engine import task_layout

SEED = 29


def sums(rows) -> Job:
    job = Job("sums", n_shards=8)
    by_user = (
        job.source("in", sources.iterable(rows)).key_by("by-user", "user").aggregate("one", cents=agg.sum("cents"))
    )
    by_user.key_by("all", lambda row: 0).aggregate("together", cents=agg.sum("cents")).sink("out", sinks.collect())
    return job


def test_sums_of_floats_are_the_same_in_the_recorded_layout_only(monkeypatch):
    draw = random.Random(SEED)
    rows = [{"user": f"u{draw.randrange(5)}", "cents": draw.uniform(-1e9, 1e9)} for _ in range(2000)]
    assert check_replays(sums(rows), {"in": rows}, seed=SEED, batch_size=500) == 5

    def in_one_task(spec, levels, splits, kind, source_key):
        return task_layout.in_one_task(spec, levels, splits)

    monkeypatch.setattr("tidewheel._replay.follower.repeated", in_one_task)
    with pytest.raises(AssertionError, match="of 5 batches differ"):
        check_replays(sums(rows), {"in": rows}, seed=SEED, batch_size=500)
