"""Reading the state of a checkpoint: what it reads, keeps and refuses."""

from __future__ import annotations

import itertools
import time

import pytest

from tidewheel import Job, StoredJob
from tidewheel._checkpoint.names import STATE
from tidewheel._storage.memory import MemoryStore
from tidewheel.codecs import pickle_codec
from tidewheel.errors import NotFound, StateError
from tidewheel.sinks import discard
from tidewheel.sources import iterable
from tidewheel.testing import MemoryRun

_fresh = itertools.count()
BATCHES = 5
KEYS = 3000


def counting(url: str, **options) -> Job:
    job = Job("counts", state=url, n_shards=4, keep=2, collect_every=1, grace="0 s")
    stream = job.source("in", iterable([]), type=dict).key_by("by", lambda record: record["k"])
    stream.stateful_map("n", lambda key, record, n: (n, n + 1), default=0, **options).sink("out", discard())
    return job


@pytest.fixture
def stored() -> StoredJob:
    url = f"memory:reader-{next(_fresh)}"
    with MemoryRun(counting(url)) as run:
        for _ in range(BATCHES):
            run.batch({"in": [{"k": f"key-{n}"} for n in range(KEYS)]})
    return StoredJob("counts", state=url)


def test_a_look_up_reads_each_small_part_of_the_shard_once(stored, monkeypatch):
    reads = []
    real = MemoryStore.read_range
    monkeypatch.setattr(
        MemoryStore,
        "read_range",
        lambda self, path, start, length: reads.append(path) or real(self, path, start, length),
    )
    assert stored.get("n", "key-17").value == BATCHES
    assert len(reads) == len(set(reads)) == BATCHES


def test_a_fork_writes_no_state(stored):
    def files() -> set[str]:
        return {entry.path for entry in stored.store.list() if f"/{STATE}/" in entry.path}

    before, size = files(), sum(entry.size for entry in stored.store.list())
    stored.savepoint("here")
    stored.fork("here", "forked")
    assert files() == before
    assert sum(entry.size for entry in stored.store.list()) - size < 32 * 1024


def test_a_reader_keeps_its_files_while_the_job_continues(stored):
    """A scan that is half done, a job that commits and collects meanwhile."""
    going = stored.scan("n")
    first = [next(going) for _ in range(3)]
    with MemoryRun(counting(stored.store.url)) as run:
        for _ in range(BATCHES):
            run.batch({"in": [{"k": f"key-{n}"} for n in range(KEYS)]})
    assert {value for _, value in [*first, *going]} == {BATCHES}
    assert not [pin for pin in stored.checkpoints.pins.all() if pin.kind == "reader"]


def test_a_readers_pin_expires(stored):
    from tidewheel._checkpoint.tools.state_reader import hold

    _, name = hold(stored.checkpoints, None, seconds=0.001)
    pin = stored.checkpoints.pins.read(name)
    while pin.holds(time.time_ns()):
        pass
    stored.gc(grace="0 s")
    with pytest.raises(NotFound):
        stored.checkpoints.pins.read(name)


def test_pickled_state_is_not_opened_by_tools():
    url = f"memory:reader-{next(_fresh)}"
    job = counting(url, codec=pickle_codec())
    with MemoryRun(job) as run:
        run.batch({"in": [{"k": "a"}]})
    with pytest.raises(StateError, match="'pickle' is not opened here"):
        StoredJob("counts", state=url).get("n", "a")
    assert job.query("n", "a").value == 1
