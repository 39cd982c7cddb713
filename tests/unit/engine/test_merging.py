"""Merges in parallel with batches: a later commit adopts them, and a failed merge leaves no trace."""

from __future__ import annotations

import contextlib
import itertools
import time
from concurrent.futures import Future, wait
from functools import partial

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from support.internals import faults, open_store, states
from tidewheel import Job, StoredJob
from tidewheel._checkpoint.garbage import collect
from tidewheel._checkpoint.names import path, sequence_of
from tidewheel._checkpoint.pages import PageReader
from tidewheel._checkpoint.tools.fork import fork
from tidewheel._checkpoint.tools.restore import restore
from tidewheel._checkpoint.tools.savepoint import make_savepoint
from tidewheel._engine import merging as module
from tidewheel._engine.merging import MergeLimits
from tidewheel._state.compaction import merge_due
from tidewheel.checkpoints import CheckpointId, StreamCheckpoints
from tidewheel.codecs import msgpack_codec
from tidewheel.sinks import discard
from tidewheel.testing import MemoryRun

USERS = "abcdef"
_fresh = itertools.count()
FAR = 10**19
decode = msgpack_codec().decode


@pytest.fixture(autouse=True)
def disarmed():
    yield
    faults.arm("")


def make_job(name: str, url: str, **settings) -> Job:
    job = Job(name, state=url, **{"n_shards": 2, "keep": 2, "collect_every": 1, "grace": "0 s", **settings})
    rows = job.source("in", lambda spark: None).key_by("by", "user", value="n")
    rows.stateful_map("sum", lambda user, n, total: (total, None if n == 0 else total + n), default=0).sink(
        "out", discard()
    )
    return job


def held(url: str, name: str) -> dict[str, int]:
    store = open_store(url)
    head = StreamCheckpoints(store, name).latest()
    return {key: decode(raw) for key, raw in states(store, head).get("sum", {}).items()}


class Later:
    """Merges that are done when a test says so, or never."""

    def __init__(self) -> None:
        self.future: Future | None = None

    def __call__(self, work) -> Future:
        self.work, self.future = work, Future()
        return self.future

    def finish(self) -> None:
        if self.future is not None and not self.future.done():
            try:
                self.future.set_result(self.work())
            except Exception as error:
                self.future.set_exception(error)


class Model:
    """A job whose state is a plain dict, and what a user may do to it."""

    def __init__(self, url: str, name: str, expected: dict[str, int]) -> None:
        self.url, self.name, self.expected = url, name, expected
        self.at = {}
        self.run: MemoryRun | None = None
        self.floor = 0

    def running(self) -> MemoryRun:
        if self.run is None:
            self.run = MemoryRun(make_job(self.name, self.url))
            self.later = self.run.run.merging.submit = Later()
            self.run.run.merging.due = partial(merge_due, fan=2, floor_bytes=self.floor)
        return self.run

    def stopped(self) -> None:
        if self.run is not None:
            self.run.close()
            self.run = None

    def batch(self, rows: list[tuple[str, int]]) -> None:
        self.running().batch({"in": [{"user": user, "n": n} for user, n in rows]})
        for user, n in rows:
            self.expected[user] = self.expected.get(user, 0) + n
            if n == 0:
                del self.expected[user]
        self.at[self.run.run.head.sequence] = dict(self.expected)

    def checkpoints(self) -> StreamCheckpoints:
        return StreamCheckpoints(open_store(self.url), self.name)

    def check(self) -> None:
        assert held(self.url, self.name) == self.expected
        store, checkpoints = open_store(self.url), self.checkpoints()
        kept, pins = checkpoints.list(), checkpoints.pins.all()
        needed = {name for state in kept for name in state.needed_names()} | {f for pin in pins for f in pin.files}
        there = {entry.path for entry in checkpoints.folder.list("state")}
        for name in needed:
            if name.startswith("/"):
                store.read(path(self.name, name))
            else:
                assert name in there

    def check_clean(self) -> None:
        """Nothing stays that nobody needs, once the pins of whoever died have expired."""
        self.stopped()
        checkpoints = StreamCheckpoints(open_store(self.url), self.name, clock=lambda: FAR)
        collect(checkpoints, keep=1, grace=0, now=FAR)
        self.check()
        [head] = checkpoints.list()
        pins = checkpoints.pins.all()
        needed = head.needed_names() | {file for pin in pins for file in pin.files}
        for entry in checkpoints.folder.list("state"):
            assert entry.path in needed or sequence_of(entry.path) >= head.sequence


rows = st.lists(st.tuples(st.sampled_from(USERS), st.integers(0, 3)), min_size=1, max_size=4)
steps = st.lists(
    st.sampled_from(
        ["batch"] * 6 + ["finish", "finish", "finish", "stop", "crash", "restore", "fork", "move", "collect"]
    ),
    min_size=3,
    max_size=14,
)


@given(steps, st.sampled_from([0, 1 << 20]), st.data())
# Not shrunk: a shorter story is found in no time that anybody would wait.
@settings(max_examples=25, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
def test_any_order_of_batches_merges_crashes_and_restores_equals_a_dict(todo, floor, data):
    url = f"memory:merging-{next(_fresh)}"
    job, spare = Model(url, "job", {}), Model(url, "spare", {})
    jobs = [job, spare]
    for model in jobs:
        model.floor = floor
        model.batch([("z", 1)])
        model.stopped()
    for step in todo:
        if step == "batch":
            job.batch(data.draw(rows))
        elif step == "finish" and job.run is not None:
            job.later.finish()
        elif step == "stop":
            job.stopped()
        elif step == "crash" and job.run is not None and job.later.future is not None:
            # The files are there, and whoever made them is gone: nobody closes anything.
            job.later.finish()
            job.run.run.lease.release()
            job.run = None
        elif step == "collect":
            StoredJob(job.name, state=url).gc(keep=data.draw(st.integers(1, 2)), grace="0 s")
        elif step == "restore":
            job.stopped()
            known = [number for number in job.checkpoints().sequences() if number in job.at]
            if known:
                back = data.draw(st.sampled_from(known))
                restored = restore(job.checkpoints(), back, keep_output=True)
                job.checkpoints().pins.drop(f"before-restore-{restored.sequence}")
                job.expected = dict(job.at[back])
        elif step == "fork":
            job.stopped()
            name = f"fork-{len(jobs)}"
            make_savepoint(job.checkpoints(), f"for-{name}")
            fork(open_store(url), job.name, f"for-{name}", name)
            job = Model(url, name, dict(job.expected))
            job.floor = floor
            jobs.append(job)
        job.check()
    for model in jobs:
        model.check_clean()


def test_a_running_merge_keeps_its_files_after_retention_drops_its_base():
    url = f"memory:merging-{next(_fresh)}"
    with MemoryRun(make_job("job", url, keep=1)) as run:
        later = run.run.merging.submit = Later()
        run.run.merging.due = partial(merge_due, fan=2, floor_bytes=1 << 20)
        for n in range(3):
            run.batch({"in": [{"user": user, "n": n} for user in USERS]})
        future = later.future
        later.finish_work = later.work()
        for n in range(4):
            run.batch({"in": [{"user": "a", "n": n}]})
            StoredJob("job", state=url).gc(keep=1, grace="0 s")
        merged = {part.file.name for result in later.finish_work.values() for part in result.parts}
        assert not merged & run.run.head.needed_names()
        future.set_result(later.finish_work)
        run.batch({"in": [{"user": "a", "n": 1}]})
        assert merged & run.run.head.needed_names()
        assert [pin.name for pin in run.run.checkpoints.pins.all()] == []
        assert held(url, "job") == {user: 3 if user != "a" else 7 for user in USERS}
        assert StoredJob("job", state=url).verify().problems == ()


@pytest.mark.parametrize("done", [True, False])
def test_a_merge_is_discarded_if_a_commit_did_not_keep_its_files(done):
    url = f"memory:merging-{next(_fresh)}"
    with MemoryRun(make_job("job", url, keep=1)) as memory:
        run = memory.run
        later = run.merging.submit = Later()
        run.merging.due = partial(merge_due, fan=2, floor_bytes=1 << 20)
        for n in range(1, 3):
            memory.batch({"in": [{"user": "a", "n": n}]})
        if done:
            later.finish()
        for number in (run.head.sequence + 1, run.head.sequence + 2):
            between = run.head.replace(id=CheckpointId("job", number), kind="stop", parent=number - 1)
            run.head = run.checkpoints.commit(between)
        StoredJob("job", state=url).gc(keep=1, grace="0 s")
        memory.batch({"in": [{"user": "a", "n": 3}]})
        later.finish()
        memory.batch({"in": [{"user": "a", "n": 4}]})
        assert held(url, "job") == {"a": 10}
        assert StoredJob("job", state=url).verify().problems == ()


def test_a_merge_that_fails_leaves_the_runs_and_is_tried_again(monkeypatch, caplog):
    url = f"memory:merging-{next(_fresh)}"
    with MemoryRun(make_job("job", url)) as run:
        run.run.merging.due = partial(merge_due, fan=2, floor_bytes=1 << 20)
        with monkeypatch.context() as broken:
            broken.setattr(module, "merged_items", lambda *_: (_ for _ in ()).throw(OSError("no room")))
            for n in range(1, 5):
                run.batch({"in": [{"user": "a", "n": n}]})
        assert "could not be merged, and are left as they are: no room" in caplog.text
        assert [len(parts.deltas) for parts in run.run.head.shards.values()] == [4]
        for _ in range(2):
            run.batch({"in": [{"user": "a", "n": 1}]})
        assert [len(parts.deltas) for parts in run.run.head.shards.values()] == [2]
        assert held(url, "job") == {"a": 12}


def test_a_run_that_ends_stops_its_merge_and_the_next_run_continues():
    url = f"memory:merging-{next(_fresh)}"
    for n in range(1, 6):
        with MemoryRun(make_job("job", url)) as run:
            run.run.merging.submit = Later()
            run.run.merging.due = partial(merge_due, fan=2, floor_bytes=0)
            run.batch({"in": [{"user": "a", "n": n}]})
            run.batch({"in": [{"user": "a", "n": n}]})
    assert held(url, "job") == {"a": 30}


def test_runs_are_merged_in_a_separate_thread():
    url = f"memory:merging-{next(_fresh)}"
    with MemoryRun(make_job("job", url)) as run:
        merging = run.run.merging
        merging.submit = merging._submit
        merging.due = partial(merge_due, fan=4, floor_bytes=1 << 20)
        for _ in range(4):
            run.batch({"in": [{"user": "a", "n": 1}]})
        with contextlib.suppress(AttributeError):
            merging._future.result()
        run.batch({"in": [{"user": "a", "n": 1}]})
        [parts] = run.run.head.shards.values()
        assert [(part.first, part.sequence) for part in parts.deltas] == [(2, 5), (0, 6)]


def test_a_damaged_page_of_a_kept_checkpoint_stops_collection_only(caplog):
    url = f"memory:damaged-{next(_fresh)}"
    with MemoryRun(make_job("job", url, keep=3)) as run:
        checkpoints = run.run.checkpoints
        checkpoints._inline_bytes = 0
        run.batch({"in": [{"user": "a", "n": 1}]})
        (page,) = run.run.head.pages()
        run.batch({"in": [{"user": "a", "n": 1}]})
        checkpoints.folder.write(page.name, b"damaged")
        PageReader._held.clear()
        run.batch({"in": [{"user": "a", "n": 1}]})
        assert "no files are collected" in caplog.text
    assert held(url, "job") == {"a": 3}


class Clock:
    """The time as the merges of a run see it."""

    def __init__(self) -> None:
        self.passed = 0.0

    def monotonic(self) -> float:
        return time.monotonic() + self.passed

    def time_ns(self) -> int:
        return time.time_ns() + int(self.passed * 1e9)


def with_a_merge_under_way(run: MemoryRun) -> Later:
    """Run two batches, whose changes are then to be merged; return who does it when a test says so."""
    later = run.run.merging.submit = Later()
    run.run.merging.due = partial(merge_due, fan=2, floor_bytes=1 << 20)
    for n in range(1, 3):
        run.batch({"in": [{"user": "a", "n": n}]})
    return later


@pytest.mark.parametrize(("pauses", "adopted"), [((1200,) * 5, True), ((1200, 2400), False)])
def test_a_merge_of_hours_is_adopted_if_commits_kept_its_files(monkeypatch, pauses, adopted):
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    url = f"memory:merging-{next(_fresh)}"
    with MemoryRun(make_job("job", url, keep=1)) as run:
        later = with_a_merge_under_way(run)
        results = later.work()
        for pause in pauses:
            run.batch({"in": [{"user": "a", "n": 1}]})
            clock.passed += pause
        later.future.set_result(results)
        run.batch({"in": [{"user": "a", "n": 1}]})
        merged = {part.file.name for result in results.values() for part in result.parts}
        assert bool(merged & run.run.head.needed_names()) == adopted
    assert held(url, "job") == {"a": 4 + len(pauses)}


def test_a_batch_that_waits_for_a_merge_keeps_its_files_meanwhile(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    url = f"memory:merging-{next(_fresh)}"
    with MemoryRun(make_job("job", url, keep=1)) as run:
        run.run.merging.limits = MergeLimits(most_runs=2)
        later = with_a_merge_under_way(run)
        left = []

        def waited(futures, seconds: float):
            clock.passed += seconds
            (pin,) = run.run.checkpoints.pins.all()
            left.append(pin.expires_at > clock.time_ns())
            if len(left) == 10:
                later.finish()
            return wait(futures, 0)

        monkeypatch.setattr(module, "wait", waited)
        run.batch({"in": [{"user": "a", "n": 1}]})
        assert left == [True] * 10
        run.batch({"in": [{"user": "a", "n": 1}]})
        assert any(name.endswith(".run") for name in run.run.head.needed_names())
    assert held(url, "job") == {"a": 5}


def test_large_merges_are_spread_over_several_commits():
    url = f"memory:spread-{next(_fresh)}"
    run = MemoryRun(make_job("spread", url, n_shards=8))
    run.run.merging.spread = True
    run.run.merging.limits = MergeLimits(at_once_bytes=1)
    run.run.merging.due = partial(merge_due, fan=4, floor_bytes=FAR)
    users = [f"user-{number}" for number in range(60)]
    merged, done = run.run.merging.merge, []
    run.run.merging.merge = lambda work: done.append(sorted(work.shards)) or merged(work)
    for _ in range(4):
        run.batch({"in": [{"user": user, "n": 1} for user in users]})
    assert [len(shards) < 8 for shards in done] == [True]
    for _ in range(8):
        run.batch({"in": [{"user": users[0], "n": 1}]})
    # Each shard was merged, whether or not it changed since.
    assert set(itertools.chain(*done)) == set(range(8))
    run.close()
    assert held(url, "spread") == {user: 4 + 8 * (user == users[0]) for user in users}
