"""After a second restore without a run in between, the output that the first one voided is still withdrawn."""

from __future__ import annotations

import json

import pytest

from support.internals import faults
from tidewheel import Job, StoredJob, sinks
from tidewheel._core.faults import InjectedFault
from tidewheel.testing import MemoryRun


@pytest.fixture(autouse=True)
def disarmed():
    yield
    faults.arm("")


class Stored:
    def __init__(self, root) -> None:
        self.root = root

    def job(self) -> Job:
        job = Job("twice", state=str(self.root / "state"), n_shards=2)
        stream = job.source("in", lambda spark: None, type=dict).key_by("by", "k", value="n")
        totals = stream.stateful_map("sum", lambda key, n, total: ({"n": n}, total + n), default=0)
        totals.sink("out", sinks.files(self.root / "out", format="json"))
        return job

    def run(self, *numbers: int) -> None:
        with MemoryRun(self.job()) as run:
            for number in numbers:
                run.batch({"in": [{"k": "a", "n": number}]})

    def crash(self, point: str, number: int) -> None:
        """Run one batch, or only a start, up to a fault."""
        faults.arm(f"{point}=raise")
        with pytest.raises(InjectedFault), MemoryRun(self.job()) as run:
            run.batch({"in": [{"k": "a", "n": number}]})
        faults.arm("")

    @property
    def stored(self) -> StoredJob:
        return StoredJob("twice", state=str(self.root / "state"))

    def output(self) -> list[int]:
        files = (self.root / "out").glob("*.json")
        return sorted(json.loads(line)["n"] for file in files for line in file.read_text().splitlines())

    def total(self) -> int:
        return self.stored.get("sum", "a").value


def by_number(stored: StoredJob, first: int) -> None:
    stored.restore(first)


def by_savepoint(stored: StoredJob, first: int) -> None:
    stored.savepoint("again")
    stored.restore("again")


def three_times(stored: StoredJob, first: int) -> None:
    stored.restore(stored.restore(first).sequence)


@pytest.mark.parametrize("again", [by_number, by_savepoint, three_times])
def test_output_that_the_first_restore_made_void_is_taken_back(tmp_path, again):
    job = Stored(tmp_path)
    job.run(1)
    job.stored.savepoint("one")
    job.run(2, 3)
    again(job.stored, job.stored.restore("one").sequence)
    job.run(20, 30)
    assert (job.output(), job.total()) == ([1, 20, 30], 51)


def test_a_start_that_dies_after_its_claim_leaves_void_output_to_the_next(tmp_path):
    job = Stored(tmp_path)
    job.run(1)
    job.stored.savepoint("one")
    job.run(2)
    job.stored.restore("one")
    job.crash("start.claimed", 9)
    job.stored.restore(job.stored.show().sequence)
    job.run(20)
    assert (job.output(), job.total()) == ([1, 20], 21)


def test_a_restore_is_undone_by_a_restore_to_the_abandoned_checkpoint(tmp_path):
    job = Stored(tmp_path)
    job.run(1)
    job.stored.savepoint("one")
    job.run(2)
    first = job.stored.restore("one")
    job.stored.restore(f"before-restore-{first.sequence}")
    job.run(3)
    assert (job.output(), job.total()) == ([1, 2, 3], 6)


def test_output_that_was_not_published_is_published_after_two_restores(tmp_path):
    job = Stored(tmp_path)
    job.run(1)
    job.crash("commit.created", 2)
    newest = job.stored.show().sequence
    job.stored.restore(job.stored.restore(newest).sequence)
    job.run(3)
    assert (job.output(), job.total()) == ([1, 2, 3], 6)
