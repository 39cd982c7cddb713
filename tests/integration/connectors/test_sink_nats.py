"""nats: a commit's messages are in the stream once, whoever sends them, however often and however late."""

from __future__ import annotations

import asyncio
import json
import uuid

import pyarrow as pa
import pytest

from servers.nats_server import Nats, nats, running_nats  # noqa: F401
from tidewheel import codecs, sinks
from tidewheel._connectors.nats import publishing as nats_publishing
from tidewheel._core import faults
from tidewheel.errors import ConfigError, ConnectorError, ConnectorUnavailable, FencedError, StateError, StepError
from tidewheel.testing.connectors import DrivenSink, SinkConformance, SinkHarness

USER = "ada:vErY-sEcReT"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    """A server with a password, which tests of this file may kill."""
    with running_nats(tmp_path_factory.mktemp("nats"), user=USER) as server:
        yield server


class Stream(SinkHarness):
    secrets = (USER.partition(":")[2],)

    def __init__(self, server: Nats, atomic: bool = True, **settings) -> None:
        self.server, self.name = server, f"s-{uuid.uuid4().hex}"
        self.settings = {"atomic": atomic, "timeout": "4 s", "patience": "0.2 s", **settings}
        server.make_stream(self.name, allow_atomic=atomic)

    def sink(self):
        where = f"{self.name}.out.{{id}}"
        return sinks.nats(self.server.server, where, **self.settings)

    def contents(self):
        return [json.loads(data) for _, data in self.server.messages(self.name, f"{self.name}.out.>")]

    def stop_server(self):
        self.server.kill()

    def start_server(self):
        self.server.start()


class TestInAtomicBatches(SinkConformance):
    @pytest.fixture
    def harness(self, guarded):
        return Stream(guarded)


class TestByIds(SinkConformance):
    @pytest.fixture
    def harness(self, guarded):
        return Stream(guarded, atomic=False)


@pytest.fixture
def stream(nats):  # noqa: F811
    return Stream(nats)


def numbers(stream):
    return [row["id"] for row in stream.contents()]


def test_messages_keep_their_order_and_their_subject(stream):
    sink = DrivenSink(stream)
    sink.publish(sink.stage(2, stream.rows([3, 1]), stream.rows([2])))
    assert stream.server.messages(stream.name, f"{stream.name}.out.>") == [
        (f"{stream.name}.out.{number}", b'{"id":%d,"name":"name-%d"}' % (number, number)) for number in (3, 1, 2)
    ]


def test_a_column_may_be_the_data(stream):
    stream.settings["codec"] = codecs.raw("name")
    sink = DrivenSink(stream)
    sink.publish(sink.stage(2, stream.rows([1])))
    assert stream.server.messages(stream.name, f"{stream.name}.out.*") == [(f"{stream.name}.out.1", b"name-1")]


def test_an_interrupted_commit_continues_after_its_marker(stream, monkeypatch):
    monkeypatch.setattr(nats_publishing, "_BATCH", 4)
    died = DrivenSink(stream)
    publication = died.stage(2, stream.rows(range(7)), stream.rows(range(7, 11)))
    faults.arm("nats.stored=raise@2")
    with pytest.raises(faults.InjectedFault):
        died.publish(publication)
    faults.arm("")
    assert numbers(stream) == list(range(8))
    DrivenSink(stream, store=died.store).publish(publication)
    assert numbers(stream) == list(range(11))


def test_a_run_that_was_paused_in_a_commit_is_refused_by_the_server(stream, monkeypatch):
    """It has looked at the marker, and sends when another run has gone on long since."""
    monkeypatch.setattr(nats_publishing, "_BATCH", 4)
    stream.settings["timeout"] = "30 s"
    paused = DrivenSink(stream)
    publication = paused.stage(2, stream.rows(range(10)))
    other = DrivenSink(stream, store=paused.store)
    store, hits = nats_publishing._stored, []

    async def after_the_other(target, batch, marker, expected):
        if not hits:
            hits.append(expected)
            monkeypatch.setattr(nats_publishing, "_stored", store)
            await asyncio.to_thread(other.publish, publication)
            await asyncio.to_thread(other.publish, other.stage(3, stream.rows([10])))
        return await store(target, batch, marker, expected)

    monkeypatch.setattr(nats_publishing, "_stored", after_the_other)
    paused.publish(publication)
    assert hits == [0]
    assert numbers(stream) == list(range(11))


def test_of_ended_runs_one_marker_remains(stream):
    for run in (1, 2, 3):
        sink = DrivenSink(stream, job=f"orders/{run}")
        sink.publish(sink.stage(2, stream.rows([run])))
    late = DrivenSink(stream, job="orders/2")
    sink.sink.forget("orders", "out", [1, 2])
    sink.sink.forget("orders", "out", [1])
    markers = [subject for subject, _ in stream.server.messages(stream.name, f"{stream.name}.tidewheel.>")]
    assert [marker.rpartition(".")[2] for marker in markers] == ["orders=2F3~out", "orders=2Fover~out"]
    with pytest.raises(FencedError, match="up to number 2 are finished"):
        late.publish(late.stage(3, stream.rows([4])))
    assert numbers(stream) == [1, 2, 3]


@pytest.fixture
def runs(stream):
    """Make runs that keep their connection from one publication to the next, as a driver's sinks do, until the test ends."""
    made = []

    def run(store=""):
        made.append(DrivenSink(stream, store=store))
        return made[-1]

    yield run
    for each in made:
        each.sink.stop(each.job)
        assert not each.sink._kept


def test_a_run_connects_once_and_looks_for_the_marker_once(stream, runs, monkeypatch):
    run = runs()
    run.sink.publish(run.stage(2, stream.rows([2])))
    monkeypatch.setattr(nats_publishing, "_looked_up", None)
    monkeypatch.setattr(run.sink, "_connected", None)
    for publication in [run.stage(sequence, stream.rows([sequence])) for sequence in (3, 4)]:
        run.sink.publish(publication)
        run.sink.publish(publication)
    assert numbers(stream) == [2, 3, 4]


def test_a_run_that_was_overtaken_between_two_publications_looks_again(stream, runs):
    run = runs()
    run.sink.publish(run.stage(2, stream.rows([2])))
    other = runs(run.store)
    third = other.stage(3, stream.rows([3]))
    other.sink.publish(third)
    run.sink.publish(third)
    run.sink.publish(run.stage(4, stream.rows([4])))
    assert numbers(stream) == [2, 3, 4]


def test_a_server_that_returns_between_publications_gets_the_second_once(guarded):
    stream = Stream(guarded, patience="30 s")
    run = DrivenSink(stream)
    try:
        run.sink.publish(run.stage(2, stream.rows([2])))
        guarded.kill()
        guarded.start()
        run.sink.publish(run.stage(3, stream.rows([3])))
    finally:
        run.sink.stop(run.job)
    assert numbers(stream) == [2, 3]


def test_output_of_another_life_of_the_job_is_refused(stream):
    first = DrivenSink(stream)
    for sequence in (2, 3):
        first.publish(first.stage(sequence, stream.rows([sequence])))
    anew = DrivenSink(stream)
    with pytest.raises(StateError, match="sequence 2 of job 'orders' differs from what was published"):
        anew.publish(anew.stage(2, stream.rows([7])))
    assert numbers(stream) == [2, 3]


def test_a_complete_commit_is_known_beyond_the_window_without_atomic_batches(nats):  # noqa: F811
    stream = Stream(nats, atomic=False)
    stream.name = f"w-{uuid.uuid4().hex}"
    nats.make_stream(stream.name, duplicate_window=0.1)
    sink = DrivenSink(stream)
    publication = sink.stage(2, stream.rows(range(3)))
    for _ in range(3):
        DrivenSink(stream, store=sink.store).publish(publication)
    assert numbers(stream) == [0, 1, 2]


def test_missing_features_of_the_server_are_reported_before_the_start(nats, guarded):  # noqa: F811
    name = f"s-{uuid.uuid4().hex}"
    with pytest.raises(ConfigError, match=f"no stream that takes the subject {name}.out"):
        sinks.nats(nats.server, f"{name}.out").start("j")
    with pytest.raises(ConfigError, match=f"no stream '{name}'"):
        sinks.nats(nats.server, "out", stream=name).start("j")
    nats.make_stream(name, f"{name}.out")
    with pytest.raises(
        ConfigError, match=rf"takes {name}.out, and the sink sends.*add {name}.tidewheel.> to its subjects"
    ):
        sinks.nats(nats.server, f"{name}.out").start("j")
    with pytest.raises(ConfigError, match=r"takes .* add elsewhere to its subjects"):
        sinks.nats(nats.server, "elsewhere", stream=name).start("j")
    other = f"s-{uuid.uuid4().hex}"
    nats.make_stream(other)
    with pytest.raises(ConfigError, match=r"does not allow atomic batches.*atomic=False"):
        sinks.nats(nats.server, f"{other}.out").start("j")
    with pytest.raises(ConnectorError, match="refuses the user"):
        sinks.nats(guarded.server.replace("sEcReT", "wrong"), "a").start("j")
    with pytest.raises(ConnectorUnavailable, match="does not answer"):
        sinks.nats("nats://127.0.0.1:1", "a", timeout="0.1 s").start("j")


def test_records_that_cannot_be_messages_are_reported(stream):
    sink = DrivenSink(stream)
    with pytest.raises(StepError, match=r"sink 'out': the value 'a b' of id cannot be used in"):
        sink.stage(2, pa.RecordBatch.from_pydict({"id": ["a b"]}))
    with pytest.raises(StepError, match=r"names the column id; the records have x"):
        sink.stage(2, pa.RecordBatch.from_pydict({"x": [1]}))
    stream.settings["codec"] = codecs.raw("name")
    with pytest.raises(StepError, match=r"sink 'out': the codec raw sends bytes or text.*int64"):
        DrivenSink(stream).stage(2, pa.RecordBatch.from_pydict({"id": [1], "name": [1]}))
    with pytest.raises(StepError, match="a record has no data to send"):
        DrivenSink(stream).stage(2, pa.RecordBatch.from_pydict({"id": [1], "name": pa.array([None], pa.string())}))
    large = DrivenSink(stream)
    with pytest.raises(StepError, match="has 2,000,000 bytes; the server accepts"):
        large.stage(2, pa.RecordBatch.from_pydict({"id": [1], "name": ["x" * 2_000_000]}))


def test_a_subject_that_cannot_be_one():
    for wrong in ("", "a b", "a.{", "a.{}"):
        with pytest.raises(ConfigError, match="is not a valid subject"):
            sinks.nats("nats://localhost", wrong)


def test_batches_are_cut_by_number_and_by_size(monkeypatch):
    monkeypatch.setattr(nats_publishing, "_BATCH", 3)
    monkeypatch.setattr(nats_publishing, "_BATCH_BYTES", 10)
    data = [b"1", b"2", b"3", b"4", b"x" * 9, b"y" * 20, b"z"]
    cut = list(nats_publishing.batches(("s", each) for each in data))
    assert [[len(each) for _, each in batch] for batch in cut] == [[1, 1, 1], [1, 9], [20], [1]]
