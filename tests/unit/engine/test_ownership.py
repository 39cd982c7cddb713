"""Who runs a job: leases may be wrong, claims decide."""

from __future__ import annotations

import itertools
import os
import threading

import msgspec
import pytest

from support.internals import open_store
from tidewheel import Job, cells
from tidewheel._cells.job_place import HOLDER, ORDERS
from tidewheel._checkpoint.manifest import StagedOutput
from tidewheel._checkpoint.unpublished import outputs_of
from tidewheel._engine.claim import claim, claim_of
from tidewheel._engine.job_lease import Holder, JobLease, free_in, this_process
from tidewheel.checkpoints import CheckpointId, Manifest, StreamCheckpoints
from tidewheel.errors import FencedError, HeldError
from tidewheel.sinks import collect
from tidewheel.testing import MemoryRun

_names = itertools.count()
HERE = Holder("me", "host", "boot", 1, 100, 0.0, 15.0)


def holder(**changes) -> Holder:
    return msgspec.structs.replace(Holder("other", "host", "boot", 2, 50, 10.0, 10.0), **changes)


def test_a_container_that_sees_other_processes_is_another_machine(monkeypatch):
    # With the host's network, or in one pod, containers have one host name; a process of another one is not to be seen.
    here = this_process("here")
    monkeypatch.setattr(os, "readlink", lambda path: "pid:[1]")
    assert not here.shares_clock(this_process("there"))
    monkeypatch.undo()
    assert here.shares_clock(this_process("there"))


@pytest.mark.parametrize(
    ("other", "alive", "now", "seen_at", "free"),
    [
        # On this machine: its process can be looked up, and its monotonic clock is this one.
        (holder(), True, 20.0, 0.0, False),
        (holder(), True, 21.1, 21.0, True),
        (holder(), False, 10.0, 0.0, True),
        # Another machine, another boot of this one, another container: whatever its clock says, it is watched from here.
        (holder(host="elsewhere", boot="theirs", renewed_at=1e9), False, 11.0, 0.0, True),
        (holder(host="elsewhere", boot="theirs", renewed_at=-1e9), False, 10.9, 0.0, False),
        (holder(boot="before", renewed_at=-1e9), False, 10.9, 0.0, False),
        (holder(host="container", renewed_at=-1e9), False, 10.9, 0.0, False),
    ],
)
def test_a_lease_is_free_when_its_process_is_gone_or_it_expired(other, alive, now, seen_at, free):
    assert (free_in(other, HERE, alive, now, seen_at) <= 0) is free


def test_this_process_is_one_that_can_be_looked_up():
    me = this_process("run")
    assert (me.run, me.pid) == ("run", os.getpid())
    assert me.process_started > 0


@pytest.fixture
def place():
    """A job's store and its cells, in memory."""
    url = f"memory:ownership-{next(_names)}"
    connection = cells.open(url)
    yield StreamCheckpoints(open_store(url), "job"), connection
    connection.close()


FIRST = Manifest(CheckpointId("job", 1), n_shards=8, lineage="l")


def cell_of(connection):
    return connection.writer(HOLDER, Holder, namespace=ORDERS, type_name="tidewheel.JobHolder")


def test_the_first_claim_begins_the_chain_and_the_next_carries_on(place):
    checkpoints, connection = place
    one, two = JobLease(connection, "one"), JobLease(connection, "two")
    with one.held("job"):
        first = claim(checkpoints, one, "one", FIRST)
    assert (first.sequence, first.kind, first.run, first.n_shards, first.parent) == (1, "claim", "one", 8, None)
    with two.held("job"):
        second = claim(checkpoints, two, "two", FIRST)
    assert (second.sequence, second.run, second.parent, second.lineage) == (2, "two", 1, "l")


def test_of_many_simultaneous_starts_one_gets_the_job(place):
    _, connection = place
    for attempt in range(20):
        leases = [JobLease(connection, f"{attempt}-{number}") for number in range(6)]
        together = threading.Barrier(len(leases))
        outcomes: list[str] = []

        def start(lease: JobLease, together: threading.Barrier = together, outcomes: list[str] = outcomes) -> None:
            together.wait()
            try:
                lease.acquire("job")
                outcomes.append(lease._run)
            except HeldError as error:
                outcomes.append(str(error))

        threads = [threading.Thread(target=start, args=[lease]) for lease in leases]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        winners = [outcome for outcome in outcomes if outcome.startswith(f"{attempt}-")]
        assert len(winners) == 1, outcomes
        assert sum(f"held by run {winners[0]} " in outcome for outcome in outcomes) == len(leases) - 1
        for lease in leases:
            lease.release()


def test_a_silent_holder_with_any_clock_is_replaced(place):
    _, connection = place
    for ahead in (-3600.0, 3600.0):
        gone = holder(host="elsewhere", boot="theirs", renewed_at=this_process("x").renewed_at + ahead, ttl=0.2)
        cell_of(connection).write(gone)
        with JobLease(connection, "two").held("job"):
            assert cell_of(connection).refresh().value.run == "two"


def test_a_renewing_holder_on_another_machine_keeps_the_job(place):
    _, connection = place
    far, done = cell_of(connection), threading.Event()
    far.write(holder(host="elsewhere", boot="theirs", renewed_at=-1e9, ttl=30.0))

    def renew() -> None:
        number = 0
        while not done.wait(0.05):
            number += 1
            far.write(holder(host="elsewhere", boot="theirs", renewed_at=-1e9 + number, ttl=30.0))

    renewing = threading.Thread(target=renew)
    renewing.start()
    try:
        with pytest.raises(HeldError, match=r"held by run other \(process 2 on elsewhere\)"):
            JobLease(connection, "two").acquire("job")
    finally:
        done.set()
        renewing.join()


def test_a_run_whose_lease_was_taken_over_before_its_claim_claims_nothing(place):
    checkpoints, connection = place
    one, two = JobLease(connection, "one"), JobLease(connection, "two")
    one.acquire("job")
    two.acquire("job", take_over=True)
    with pytest.raises(HeldError, match="held by run two"):
        claim(checkpoints, one, "one", FIRST)
    assert checkpoints.latest() is None
    one.release()
    two.release()


def test_a_claim_carries_unpublishable_output_under_its_batch_number():
    batch = Manifest(CheckpointId("job", 5), kind="batch", outputs=(StagedOutput("out", 1, (b"t",)),), event_count=7)
    once = claim_of(batch, FIRST, "one")
    twice = claim_of(once, FIRST, "two")
    for claimed in (once, twice):
        assert claimed.outputs == batch.outputs
        assert outputs_of(claimed) == 5
        assert claimed.event_count == 7


def test_a_held_job_is_refused_with_the_name_of_the_holder(place):
    checkpoints, connection = place
    lease, other = JobLease(connection, "one"), JobLease(connection, "two")
    lease.acquire("job")
    with pytest.raises(HeldError, match=r"held by run one of this process; .*run\.stop\(\).*take_over=True"):
        other.acquire("job")
    other.acquire("job", take_over=True)
    assert claim(checkpoints, other, "two", FIRST).run == "two"
    lease.release()
    other.release()


def test_a_released_lease_does_not_delay_the_next_run(place):
    _, connection = place
    for run in ("one", "two"):
        with JobLease(connection, run).held("job"):
            assert cell_of(connection).refresh().value.run == run


def test_releasing_does_not_end_the_lease_of_the_new_holder(place):
    _, connection = place
    old, new = JobLease(connection, "one"), JobLease(connection, "two")
    old.acquire("job")
    new.acquire("job", take_over=True)
    old.release()
    with pytest.raises(HeldError, match="held by run two"):
        JobLease(connection, "three").acquire("job")
    new.release()


def test_a_run_that_was_taken_over_is_fenced_at_its_next_commit():
    def job() -> Job:
        made = Job("fenced", state=f"memory:fenced-{number}")
        made.source("in", lambda spark: None).sink("out", collect())
        return made

    number = next(_names)
    with MemoryRun(job()) as old:
        old.batch({"in": [{"n": 1}]})
        with pytest.raises(HeldError):
            MemoryRun(job())
        with MemoryRun(job(), take_over=True) as new:
            new.batch({"in": [{"n": 2}]})
            with pytest.raises(FencedError, match="the job was taken over by run"):
                old.batch({"in": [{"n": 3}]})
            new.batch({"in": [{"n": 4}]})
            assert new.run.head.event_count == 3


def test_the_lease_shows_the_progress_of_a_start(place):
    _, connection = place
    lease, cell = JobLease(connection, "one"), cell_of(connection)
    lease.enter("Spark")
    with lease.held("job"):
        assert cell.refresh().value.phase == "Spark"
        for phase in ("hosts", None):
            lease.enter(phase)
            while cell.refresh().value.phase != phase:
                threading.Event().wait(0.01)
    assert cell.refresh().value is None
