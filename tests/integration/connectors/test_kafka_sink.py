"""The Kafka sink in the conformance suite, on a real broker, and its own options."""

from __future__ import annotations

import json
import secrets
from dataclasses import replace

import pyarrow as pa
import pytest

from servers.kafka_server import Kafka
from tidewheel import Job, codecs, sinks, sources
from tidewheel._connectors.kafka.markers import newest_marker
from tidewheel._connectors.kafka.transactions import SENT
from tidewheel._core import faults
from tidewheel._storage import open_store
from tidewheel.connectors import Staging
from tidewheel.errors import ConfigError, FencedError, StateError, StepError, TidewheelError
from tidewheel.testing import MemoryRun
from tidewheel.testing.connectors import DrivenSink, SinkConformance, SinkHarness

PASSWORD = "hunter2-and-more"


class Topic(SinkHarness):
    """A topic of its own, and markers of its own."""

    secrets = (PASSWORD,)

    def __init__(
        self,
        server: Kafka,
        partitions: int = 2,
        timeout: str = "20 s",
        options: dict[str, object] | None = None,
        **settings,
    ) -> None:
        self.server, self.timeout, self.settings = server, timeout, settings
        # The broker asks nobody for a password, unless a test says so; what the client holds must not be shown all the same.
        self.options = {"sasl.password": PASSWORD, **(options or {})}
        # Where a broker shows aborted records, what a crash inside of a transaction left is seen twice.
        self.points_not_shown = (SENT,) if server.shows_aborted else ()
        self.name = f"sink-{secrets.token_hex(4)}"
        server.create(self.name, partitions)

    def sink(self):
        return sinks.kafka(
            self.server.brokers,
            self.name,
            key="id",
            marker_topic=f"{self.name}-markers",
            timeout=self.timeout,
            options=self.options,
            **self.settings,
        )

    def messages(self) -> list[dict]:
        reader = sources.kafka(self.server.brokers, self.name, options=self.options).reader()
        start = reader.start()
        end = reader.end(start)
        found = [
            row for partition in reader.splits(start, end, 4) for batch in partition.read() for row in batch.to_pylist()
        ]
        reader.close()
        return found

    def contents(self):
        return [json.loads(message["value"]) for message in self.messages()]


class MortalTopic(Topic):
    """On a broker that can be killed."""

    def stop_server(self):
        self.server.kill()

    def start_server(self):
        self.server.start()


class TestKafkaSink(SinkConformance):
    @pytest.fixture
    def harness(self, kafka):
        return Topic(kafka)


class TestKafkaSinkAtLeastOnce(SinkConformance):
    @pytest.fixture
    def harness(self, kafka):
        return Topic(kafka, exactly_once=False)


def test_a_broker_that_was_killed_costs_nothing_but_time(durable_kafka):
    topic = MortalTopic(durable_kafka, 1, timeout="8 s")
    SinkConformance().test_a_server_that_was_gone_costs_nothing_but_time(topic)


@pytest.mark.slow
def test_a_broker_that_was_killed_costs_nothing_but_time_and_repeats(durable_kafka):
    topic = MortalTopic(durable_kafka, 1, timeout="8 s", exactly_once=False)
    SinkConformance().test_a_server_that_was_gone_costs_nothing_but_time(topic)


def test_of_ended_runs_one_marker_remains(kafka):
    topic = Topic(kafka, 1)
    for run in (1, 2, 3):
        sink = DrivenSink(topic, job=f"orders/{run}")
        sink.publish(sink.stage(2, topic.rows([run])))
    late = DrivenSink(topic, job="orders/2")
    sink.sink.forget("orders", "out", [1, 2])
    sink.sink.forget("orders", "out", [1])
    found = {name: newest_marker(sink.sink.target, f"orders/{name}/out").sequence for name in (1, 2, 3, "over")}
    assert found == {1: 0, 2: 0, 3: 2, "over": 2}
    with pytest.raises(FencedError, match="up to number 2 are finished"):
        late.publish(late.stage(3, topic.rows([4])))
    assert sorted(row["id"] for row in topic.contents()) == [1, 2, 3]


def test_keys_decide_the_partition_and_keep_their_order(kafka):
    topic = Topic(kafka)
    sink = DrivenSink(topic)
    rows = pa.RecordBatch.from_pydict({"id": [n % 5 for n in range(50)], "name": [str(n) for n in range(50)]})
    sink.publish(sink.stage(2, rows))
    where: dict[bytes, set[int]] = {}
    order: dict[bytes, list[int]] = {}
    for message in topic.messages():
        where.setdefault(message["key"], set()).add(message["partition"])
        order.setdefault(message["key"], []).append(int(json.loads(message["value"])["name"]))
    assert where.keys() == {b"0", b"1", b"2", b"3", b"4"}
    assert all(len(partitions) == 1 for partitions in where.values())
    assert all(numbers == sorted(numbers) for numbers in order.values())


@pytest.mark.parametrize(
    ("key", "settings", "keys"),
    [
        ("user", {}, [b"ada", b"bob"]),
        (lambda row: row.n, {}, [b"1", b"2"]),
        (lambda row: (row.user, row.n), {}, [b'["ada",1]', b'["bob",2]']),
        ("user", {"key": "n"}, [b"1", b"2"]),
        ("user", {"key": False}, [None, None]),
        (None, {}, [None, None]),
    ],
)
def test_the_stream_key_is_the_message_key_unless_the_sink_overrides_it(kafka, key, settings, keys):
    topic = Topic(kafka, 1)
    job = Job("keyed", state=f"memory:{topic.name}", n_shards=2)
    stream = job.source("in", sources.iterable([{"user": "", "n": 0}]))
    keyed = stream if key is None else stream.key_by("by", key)
    keyed.sink("out", sinks.kafka(kafka.brokers, topic.name, marker_topic=f"{topic.name}-markers", **settings))
    with MemoryRun(job, parallelism=1) as run:
        run.batch({"in": [{"user": "ada", "n": 1}, {"user": "bob", "n": 2}]})
    assert [message["key"] for message in topic.messages()] == keys


def test_a_crash_inside_of_a_transaction_leaves_no_marker(kafka):
    topic = Topic(kafka)
    sink = DrivenSink(topic)
    publication = sink.stage(2, topic.rows([1]))
    faults.arm(f"{SENT}=raise")
    try:
        with pytest.raises(faults.InjectedFault):
            sink.publish(publication)
    finally:
        faults.arm("")
    assert newest_marker(sink.sink.target, "orders/out").sequence == 0
    DrivenSink(topic, store=sink.store).publish(publication)
    assert newest_marker(sink.sink.target, "orders/out").has(publication)


def test_the_marker_is_found_behind_many_of_others(kafka, monkeypatch):
    monkeypatch.setattr("tidewheel._connectors.kafka.markers._TAIL", 2)
    topic = Topic(kafka)
    first = DrivenSink(topic)
    publication = first.stage(2, topic.rows([1]))
    first.publish(publication)
    other = DrivenSink(topic, name="busy")
    for sequence in range(2, 12):
        other.publish(other.stage(sequence, topic.rows([sequence])))
    assert newest_marker(first.sink.target, "orders/out").has(publication)
    assert newest_marker(first.sink.target, "orders/none").sequence == 0


def test_a_job_that_starts_over_is_refused(kafka):
    topic = Topic(kafka)
    sink = DrivenSink(topic)
    sink.publish(sink.stage(2, topic.rows([1])))
    anew = DrivenSink(topic)
    with pytest.raises(StateError, match="published with another state than this one"):
        anew.publish(anew.stage(2, topic.rows([2])))


def test_runs_of_a_fleet_leave_no_producers_behind(kafka, monkeypatch):
    monkeypatch.setattr("tidewheel._connectors.kafka.sink._PRODUCERS", 2)
    topic = Topic(kafka)
    sink = DrivenSink(topic)
    publications = [replace(sink.stage(2, topic.rows([number])), job=f"run-{number}") for number in range(4)]
    for publication in [*publications, *publications]:
        sink.publish(publication)
        assert len(sink.sink._sending) <= 2
    assert sorted(row["id"] for row in topic.contents()) == [0, 1, 2, 3]


def test_a_run_that_is_over_leaves_no_connection_open(kafka):
    topic = Topic(kafka)
    sink = DrivenSink(topic)
    sink.publish(sink.stage(2, topic.rows([1])))
    (sending,) = sink.sink._sending.values()
    sink.sink.stop("another")
    assert sending._producer is not None
    sink.sink.stop(sink.job)
    assert sending._producer is None
    assert sending._topic is None
    assert not sink.sink._sending
    sink.publish(sink.stage(3, topic.rows([2])))
    assert sorted(row["id"] for row in topic.contents()) == [1, 2]


def staged(sink, rows: list[dict]) -> None:
    staging = Staging(open_store("memory:kafka-sink"), "orders", "out", 2, "run-0-0")
    sink.open(staging).write(pa.RecordBatch.from_pylist(rows))


def test_records_that_cannot_be_sent_are_refused_in_the_task():
    with pytest.raises(StepError, match="sink 'out': there is no column 'user' to be the key; there are id"):
        staged(sinks.kafka("h:1", "t", key="user"), [{"id": 1}])
    with pytest.raises(StepError, match="a key is bytes, text or a number"):
        staged(sinks.kafka("h:1", "t", key="id"), [{"id": [1]}])
    with pytest.raises(StepError, match="sink 'out': the codec raw sends the column 'value'"):
        staged(sinks.kafka("h:1", "t", codec=codecs.raw()), [{"id": 1}])


def test_settings_that_cannot_work_are_refused(kafka):
    with pytest.raises(ConfigError, match="a topic that is not its marker topic"):
        sinks.kafka("h:1", "tidewheel-markers")
    with pytest.raises(ConfigError, match="is not a codec of payloads"):
        sinks.kafka("h:1", "t", codec="json")
    with pytest.raises(ConfigError, match="there is no topic 'nope'"):
        sinks.kafka(kafka.brokers, "nope").start("orders")
    with pytest.raises(TidewheelError, match=r"at the Kafka brokers 127\.0\.0\.1:1: "):
        sinks.kafka("127.0.0.1:1", "t", timeout="0.5 s").start("orders")
    topic = Topic(kafka)
    kafka.create(f"{topic.name}-wide", 2)
    with pytest.raises(ConfigError, match="must have one partition, and has 2"):
        sinks.kafka(kafka.brokers, topic.name, marker_topic=f"{topic.name}-wide").start("orders")
