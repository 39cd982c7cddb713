"""Transactions of Apache Kafka: what the source sees of them, and what happens to a producer that is late."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from confluent_kafka import IsolationLevel, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from integration.connectors import test_kafka_sink, test_kafka_source
from servers.kafka_server import real_kafka  # noqa: F401
from support.waiting import eventually
from tidewheel import sinks
from tidewheel._connectors.kafka import sink_topics, transactions
from tidewheel.errors import ConfigError, ConnectorUnavailable
from tidewheel.testing.connectors import DrivenSink, DrivenSource

TIMEOUT = "transaction.timeout.ms"

Topic = test_kafka_source.Topic | test_kafka_sink.Topic


class ReadTopic(test_kafka_source.Topic):
    """One partition, and a source that soon knows when nothing comes."""

    def __init__(self, server) -> None:
        super().__init__(server, 1)

    def source(self, *, max_records=None):
        return super().source(max_records=max_records, timeout="6 s")


@pytest.fixture
def topic(real_kafka) -> ReadTopic:  # noqa: F811
    return ReadTopic(real_kafka)


@pytest.fixture
def place(real_kafka) -> test_kafka_sink.Topic:  # noqa: F811
    return test_kafka_sink.Topic(real_kafka, 1)


def in_transaction(
    topic: test_kafka_source.Topic | SimpleNamespace, payloads: list[bytes], **options: object
) -> Producer:
    """Return a producer whose transaction has sent the payloads, and is open."""
    name = {"bootstrap.servers": topic.server.brokers, "transactional.id": secrets.token_hex(4)}
    producer = Producer({**name, **options})
    producer.init_transactions(30)
    producer.begin_transaction()
    for payload in payloads:
        producer.produce(topic.name, payload, payload, 0)
    assert producer.flush(30) == 0
    return producer


def everything(topic: ReadTopic, **settings: object) -> list[bytes]:
    """Return all that a job of several batches reads."""
    source = DrivenSource(topic, **settings)
    return [payload for _, batch in source.batches(source.start()) for payload in batch]


@pytest.mark.parametrize("max_records", [None, 1, 3])
def test_aborted_transactions_are_never_read(topic, max_records):
    topic.append([b"1"])
    in_transaction(topic, [b"no", b"never"]).abort_transaction(30)
    in_transaction(topic, [b"2", b"3"]).commit_transaction(30)
    in_transaction(topic, [b"nor this"]).abort_transaction(30)
    wait_for_end(topic, 9)
    assert everything(topic, max_records=max_records) == [b"1", b"2", b"3"]
    topic.append([b"4"])
    assert everything(topic, max_records=max_records) == [b"1", b"2", b"3", b"4"]


def test_undecided_transactions_are_awaited_and_earlier_records_are_read(topic):
    topic.append([b"1"])
    opened = in_transaction(topic, [b"2"])
    topic.append([b"3"])
    source = DrivenSource(topic)
    start = source.start()
    end = source.end(start)
    assert source.read(start, end) == [b"1"]
    assert source.end(end) == end
    opened.commit_transaction(30)
    wait_for_end(topic, 4)
    assert source.read(end, source.end(end)) == [b"2", b"3"]


def test_a_dead_producer_delays_readers_until_its_transaction_times_out(topic):
    topic.append([b"1"])
    died = in_transaction(topic, [b"never"], **{TIMEOUT: 2000})
    topic.append([b"2"])
    wait_for_end(topic, 4)
    assert everything(topic) == [b"1", b"2"]
    with pytest.raises(KafkaException):
        died.commit_transaction(30)
    assert everything(topic) == [b"1", b"2"]


def when_sent(monkeypatch, action: Callable[[], None]) -> None:
    """Let something happen once, when a sink has sent its records and not yet its marker."""
    waiting = [action]
    plain = transactions.faults.point

    def point(name: str) -> None:
        plain(name)
        if name == transactions.SENT and waiting:
            waiting.pop()()

    monkeypatch.setattr(transactions.faults, "point", point)


def test_a_zombie_can_neither_send_nor_commit(place, monkeypatch):
    zombie = DrivenSink(place)
    publication = zombie.stage(2, place.rows([1, 2]))
    heir = DrivenSink(place, store=zombie.store)

    def overtake() -> None:
        wait_for_end(place, 2, IsolationLevel.READ_UNCOMMITTED)
        heir.publish(publication)

    when_sent(monkeypatch, overtake)
    zombie.publish(publication)
    assert ids(place) == [1, 2]
    heir.publish(heir.stage(3, place.rows([3])))
    assert ids(place) == [1, 2, 3]


def test_a_transaction_that_took_too_long_is_sent_again(real_kafka, monkeypatch):  # noqa: F811
    place = test_kafka_sink.Topic(real_kafka, 1, options={TIMEOUT: 2000})
    sink = DrivenSink(place)
    publication = sink.stage(2, place.rows([1, 2]))
    when_sent(monkeypatch, lambda: wait_for_end(place, 3))
    sink.publish(publication)
    sink.publish(sink.stage(3, place.rows([3])))
    assert ids(place) == [1, 2, 3]


def test_a_transaction_that_takes_too_long_every_time_is_not_called_fenced(real_kafka, monkeypatch):  # noqa: F811
    place = test_kafka_sink.Topic(real_kafka, 1, options={TIMEOUT: 2000})
    sink = DrivenSink(place)
    publication = sink.stage(2, place.rows([1, 2]))
    # Two records and the end of the transaction, and the same again.
    ends = iter([3, 6])
    plain = transactions.faults.point

    def point(name: str) -> None:
        plain(name)
        if name == transactions.SENT:
            wait_for_end(place, next(ends))

    with monkeypatch.context() as patched:
        patched.setattr(transactions.faults, "point", point)
        with pytest.raises(
            ConnectorUnavailable, match=r"lasted \S+ seconds, and .* end one after 2\. .*transaction\.timeout"
        ):
            sink.publish(publication)
    sink.publish(publication)
    assert ids(place) == [1, 2]


def test_a_marker_behind_the_open_transaction_of_another_job_is_found(place):
    sink = DrivenSink(place)
    sink.publish(sink.stage(2, place.rows([1])))
    markers = SimpleNamespace(server=place.server, name=f"{place.name}-markers")
    opened = in_transaction(markers, [b"another job's"], **{TIMEOUT: 2000})
    publication = sink.stage(3, place.rows([2]))
    sink.publish(publication)
    # Its producer died: the brokers end the transaction in their time.
    del opened
    DrivenSink(place, store=sink.store).publish(publication)
    assert ids(place) == [1, 2]


def test_a_marker_that_cannot_be_seen_in_time_stops_the_sink(real_kafka):  # noqa: F811
    place = test_kafka_sink.Topic(real_kafka, 1)
    sink = DrivenSink(place)
    publication = sink.stage(2, place.rows([1, 2]))
    sink.publish(publication)
    opened = in_transaction(SimpleNamespace(server=place.server, name=f"{place.name}-markers"), [b"another job's"])
    place.timeout = "3 s"
    impatient = DrivenSink(place, store=sink.store)
    with pytest.raises(ConnectorUnavailable, match="behind an open transaction of another producer"):
        impatient.publish(publication)
    opened.abort_transaction(30)
    place.timeout = "20 s"
    DrivenSink(place, store=sink.store).publish(publication)
    assert ids(place) == [1, 2]


@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
def test_a_marker_topic_that_lets_markers_go_is_refused(real_kafka, policy):  # noqa: F811
    place = test_kafka_sink.Topic(real_kafka, 1)
    real_kafka.create(f"{place.name}-markers", 1, {"cleanup.policy": policy})
    with pytest.raises(ConfigError, match=f"has cleanup.policy={policy}, .* set cleanup.policy=compact"):
        DrivenSink(place)


@pytest.mark.parametrize("config", [{"cleanup.policy": "compact"}, {"retention.ms": "-1"}])
def test_a_marker_topic_that_keeps_markers_is_taken(real_kafka, config):  # noqa: F811
    place = test_kafka_sink.Topic(real_kafka, 1)
    real_kafka.create(f"{place.name}-markers", 1, config)
    DrivenSink(place)


def ids(place: test_kafka_sink.Topic) -> list[int]:
    return sorted(row["id"] for row in place.contents())


def wait_for_end(topic: Topic, offset: int, level: IsolationLevel = IsolationLevel.READ_COMMITTED) -> None:
    """Wait until the first partition ends there for readers of that level. The end of a transaction takes an offset too."""
    admin = AdminClient({"bootstrap.servers": topic.server.brokers})
    first = TopicPartition(topic.name, 0)

    def end() -> int:
        return admin.list_offsets({first: OffsetSpec.latest()}, isolation_level=level)[first].result(30).offset

    eventually(lambda: end() == offset)


def test_the_largest_message_follows_the_setting_of_the_topic(real_kafka):  # noqa: F811
    name = f"small-{secrets.token_hex(4)}"
    real_kafka.create(name, 1, {"max.message.bytes": "5000"})
    assert 3000 < sink_topics.largest_message(sinks.kafka(real_kafka.brokers, name).target) < 5000
