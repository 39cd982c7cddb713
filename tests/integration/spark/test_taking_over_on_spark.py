"""A run that takes over a job runs its tasks with the plan that continues the state: stored numbers keep their order."""

from __future__ import annotations

import threading

import pytest

from tidewheel import Job, RunOptions, StoredJob, agg, sinks, sources
from tidewheel.testing import MemoryRun


@pytest.fixture
def make_job(tmp_path):
    (tmp_path / "in").mkdir()

    def made(**aggregates) -> Job:
        job = Job("orders", state=f"file://{tmp_path}/state", n_shards=2)
        orders = job.source("in", sources.files(f"{tmp_path}/in", "json", schema="user string, cents long"))
        orders.key_by("by-user", "user").aggregate("totals", **aggregates).sink("out", sinks.discard())
        return job

    return made


def totals(tmp_path) -> dict[str, dict[str, int]]:
    return dict(StoredJob("orders", state=f"file://{tmp_path}/state").scan("totals"))


def test_a_standby_continues_state_that_was_first_committed_while_it_waited(spark, make_job, tmp_path):
    waiting, ended = threading.Event(), []
    options = RunOptions(
        spark=spark,
        local=f"{tmp_path}/local",
        until="caught-up",
        on_phase=lambda phase: waiting.set() if phase == "standby" else None,
    )
    standby = make_job(cents=agg.sum("cents"), orders=agg.count())
    waiter = threading.Thread(target=lambda: ended.append(standby.standby(options=options)))
    (tmp_path / "in" / "1.json").write_text('{"user": "ada", "cents": 7}\n')
    with MemoryRun(make_job(orders=agg.count(), cents=agg.sum("cents"))) as run:
        waiter.start()
        assert waiting.wait(120)
        run.batch({"in": [{"user": "ada", "cents": 100}]})
    waiter.join(120)
    assert [result.event_count for result in ended] == [2]
    assert totals(tmp_path) == {"ada": {"cents": 107, "orders": 2}}


def test_a_switch_that_follows_the_first_batch_commits_state_in_its_own_layout(spark, make_job, tmp_path):
    options = RunOptions(spark=spark, local=f"{tmp_path}/local")
    (tmp_path / "in" / "1.json").write_text('{"user": "ada", "cents": 100}\n')
    make_job(orders=agg.count(), cents=agg.sum("cents")).run(until="caught-up", options=options)
    job = make_job(cents=agg.sum("cents"), orders=agg.count())
    job.switch(lambda switching: switching.same, last=1, until="caught-up", options=options)
    assert totals(tmp_path) == {"ada": {"cents": 100, "orders": 1}}
