"""A standby run: when it takes over, when it keeps waiting, and when it ends."""

from __future__ import annotations

import itertools

import msgspec
import pytest

from tidewheel import Job
from tidewheel._cells import open_cells
from tidewheel._cells.job_place import HOLDER, ORDERS
from tidewheel._engine.claim import ClaimTerms
from tidewheel._engine.control import order_stop
from tidewheel._engine.job_lease import Holder, JobLease, this_process
from tidewheel._engine.local_tasks import LocalTasks
from tidewheel._engine.standby_run import StandbyRun
from tidewheel._engine.task_layout import Layout
from tidewheel._state.local_copies import LocalCopies
from tidewheel.errors import FencedError
from tidewheel.sinks import collect
from tidewheel.sources import iterable
from tidewheel.testing import MemoryRun

_names = itertools.count()


class Ended(Exception):
    """The standby was to stop."""


class Waiting(Exception):
    """The standby has looked often enough."""


def make_job() -> Job:
    name = f"standby-{next(_names)}"
    job = Job(name, state=f"memory:{name}", n_shards=4)
    keyed = job.source("in", iterable([])).key_by("by-user", "user")
    keyed.stateful_map("n", lambda user, record, n: (n + 1, n + 1), default=0).sink("out", collect())
    return job


def standby_of(job: Job, looks: int = 1000) -> tuple[StandbyRun, list[int]]:
    """Return a standby that gives up after so many looks, and the commits that it has prepared for."""
    run, warmed = StandbyRun(job, job.plan(), ClaimTerms()), []
    left = itertools.count(looks, -1)

    def stand_by() -> None:
        if run.stop_ordered():
            raise Ended
        if next(left) == 0:
            raise Waiting

    run.stand_by, run.warm = stand_by, lambda: warmed.append(run.head.sequence)
    return run, warmed


def cell_of(connection):
    return connection.writer(HOLDER, Holder, namespace=ORDERS, type_name="tidewheel.JobHolder")


def elsewhere(run: str, ttl: float) -> Holder:
    here = this_process(run, ttl)
    return msgspec.structs.replace(here, host="elsewhere", boot="theirs", pid=2)


def test_a_standby_takes_over_a_stopped_job_at_once():
    run, _ = standby_of(make_job(), looks=1)
    run.begin()
    assert run.head.run == run.token
    run.release()


def test_a_standby_waits_for_the_holder_and_follows_its_commits():
    job = make_job()
    with MemoryRun(job) as first:
        first.batch({"in": [{"user": "ada"}]})
        standby, warmed = standby_of(job, looks=2)
        with pytest.raises(Waiting):
            standby.begin()
        assert warmed == [first.run.head.sequence]
        standby.release()
        first.batch({"in": [{"user": "ada"}]})


def test_a_run_on_another_machine_that_does_not_renew_its_lease_is_fenced():
    """The lease's owner lives, and only was paused: it finds out at its next commit."""
    job = make_job()
    with MemoryRun(job) as paused:
        paused.batch({"in": [{"user": "ada"}]})
        with open_cells(job.cells_url) as connection:
            cell_of(connection).write(elsewhere(paused.run.token, 0.2))
            standby, _ = standby_of(job)
            standby.begin()
            with pytest.raises(FencedError):
                paused.batch({"in": [{"user": "ada"}]})
            assert paused.run.stop_ordered()
        standby.release()


def test_a_standby_loads_reference_tables_when_it_takes_over():
    """A version that was loaded while it waited could be collected before a commit refers to it."""
    job, loaded = make_job(), []

    def rows() -> list[dict[str, str]]:
        loaded.append("loaded")
        return [{"user": "ada", "country": "GB"}]

    users = job.table("users", rows, key="user")
    job.source("clicks", iterable([])).lookup("country", users, on="user").sink("countries", collect())
    with MemoryRun(job):
        loaded.clear()
        standby, _ = standby_of(job, looks=2)
        standby.load_tables(None)
        with pytest.raises(Waiting):
            standby.begin()
        assert loaded == []
    standby.begin()
    assert loaded == ["loaded"]
    standby.release()


def test_of_two_standbys_one_takes_over_and_the_other_waits_for_it():
    job = make_job()
    first, second = standby_of(job)[0], standby_of(job, looks=3)[0]
    first.begin()
    with pytest.raises(Waiting):
        second.begin()
    first.release()
    second.release()


def test_a_standby_ends_if_the_job_was_ordered_to_stop():
    job = make_job()
    with MemoryRun(job) as first:
        standby, _ = standby_of(job, looks=2)
        with pytest.raises(Waiting):
            standby.begin()
        order_stop(first.run.cells.connection, first.run.token)
    with pytest.raises(Ended):
        standby.begin()
    standby.release()


def test_a_standby_ends_if_the_job_has_ended_for_good():
    job = make_job()
    with MemoryRun(job) as first:
        first.flush()
    standby, _ = standby_of(job)
    with pytest.raises(Ended):
        standby.begin()
    standby.release()


def test_a_lease_is_taken_only_at_the_version_at_which_it_was_seen_free():
    job = make_job()
    with open_cells(job.cells_url) as connection:
        cell_of(connection).write(elsewhere("gone", 0.0))
        version = cell_of(connection).version()
        one, two = JobLease(connection, "one"), JobLease(connection, "two")
        assert one.take(version)
        assert not two.take(version)
        one.release()


def test_a_task_that_warms_opens_all_its_shards_and_runs_no_step(tmp_path):
    job = make_job()
    with MemoryRun(job) as first:
        first.batch({"in": [{"user": f"user-{n}"} for n in range(50)]})
        spec = first.run.spec(2, str(tmp_path))
        layout = Layout(msgspec.structs.replace(spec, warms=True), range(2), [[]])
        reports = LocalTasks(job.plan()).reports(layout)
        assert sum(report.caught_up for report in reports) > 0
        assert not any(report.deltas or report.counts for report in reports)
        again = LocalTasks(job.plan()).reports(layout)
        assert sum(report.caught_up for report in again) == 0
    for copies in list(LocalCopies._open.values()):
        if copies.folder.is_relative_to(tmp_path):
            copies.close()
