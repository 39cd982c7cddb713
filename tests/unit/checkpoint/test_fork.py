"""Starting a chain above 1, like a fork: once, whatever fails or happens in between."""

from __future__ import annotations

import itertools

import pytest

from support.internals import open_store
from tidewheel import Job, StoredJob
from tidewheel._checkpoint.tools.fork import fork
from tidewheel._storage.chain import Chain
from tidewheel._storage.memory import MemoryStore
from tidewheel.checkpoints import CheckpointId, Manifest, StreamCheckpoints
from tidewheel.errors import NotFound, StateError, StorageError
from tidewheel.sinks import discard
from tidewheel.sources import iterable
from tidewheel.testing import MemoryRun

_fresh = itertools.count()


@pytest.fixture
def url() -> str:
    return f"memory:fork-{next(_fresh)}"


def job(url: str, name: str) -> Job:
    made = Job(name, state=url, n_shards=2)
    stream = made.source("in", iterable([]), type=dict).key_by("by", lambda record: record["k"])
    stream.stateful_map("n", lambda key, record, n: (n, n + 1), default=0).sink("out", discard())
    return made


@pytest.fixture
def parent(url) -> StoredJob:
    with MemoryRun(job(url, "parent")) as run:
        run.batch({"in": [{"k": "a"}]})
    stored = StoredJob("parent", state=url)
    stored.savepoint("here")
    return stored


def test_a_chain_begins_above_1_once(url):
    store = open_store(url)
    assert Chain(store, "chain").begin(7, b"seven", b"from x")
    assert Chain(store, "chain").begin(7, b"seven", b"from x")
    assert not Chain(store, "chain").begin(7, b"other", b"from x")
    assert not Chain(store, "chain").begin(9, b"nine", b"from y")
    assert not Chain(store, "chain").append(1, b"one")
    assert Chain(store, "chain").numbers() == [7]
    assert Chain(store, "chain").append(8, b"eight")
    with pytest.raises(StorageError, match="above 1"):
        Chain(store, "other").begin(1, b"one", b"from x")


def test_a_chain_that_was_begun_at_1_does_not_begin_elsewhere(url):
    store = open_store(url)
    assert Chain(store, "chain").append(1, b"one")
    assert not Chain(store, "chain").begin(7, b"seven", b"from x")
    assert Chain(store, "chain").numbers() == [1]


@pytest.mark.parametrize("broken", [1, 2, 3, 4, 5])
def test_a_fork_that_was_broken_off_can_be_made_again(url, parent, broken, monkeypatch):
    """At any of its puts; meanwhile nobody begins the job in another way."""
    real, puts = MemoryStore.create, itertools.count(1)

    def create(self, path, data):
        if next(puts) == broken:
            raise StorageError("the machine is gone")
        return real(self, path, data)

    monkeypatch.setattr(MemoryStore, "create", create)
    try:
        fork(parent.store, "parent", "here", "child")
    except StorageError:
        monkeypatch.undo()
        fork(parent.store, "parent", "here", "child")
    monkeypatch.undo()
    with MemoryRun(job(url, "child")) as run:
        run.batch({"in": [{"k": "a"}]})
    assert StoredJob("child", state=url).get("n", "a").value == 2
    assert parent.get("n", "a").value == 1


def test_a_run_that_finds_a_half_made_fork_reports_it(url, parent, monkeypatch):
    monkeypatch.setattr(Chain, "append", lambda *_: (_ for _ in ()).throw(StorageError("the machine is gone")))
    with pytest.raises(StorageError):
        fork(parent.store, "parent", "here", "child")
    monkeypatch.undo()
    with pytest.raises(StateError, match="a fork to job 'child' was begun and did not end; run the fork again"):
        MemoryRun(job(url, "child"))
    fork(parent.store, "parent", "here", "child")


def test_a_fork_needs_a_savepoint_and_a_new_name(url, parent):
    with pytest.raises(NotFound, match=r"no savepoint 'there'.* checkpoints savepoint parent there --state "):
        parent.fork("there", "child")
    commands = (
        r"savepoint parent before-child --at 2 --state \S+, then tidewheel checkpoints fork parent before-child child"
    )
    with pytest.raises(NotFound, match=rf"no savepoint '2'.*there are 'here'\. .*{commands}"):
        parent.fork(2, "child")
    with pytest.raises(StateError, match="already"):
        parent.fork("here", "parent")
    parent.fork("here", "child")
    with pytest.raises(StateError, match="already"):
        parent.fork("here", "child")


def test_begin_refuses_another_streams_checkpoint(url):
    with pytest.raises(StateError, match="belongs to stream 'a'"):
        StreamCheckpoints(open_store(url), "b").begin(Manifest(CheckpointId("a", 3)), "x")


def test_a_fork_releases_its_parent_only_when_it_needs_none_of_its_files(url, parent):
    what_if = parent.fork("here", "what-if")
    with pytest.raises(StateError, match=r"job 'what-if' still needs 1 files of other jobs, such as /parent/"):
        what_if.release()
    # A fork that was removed needs nothing.
    for entry in what_if.store.at("what-if").list(""):
        what_if.store.at("what-if").delete(entry.path)
    assert what_if.release() == ("parent",)
    assert what_if.release() == ()
    assert [pin.name for pin in parent.checkpoints.pins.all()] == ["here"]
