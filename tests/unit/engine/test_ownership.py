"""Who runs a job: leases that lie, claims that do not."""

from __future__ import annotations

import itertools
import os

import msgspec
import pytest

from tidewheel import Job, cells
from tidewheel._checkpoint.manifest import CheckpointId, Manifest, StagedOutput
from tidewheel._checkpoint.store import StreamCheckpoints
from tidewheel._checkpoint.unpublished import outputs_of
from tidewheel._engine.claim import Holder, Lease, claim, claim_of, is_fresh, this_process
from tidewheel._storage import open_store
from tidewheel.errors import FencedError, HeldError
from tidewheel.sinks import collect
from tidewheel.testing import MemoryRun

_names = itertools.count()
HERE = Holder("me", "host", "boot", 1, 100, 0.0)


def holder(**changes) -> Holder:
    return msgspec.structs.replace(Holder("other", "host", "boot", 2, 50, 10.0), **changes)


@pytest.mark.parametrize(
    ("other", "now", "alive", "fresh"),
    [
        (holder(), 9.0, True, True),
        (holder(), 10.0, True, False),
        (holder(), 9.0, False, False),
        # A process of another machine, of another boot of this one, or of another container on it cannot be looked up.
        (holder(host="elsewhere", boot="theirs"), 9.0, False, True),
        (holder(boot="before"), 9.0, False, True),
        (holder(host="container"), 9.0, False, True),
        (holder(host="elsewhere", boot="theirs"), 11.0, False, False),
    ],
)
def test_a_lease_is_fresh_while_it_lasts_and_its_process_lives_as_far_as_can_be_told(other, now, alive, fresh):
    assert is_fresh(other, now, HERE, alive) is fresh


def test_this_process_is_one_that_can_be_looked_up():
    me = this_process("run")
    assert (me.run, me.pid) == ("run", os.getpid())
    assert me.process_started > 0
    assert me.expires_at > 0


@pytest.fixture
def place():
    """A job's store and its cells, in memory."""
    url = f"memory:ownership-{next(_names)}"
    connection = cells.open(url)
    yield StreamCheckpoints(open_store(url), "job"), connection
    connection.close()


FIRST = Manifest(CheckpointId("job", 1), n_shards=8, lineage="l")


def test_the_first_claim_begins_the_chain_and_the_next_carries_on(place):
    checkpoints, connection = place
    first = claim(checkpoints, Lease(connection, "one"), "one", False, FIRST)
    assert (first.sequence, first.kind, first.run, first.n_shards, first.parent) == (1, "claim", "one", 8, None)
    second = claim(checkpoints, Lease(connection, "two"), "two", False, FIRST)
    assert (second.sequence, second.run, second.parent, second.lineage) == (2, "two", 1, "l")


def test_a_claim_carries_output_that_may_not_be_published_under_the_number_of_its_batch():
    batch = Manifest(CheckpointId("job", 5), kind="batch", outputs=(StagedOutput("out", 1, (b"t",)),), event_count=7)
    once = claim_of(batch, FIRST, "one")
    twice = claim_of(once, FIRST, "two")
    for claimed in (once, twice):
        assert claimed.outputs == batch.outputs
        assert outputs_of(claimed) == 5
        assert claimed.event_count == 7


def test_a_job_that_is_held_is_refused_and_says_by_whom(place):
    checkpoints, connection = place
    lease = Lease(connection, "one")
    claim(checkpoints, lease, "one", False, FIRST)
    lease.take()
    with pytest.raises(HeldError, match=rf"held by run one \(process {os.getpid()} on .*--take-over"):
        claim(checkpoints, Lease(connection, "two"), "two", False, FIRST)
    taken = claim(checkpoints, Lease(connection, "two"), "two", True, FIRST)
    assert taken.run == "two"
    lease.release()


def test_a_released_lease_holds_nobody_back(place):
    checkpoints, connection = place
    lease = Lease(connection, "one")
    claim(checkpoints, lease, "one", False, FIRST)
    lease.take()
    lease.release()
    assert Lease(connection, "two").holder() is None


def test_releasing_does_not_end_the_lease_of_whoever_took_over(place):
    _, connection = place
    old, new = Lease(connection, "one"), Lease(connection, "two")
    old.take()
    new.take()
    old.release()
    held = Lease(connection, "three").holder()
    assert held is not None
    assert held.run == "two"
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
