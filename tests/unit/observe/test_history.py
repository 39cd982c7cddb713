"""History: written during the run, bounded, and readable by other processes."""

from __future__ import annotations

import logging
import threading
import time

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.internals import open_store
from tidewheel._observe import places
from tidewheel._observe.history import History
from tidewheel._observe.history_writer import HistoryWriter, surplus
from tidewheel._observe.records import (
    COMMITS,
    LAG,
    Behind,
    CommitRecord,
    ErrorRecord,
    LagRecord,
    RunRecord,
    StepRecord,
    Stored,
)
from tidewheel._observe.run_history import RunHistory
from tidewheel._storage import Entry
from tidewheel._storage.memory import MemoryStore
from tidewheel.checkpoints import CheckpointStore
from tidewheel.errors import CorruptError, StorageError


@pytest.fixture
def store(tmp_path):
    return open_store(f"file://{tmp_path}")


def commit(sequence: int, at: int | None = None, run: str = "r1", **figures) -> CommitRecord:
    return CommitRecord(sequence, sequence * 10**9 if at is None else at, run=run, **figures)


def written(store, records, job: str = "orders", run: str = "r1", **options) -> None:
    writer = HistoryWriter(store, job, run, clock=lambda: 0, **options)
    for record in records:
        writer.committed(record)
    writer.close()


def test_committed_figures_are_read_again_by_time(store):
    records = [commit(number, rows=number, phases={"tasks": 0.5}, rows_in={"in": number}) for number in range(1, 40)]
    written(store, records)
    assert History(store).records("orders") == records
    assert History(store).latest("orders") == records[-1]


def test_a_span_of_time_has_its_own_commits_alone(store):
    written(store, [commit(number) for number in range(1, 40)], chunk_commits=4)
    chosen = History(store).records("orders", since=6 * 10**9, until=19 * 10**9)
    assert [record.sequence for record in chosen] == list(range(6, 19))


def test_a_span_reads_only_the_objects_that_may_hold_it(store, monkeypatch):
    written(store, [commit(number) for number in range(1, 40)], chunk_commits=4)
    history, read = History(store), []
    monkeypatch.setattr(store.__class__, "read", lambda self, path: read.append(path) or COMMITS.encode([]))
    history.records("orders", since=6 * 10**9, until=9 * 10**9)
    assert len(read) == 1


def test_runs_of_several_nodes_are_together(store):
    written(store, [commit(1, 10, run="a", node="one"), commit(2, 30, run="a", node="one")], run="a")
    written(store, [commit(1, 20, run="b", node="two")], run="b")
    assert [(record.node, record.at) for record in History(store).records("orders")] == [
        ("one", 10),
        ("two", 20),
        ("one", 30),
    ]


def test_the_jobs_of_a_url_are_found_without_their_state(store):
    written(store, [commit(1)], job="orders")
    written(store, [commit(1)], job="eu/orders")
    store.write("orders/state/1", b"state")
    assert History(store).jobs() == ["eu/orders", "orders"]
    assert History(store).records("nobody") == []
    assert History(store).latest("nobody") is None


def test_history_is_no_stream_of_checkpoints(store):
    written(store, [commit(1)], job="chain")
    assert CheckpointStore(store).streams() == []


def test_an_object_is_closed_by_number_and_by_size(store):
    written(store, [commit(number) for number in range(1, 31)], job="many", chunk_commits=10)
    large = {f"a-name-{number:03}": number for number in range(100)}
    written(store, [commit(number, rows_in=large) for number in range(1, 6)], job="large", chunk_bytes=1000)
    assert len(store.list(f"{places.job_folder('many')}/commits")) == 3
    assert len(store.list(f"{places.job_folder('large')}/commits")) == 5


def test_the_oldest_records_are_removed_when_there_are_too_many(store):
    written(store, [commit(number) for number in range(1, 21)], keep_bytes=400, chunk_commits=2)
    kept = [record.sequence for record in History(store).records("orders")]
    assert kept == list(range(kept[0], 21))
    assert kept[0] > 1
    assert sum(entry.size for entry in store.list(places.job_folder("orders"))) <= 400


ENTRIES = st.lists(
    st.builds(
        lambda kind, at, number: Entry(places.object_name(kind, at, "r", number), 100, 0.0),
        st.sampled_from([places.COMMITS, places.RUNS, places.ERRORS]),
        st.integers(0, 50).map(lambda second: second * 10**9),
        st.integers(0, 10**6),
    ),
    max_size=30,
    unique_by=lambda entry: entry.path,
)


@given(ENTRIES, st.integers(1, 60), st.integers(100, 2000))
def test_retention_keeps_young_records_within_the_bound_and_the_newest(entries, seconds, size):
    now = 50 * 10**9
    gone = surplus(entries, now, seconds, size)
    kept = [entry for entry in entries if entry not in gone]
    for kind in (places.COMMITS, places.RUNS, places.ERRORS):
        times = {entry.path: places.parse(entry.path).at for entry in entries if entry.path.startswith(kind)}
        own = [entry for entry in kept if entry.path in times]
        assert bool(own) == bool(times)
        assert len(own) == 1 or all(now - times[entry.path] <= seconds * 10**9 for entry in own)
        assert sum(entry.size for entry in own) <= max(size, 100)
        assert not own or max(times.values()) == max(times[entry.path] for entry in own)


class Gone(MemoryStore):
    """A store that does not answer."""

    def write(self, path, data):
        raise StorageError("the server does not answer")

    def at(self, prefix):
        return self


def test_a_failing_store_is_logged_once_and_the_run_continues(caplog):
    with caplog.at_level(logging.WARNING):
        written(Gone("gone"), [commit(number) for number in range(1, 9)])
    assert [record.message for record in caplog.records].count(
        "history cannot be written, and the job continues without it: the server does not answer"
    ) == 1


def test_records_that_a_store_refused_are_written_when_it_answers(store, monkeypatch):
    tried, away, stored = threading.Event(), threading.Event(), threading.Event()
    away.set()
    write = type(store).write

    def when_it_answers(self, path, data):
        if away.is_set():
            tried.set()
            raise StorageError("the server does not answer")
        write(self, path, data)
        stored.set()

    monkeypatch.setattr(type(store), "write", when_it_answers)
    writer = HistoryWriter(store, "orders", "r1")
    waits = LagRecord(2 * 10**9, "r1", {"in": {"": Behind(7)}})
    writer.waited(waits)
    writer.committed(commit(1))
    tried.wait()
    away.clear()
    writer.failed(ErrorRecord(3 * 10**9, "r1", "no"))
    stored.wait()
    writer.close()
    assert History(store).latest("orders") == commit(1)
    assert History(store).lag("orders", "r1") == waits


def test_a_slow_store_does_not_delay_the_run():
    entered, go_on = threading.Event(), threading.Event()

    class Slow(MemoryStore):
        def write(self, path, data):
            entered.set()
            go_on.wait()

        def at(self, prefix):
            return self

    writer = HistoryWriter(Slow("slow"), "orders", "r1")
    writer.committed(commit(1))
    entered.wait()
    for number in range(2, 10_000):
        writer.committed(commit(number))  # More than may wait: the oldest are let go, and memory stays bounded.
    go_on.set()
    writer.close()


def test_errors_have_their_traceback_and_time_and_no_secret(store):
    run = RunHistory(store, "orders", "r1", keep_seconds=3600)
    try:
        raise ValueError("cannot reach nats://ada:s3cret@host:4222/orders, password=hunter2")
    except ValueError as error:
        run.failed(error, 7)
    run.close()
    (found,) = History(store).errors("orders")
    assert (found.kind, found.batch, found.restarted) == ("ValueError", 7, False)
    assert found.text == "cannot reach nats://host:4222/orders, password=***"
    assert "test_history.py" in found.traceback
    assert "s3cret" not in found.traceback
    assert "hunter2" not in found.traceback
    assert found.at > 10**18


def test_a_run_leaves_its_graph_and_its_end(store):
    run = RunHistory(store, "orders", "r1", node="one", keep_seconds=3600)
    graph = (StepRecord("in", "source", 0), StepRecord("out", "sink", 0, False, (("in", 0),)))
    run.started(graph, 64, "0.2.0")
    run.close()
    (found,) = History(store).runs("orders")
    assert (found.run, found.node, found.steps, found.n_shards) == ("r1", "one", graph, 64)
    assert found.ended is not None
    assert found.ended >= found.at


def test_a_run_that_failed_has_no_end(store):
    run = RunHistory(store, "orders", "r1", keep_seconds=3600)
    run.started((), 64, "0.2.0")
    run.failed(ValueError("no"))
    run.close()
    assert History(store).runs("orders")[0].ended is None


def test_the_sizes_of_shards_are_the_latest_reported_ones(store):
    first = {"total": {0: Stored(1, 10), 1: Stored(2, 20)}}
    written(store, [commit(1, shards=first), commit(2), commit(3, shards={"total": {1: Stored(5, 50)}})])
    assert History(store).sizes("orders") == {"total": {0: Stored(1, 10), 1: Stored(5, 50)}}


@given(st.binary(max_size=200))
@settings(max_examples=50)
def test_bytes_of_a_stranger_are_refused(data):
    with pytest.raises(CorruptError):
        COMMITS.decode(data)


@given(st.data())
@settings(max_examples=60)
def test_a_damaged_object_is_passed_over_and_the_others_are_read(data):
    store = MemoryStore(f"damaged-{id(data)}")
    written(store, [commit(1, rows_in={"in": 1})], run="good")
    written(store, [commit(number, rows_in={"in": number}) for number in range(2, 6)], run="bad")
    (path,) = [entry.path for entry in store.list(places.ROOT) if "-bad-" in entry.path]
    whole = bytearray(store.read(path))
    place = data.draw(st.integers(0, len(whole) - 1))
    cut = data.draw(st.booleans())
    if cut:
        del whole[place:]
    else:
        whole[place] ^= data.draw(st.integers(1, 255))
    store.write(path, bytes(whole))
    history = History(store)
    found = history.records("orders")
    assert found[0].sequence == 1
    assert path in history.damaged or len(found) == 5


def test_a_record_of_another_version_is_read_or_passed_over():
    newer = msgspec.msgpack.decode(msgspec.msgpack.encode(commit(7, rows=3)))
    raw = [[*newer, "a field that is yet to come"], ["no", "record"], [8, 9]]
    data = COMMITS.encode(raw)
    assert [(record.sequence, record.rows) for record in COMMITS.decode(data)] == [(7, 3), (8, 0)]


def test_objects_with_other_names_are_none_of_ours(store):
    written(store, [commit(1)])
    store.write(f"{places.job_folder('orders')}/commits/notes.txt", b"mine")
    assert len(History(store).records("orders")) == 1


def test_an_error_record_is_small():
    assert len(msgspec.msgpack.encode(ErrorRecord(1, "r1", "no"))) < 50
    assert len(msgspec.msgpack.encode(RunRecord("r1", 1))) < 50


def test_the_sizes_of_all_shards_at_the_end_of_a_run_are_noted(store):
    history = RunHistory(store, "clicks", "run1", keep_seconds=60)
    now = time.time_ns()
    history.committed(CommitRecord(2, now - 1, run="run1", shards={"total": {0: Stored(5, 50)}}))
    history.committed(CommitRecord(3, now, run="run1", rows=7))
    history.close({"total": {0: Stored(6, 60)}})
    assert History(store).sizes("clicks") == {"total": {0: Stored(6, 60)}}
    assert [record.rows for record in History(store).records("clicks")] == [0, 7]


class Counted(MemoryStore):
    """A store that counts what it is asked for, and does not give what it must not."""

    def __init__(self, name):
        super().__init__(name)
        self.asked: list[str] = []
        self.refused: set[str] = set()

    def list(self, prefix=""):
        self.asked.append(f"LIST {prefix}")
        return super().list(prefix)

    def read(self, path):
        self.asked.append(f"GET {path}")
        if path.split("/")[2] in self.refused:
            raise StorageError("the server does not answer")
        return super().read(path)


def test_looking_again_takes_one_listing_and_reads_only_changes():
    now = 0.0
    store = Counted("history-counted")
    history = History(store, listed_for=0.5, clock=lambda: now)
    waits = [LagRecord(number * 10**9, "r1", {"in": {"": Behind(number)}}) for number in (7, 8)]
    store.write(f"{places.job_folder('orders')}/{places.LAG}", LAG.encode(waits[:1]))
    store.write(
        f"{places.job_folder('orders')}/{places.object_name(places.COMMITS, 10, 'r1')}", COMMITS.encode([commit(1)])
    )

    def look() -> list[str]:
        nonlocal now
        now += 1
        store.asked.clear()
        history.records("orders")
        history.lag("orders", "r1")
        history.standing_error("orders", None)
        return list(store.asked)

    assert len(look()) == 3
    assert look() == [f"LIST {places.job_folder('orders')}"]
    assert history.lag("orders", "r1") == waits[0]
    store.write(f"{places.job_folder('orders')}/{places.LAG}", LAG.encode(waits))
    assert look() == [f"LIST {places.job_folder('orders')}", f"GET {places.job_folder('orders')}/{places.LAG}"]
    assert history.lag("orders", "r1") == waits[1]


@pytest.mark.parametrize("kind", [places.LAG, places.COMMITS])
def test_objects_that_cannot_be_read_now_are_not_damaged_and_are_read_again(kind):
    store = Counted(f"history-refused-{kind}")
    waits = LagRecord(7 * 10**9, "r1", {"in": {"": Behind(7)}})
    store.write(f"{places.job_folder('orders')}/{places.LAG}", LAG.encode([waits]))
    store.write(
        f"{places.job_folder('orders')}/{places.object_name(places.COMMITS, 10, 'r1')}", COMMITS.encode([commit(1)])
    )
    history = History(store)
    store.refused.add(kind)
    history.lag("orders", "r1")
    assert ([*history.unreached.values()], history.damaged) == (["the server does not answer"], {})
    store.refused.clear()
    assert (history.lag("orders", "r1"), history.latest("orders")) == (waits, commit(1))
    assert history.unreached == {}
    store.refused.add(kind)
    for entry in store.list():
        store.write(entry.path, store.read(entry.path) if kind not in entry.path else b"changed")
    history.lag("orders", "r1")
    for entry in store.list():
        store.delete(entry.path)
    assert (history.lag("orders", "r1"), history.unreached) == (None, {})
