"""Batches of a job run again with a changed program, and with programs and commits that do not fit."""

from __future__ import annotations

import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.replayed import ReadingRun
from tidewheel import Job, StoredJob, sinks, sources
from tidewheel.errors import ConfigError, StateError

ORDERS = [{"user": user, "cents": cents} for user, cents in (("ada", 5), ("bob", 3), ("ada", 7), ("cy", 1), ("ada", 2))]


def add(user, order, total):
    return total + order.cents, total + order.cents


def add_tenths(user, order, total):
    return total + order.cents * 10, total + order.cents * 10


IN_TENTHS = {"version": 2, "upgrade": lambda total, version: total * 10}


def spending(
    url, function=add, *, name="spending", step="total", source="orders", n_shards=4, most=100, **state
) -> Job:
    """A job that sums up what each user spends. `most` is the number of records that the source has."""
    job = Job(name, state=url, n_shards=n_shards, keep=100)
    orders = job.source(source, sources.iterable(ORDERS[:most], batch_size=2))
    orders.key_by("by-user", "user").stateful_map(step, function, default=0, **state).sink("out", sinks.collect())
    if step != "total":
        job.alias(step, "total")
    if source != "orders":
        job.alias(source, "orders")
    return job


@pytest.fixture
def stored(tmp_path) -> StoredJob:
    """The commits 2 to 4 have a batch each."""
    url = f"file://{tmp_path}/state"
    with ReadingRun(spending(url)) as run:
        run.read_all(random.Random(1), 1)
    return StoredJob("spending", state=url)


def changed(stored: StoredJob, *arguments, **options) -> Job:
    return spending(stored.store.url, *arguments, **options)


def test_a_replay_continues_the_state_of_renamed_steps_and_sources(stored):
    found = stored.replay(changed(stored, step="spent", source="payments"), 3, changed=True)
    assert found.same, found
    assert {row["user"]: row["value"] for row in found.rows["out"]} == {"ada": 12, "cy": 1}


def test_a_replay_upgrades_the_state_before_the_batch(stored):
    found = stored.replay(changed(stored, add_tenths, **IN_TENTHS), 3, changed=True)
    assert {row["user"]: row["value"] for row in found.rows["out"]} == {"ada": 120, "cy": 10}


def test_messages_of_a_changed_program_begin_with_the_upgraded_state(stored):
    program = changed(stored, add_tenths, step="spent", source="payments", **IN_TENTHS)
    (message,) = stored.messages(program, 3, "spent", "ada", changed=True)
    assert (message.source, message.before, message.after) == ("payments", 50, 120)


def test_the_next_batch_begins_with_the_upgraded_state(tmp_path):
    url = f"file://{tmp_path}/state"
    with ReadingRun(spending(url, most=4)) as run:
        run.read_all(random.Random(1), 1)
    stored = StoredJob("spending", state=url)
    # A final flush is the newest commit; the source has one record more now.
    found = stored.replay(spending(url, add_tenths, **IN_TENTHS), "next")
    assert found.rows == {"out": [{"user": "ada", "value": 140}]}
    with pytest.raises(StateError, match="step 'total'"):
        stored.replay(spending(url, add_tenths, version=2), "next")


def test_a_step_that_a_changed_program_lacks_has_no_state_after_the_replay(stored):
    without = Job("spending", state=stored.store.url, n_shards=4)
    without.source("orders", sources.iterable(ORDERS, batch_size=2)).sink("out", sinks.collect())
    found = stored.replay(without, 3, changed=True)
    assert [(each.table, each.dropped) for each in found.state] == [("total", 3)]


def test_a_new_reference_table_has_no_version_for_past_batches(stored, tmp_path):
    pq.write_table(pa.table({"user": ["ada"], "country": ["uk"]}), tmp_path / "users.parquet")
    job = Job("spending", state=stored.store.url, n_shards=4)
    users = job.table("users", f"{tmp_path}/users.parquet", key="user")
    orders = job.source("orders", sources.iterable(ORDERS, batch_size=2)).lookup("found", users, on="user")
    orders.key_by("by-user", "user").stateful_map("total", add, default=0).sink("out", sinks.collect())
    for run in (lambda: stored.replay(job, 3, changed=True), lambda: stored.shadow(job, last=1)):
        with pytest.raises(StateError, match="commits of job 'spending' have no version of the table 'users'"):
            run()


def test_a_program_of_another_job_is_refused(stored):
    other = changed(stored, name="selling")
    for run in (
        lambda: stored.replay(other, 3),
        lambda: stored.replay(other, "next"),
        lambda: stored.messages(other, 3, "total", "ada"),
        lambda: list(stored.written(other, "out", lambda row: True)),
        lambda: stored.shadow(other, last=1),
        lambda: stored.shadow(changed(stored), last=1, old=other),
    ):
        with pytest.raises(ConfigError, match="that of job 'selling', not of 'spending'"):
            run()


def test_a_message_that_another_branch_let_through_is_not_dropped(tmp_path):
    job = Job("spending", state=f"file://{tmp_path}/state", n_shards=4, keep=100)
    orders = job.source("orders", sources.iterable(ORDERS))
    large = orders.filter("large", lambda order: order.cents > 4)
    both = large.union("both", orders.filter("small", lambda order: 1 < order.cents < 4))
    both.key_by("by-user", "user").stateful_map("total", add, default=0).sink("out", sinks.collect())
    with ReadingRun(job) as run:
        run.read_all(random.Random(1), 1)
    stored = StoredJob("spending", state=job.state)
    found = [(message.value.cents, message.dropped) for message in stored.messages(job, 2, "total", "ada")]
    assert found == [(5, None), (7, None), (2, None)]
    assert {message.dropped for message in stored.messages(job, 2, "total", "cy")} == {"step 'large'", "step 'small'"}


def test_a_shadow_run_needs_its_first_batch(stored):
    for given in ({}, {"last": 1, "since": 2}):
        with pytest.raises(ConfigError, match="give either last=, a number of batches, or since="):
            stored.shadow(changed(stored), **given)


def test_the_rows_of_all_batches_are_found_while_the_job_drops_checkpoints(stored):
    found = []
    for written in stored.written(changed(stored), "out", lambda row: True):
        stored.gc(keep=1, grace=0)
        found.append((written.sequence, written.row["value"]))
    assert found == [(2, 5), (2, 3), (3, 12), (3, 1), (4, 14)]
    stored.gc(keep=1, grace=0)
    assert len(stored.list()) == 1, "they are held no more"


@pytest.mark.parametrize("since", ["begin", 2])
def test_a_shadow_run_keeps_the_checkpoints_that_it_needs(stored, since):
    """The newest commit at its end does not need the files of those that it compares with."""
    stored.savepoint("begin", 2)

    def and_collect(user, order, total):
        if len(stored.list()) == 5:
            stored.drop_savepoint(f"before-restore-{stored.restore(2).sequence}")
        stored.gc(keep=1, grace=0)
        return add(user, order, total)

    assert stored.shadow(changed(stored, and_collect), since=since, old=changed(stored)).same
    stored.gc(keep=1, grace=0)
    assert len(stored.list()) == 1, "they are held no more"


def test_a_shadow_run_does_not_read_shards_that_did_not_change(stored, monkeypatch):
    """The files of its fork have other names than those of the job."""
    from tidewheel._checkpoint.tools import diff

    read = []
    monkeypatch.setattr(diff, "shard_tables", lambda parts, shard, fetch: read.append(shard) or set())
    stored.shadow(changed(stored), last=2)
    assert len(set(read)) == 1, "only that of ada"
