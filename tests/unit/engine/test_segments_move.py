"""A key whose state is in segments is taken out, moved and resharded with all of them."""

from __future__ import annotations

import secrets

import pytest

from support.internals import open_store
from tidewheel import Job
from tidewheel._checkpoint.job_place import JobPlace
from tidewheel._engine.reshard import reshard
from tidewheel._engine.stopped_job import StoppedJob, opener
from tidewheel._state import time_order
from tidewheel._state.segments import is_segments
from tidewheel._state.shard_contents import shard_items
from tidewheel.checkpoints import StreamCheckpoints
from tidewheel.errors import CorruptError
from tidewheel.sinks import collect
from tidewheel.testing import MemoryRun, StepTester

WAITING = 20


@pytest.fixture(autouse=True)
def small_segments(monkeypatch) -> None:
    monkeypatch.setattr(time_order, "SEGMENT_ENTRIES", 2)


def job(state: str, name: str = "job", n_shards: int = 4, out=None) -> Job:
    made = Job(name, state=state, n_shards=n_shards)
    left, right = (
        made.source(side, lambda spark: None).assign_timestamps(f"t-{side}", "n", unit="ns").key_by(f"by-{side}", "key")
        for side in ("left", "right")
    )
    left.interval_join("join", right, how="left").sink("out", out or collect())
    return made


@pytest.fixture
def state() -> str:
    url = f"memory:segments-{secrets.token_hex(4)}"
    with MemoryRun(job(url)) as run:
        run.batch({"left": [{"key": "hot", "n": n} for n in range(WAITING)], "right": [{"key": "cold", "n": 0}]})
    assert segments(url) > 5
    return url


def segments(state: str, name: str = "job") -> int:
    store = open_store(state)
    manifest = StreamCheckpoints(store, name).latest()
    fetch = opener(store, name)
    held = (entry for shard, parts in manifest.shards.items() for entry in shard_items(parts, shard, fetch))
    return sum(is_segments(table) for table, _, _ in held)


def flushed(state: str, name: str = "job", n_shards: int = 4) -> list[int]:
    out = collect()
    with MemoryRun(job(state, name, n_shards, out), take_over=True) as run:
        run.flush()
    assert segments(state, name) == 0
    return sorted(record["left"]["n"] for record in out.records)


def test_it_is_given_to_another_key(state):
    with StoppedJob(job(state)) as stopped:
        assert stopped.interrogate() == {"hot", "cold"}
        taken = stopped.collect("hot")
        assert stopped.collect("hot") == {}
        stopped.acquire("other", taken)
        assert stopped.interrogate() == {"other", "cold"}
        stopped.commit()
    assert segments(state) > 5
    assert flushed(state) == [*range(WAITING)]


def test_a_replaced_state_leaves_no_segments(state):
    with StoppedJob(job(state)) as stopped:
        stopped.acquire("hot", stopped.collect("cold"))
        stopped.commit()
    assert segments(state) == 0


def test_it_is_resharded(state):
    reshard(JobPlace("job", state), 16)
    assert flushed(state, n_shards=16) == [*range(WAITING)]


def test_a_message_is_not_put_aside_because_a_segment_is_lost(state):
    with StoppedJob(job(state)) as stopped:
        taken = stopped.collect("hot")
        stopped.acquire("hot", {table: entries for table, entries in taken.items() if not is_segments(table)})
        stopped.commit()
    lost = "segment . of the state of key 'hot' is not in 'join/segments'"
    with_letters = job(state)
    with_letters.dead_letter("dead", collect())
    with MemoryRun(with_letters, take_over=True) as run, pytest.raises(CorruptError, match=lost):
        run.batch({"left": [{"key": "hot", "n": 3}]})
    with MemoryRun(job(state), take_over=True) as run, pytest.raises(CorruptError, match=lost):
        run.flush()


def test_it_is_taken_out_of_a_tester_and_put_into_another():
    def tester() -> StepTester:
        return StepTester(lambda stream: stream.interval_join("join", stream, after="5 ns", how="left"))

    one, two = tester(), tester()
    for n in range(WAITING):
        one.send("hot", n, n)
    assert one.interrogate() == {"hot"}
    two.acquire("other", one.collect("hot"))
    assert one.snapshot() == {}
    assert two.interrogate() == {"other"}
    two.restore(two.snapshot())
    met = two.send("other", 100, time=22)
    assert [(message.value.left, message.value.right) for message in met] == [
        (17, 100),
        (18, 100),
        (19, 100),
        (100, 100),
    ]
