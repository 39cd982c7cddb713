"""A ttl that is added, removed, restored, or measured by another clock, from program to program."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from tidewheel import Job, StoredJob
from tidewheel._checkpoint.manifest import OperatorInfo
from tidewheel._checkpoint.state_files import opener
from tidewheel._state.shard_contents import shard_items
from tidewheel._testing.clock import Clock
from tidewheel.sinks import discard
from tidewheel.testing import MemoryRun

_names = itertools.count()
SECOND = 1_000_000_000


class Counting:
    """A job that counts by key, with another ttl in each run. Its clock and the time of its messages are the same."""

    def __init__(self) -> None:
        self.state, self.clock = f"memory:ttl-that-changes-{next(_names)}", Clock(100 * SECOND)
        self.notices: list[str] = []
        self.name = "count"

    def job(self, **options: Any) -> Job:
        job = Job("ttl", state=self.state, n_shards=4)
        stream = job.source("in", lambda spark: None).assign_timestamps("times", "t", unit="ns")
        on_time = stream.limit_out_of_orderness("order", "0 s")
        late = on_time.late
        late.sink("late", discard())
        counted = on_time.key_by("by", "user").stateful_map(
            self.name, lambda user, row, n: (n + 1, n + 1), default=0, **options
        )
        counted.sink("out", discard())
        return job

    def run(self, *steps: tuple[int, str], **options: Any) -> dict[Any, Any]:
        """Run a program: each step is a time in seconds and a user. Return the counts in the end."""
        with MemoryRun(self.job(**options), clock=self.clock) as run:
            self.notices = run.run.notices
            for second, user in steps:
                self.clock.now = second * SECOND
                run.batch({"in": [{"user": user, "t": second * SECOND}]})
                run.batch({})
            self.tables = _tables(run)
        return dict(StoredJob("ttl", state=self.state).scan(self.name))


def _tables(run: MemoryRun) -> set[str]:
    """The tables that have anything in them."""
    head, fetch = run.run.head, opener(run.run.store, run.run.stream)
    return {table for shard, parts in head.shards.items() for table, _, _ in shard_items(parts, shard, fetch)}


CLOCKS = pytest.mark.parametrize("clock", ["event", "wall"])


@CLOCKS
def test_a_ttl_that_is_given_back_counts_from_then_on(clock):
    job = Counting()
    job.run((100, "a"), (101, "b"), ttl="10 s", ttl_clock=clock)
    job.run((200, "a"), (201, "new"))
    # The first run's ends, 110 and 111, are long past; none of them counts.
    assert job.run((202, "z"), ttl="10 s", ttl_clock=clock) == {"a": 2, "b": 1, "new": 1, "z": 1}
    assert job.notices == [
        "step 'count': its ttl starts now for existing states; after that it counts from the last message of each key"
    ]
    assert job.run((208, "b"), (213, "y"), ttl="10 s", ttl_clock=clock) == {"b": 2, "y": 1}
    assert job.notices == []


@CLOCKS
def test_nothing_of_a_removed_ttl_remains(clock):
    job = Counting()
    job.run((100, "a"), ttl="10 s", ttl_clock=clock)
    assert job.run((200, "b")) == {"a": 1, "b": 1}
    assert job.notices == ["step 'count': its ttl was removed, and its states are kept"]
    assert job.tables == {"count"}
    job.run((300, "c"))
    assert job.notices == []


@pytest.mark.parametrize(("before", "after"), [("event", "wall"), ("wall", "event")])
def test_a_ttl_by_another_clock_ends_all_states(before, after):
    job = Counting()
    job.run((100, "a"), (101, "b"), ttl="10 s", ttl_clock=before)
    assert job.run((105, "b"), ttl="10 s", ttl_clock=after) == {"a": 1, "b": 2}
    assert job.notices == [
        "step 'count': its ttl starts now for existing states; after that it counts from the last message of each key"
    ]
    assert job.run((112, "b"), (117, "z"), ttl="10 s", ttl_clock=after) == {"b": 3, "z": 1}
    assert job.run((130, "z"), ttl="10 s", ttl_clock=after).keys() == {"z"}


def test_a_changed_ttl_keeps_existing_expiry_times():
    job = Counting()
    job.run((100, "a"), ttl="10 s")
    assert job.run((105, "z"), ttl="20 s") == {"a": 1, "z": 1}
    assert job.notices == []
    assert job.run((111, "z"), ttl="20 s") == {"z": 2}


def test_a_changed_ttl_comes_with_another_name_and_another_version():
    job = Counting()
    job.run((100, "a"), ttl="10 s")
    job.name = "renamed"
    options: dict[str, Any] = {"ttl": "10 s", "ttl_clock": "wall", "version": 2, "upgrade": lambda n, version: n + 1000}
    assert job.run((200, "b"), aliases=["count"], **options) == {"a": 1001, "b": 1}
    assert job.tables == {"renamed", "renamed/expires", "renamed/ttl-timers"}
    assert job.run((209, "b"), (212, "z"), aliases=["count"], **options) == {"b": 2, "z": 1}


def test_state_without_a_recorded_ttl_starts_a_new_one():
    """It may have been taken away and given back before."""
    job = Counting()
    job.run((100, "a"), (108, "b"), ttl="10 s")
    _forget_layouts(job)
    assert job.run((112, "c"), ttl="10 s") == {"a": 1, "b": 1, "c": 1}
    assert job.run((119, "d"), ttl="10 s") == {"c": 1, "d": 1}


def _forget_layouts(job: Counting) -> None:
    with MemoryRun(job.job(ttl="10 s"), clock=job.clock) as run:
        plain = {name: OperatorInfo(info.kind, info.codec, 1) for name, info in run.run.head.operators.items()}
        run.run.commit(run._spec(None), [], "upgrade", None, operators=plain)
