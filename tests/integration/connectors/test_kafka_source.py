"""The Kafka source in the conformance suite, on a real broker, and its own options."""

from __future__ import annotations

import datetime
import secrets

import pytest
from confluent_kafka import Producer

from servers.kafka_server import Kafka, running_kafka
from support.waiting import eventually
from tidewheel import sinks, sources
from tidewheel._connectors.kafka.topic_ids import is_id
from tidewheel.errors import ConfigError, ConnectorError, GraphError, TidewheelError
from tidewheel.testing.connectors import DrivenSource, SourceConformance, SourceHarness

PASSWORD = "hunter2-and-more"


class Topic(SourceHarness):
    """A topic of its own with three partitions."""

    secrets = (PASSWORD,)

    def __init__(self, server: Kafka, partitions: int = 3) -> None:
        self.server, self.name, self.partitions = server, f"topic-{secrets.token_hex(4)}", partitions
        server.create(self.name, partitions)

    def source(self, *, max_records=None, timeout="20 s", **more):
        # The broker asks nobody for a password; what the client holds must not be shown all the same.
        options = {"sasl.password": PASSWORD, **more.pop("options", {})}
        return sources.kafka(
            self.server.brokers, self.name, max_records=max_records, timeout=timeout, options=options, **more
        )

    def append(self, payloads):
        produce(self.server, self.name, [{"value": each} for each in payloads], self.partitions)


class MortalTopic(Topic):
    """On a broker that can be killed."""

    def source(self, *, max_records=None, **more):
        return super().source(max_records=max_records, timeout="6 s", **more)

    def stop_server(self):
        self.server.kill()

    def start_server(self):
        self.server.start()


def produce(server: Kafka, topic: str, records: list[dict], partitions: int = 1) -> None:
    producer = Producer({"bootstrap.servers": server.brokers})
    for number, record in enumerate(records):
        producer.produce(topic, partition=number % partitions, **record)
    assert producer.flush(30) == 0


class TestKafkaSource(SourceConformance):
    @pytest.fixture
    def harness(self, kafka):
        return Topic(kafka)


def test_a_broker_that_was_killed_costs_nothing_but_time(durable_kafka):
    SourceConformance().test_a_server_that_was_gone_costs_nothing_but_time(MortalTopic(durable_kafka, 1))


def offsets(source) -> dict[str, int]:
    return offsets_in(source.reader().start())


def offsets_in(positions: dict[str, int]) -> dict[str, int]:
    """Return the offsets among positions, without the ids of topics."""
    return {name: offset for name, offset in positions.items() if not is_id(name)}


def test_records_have_key_headers_timestamp_and_where_they_were(kafka):
    topic = Topic(kafka, 1)
    moment = datetime.datetime(2026, 1, 31, 12, 0, 0, 123000, datetime.UTC)
    record = {"value": b"v", "key": b"k", "headers": [("h", b"1")], "timestamp": int(moment.timestamp() * 1000)}
    produce(kafka, topic.name, [record, {"value": None}])
    reader = topic.source(headers=True).reader()
    (partition,) = reader.splits({}, reader.end({}), 4)
    rows = [row for batch in partition.read() for row in batch.to_pylist()]
    assert rows[0] == {
        "key": b"k",
        "value": b"v",
        "topic": topic.name,
        "partition": 0,
        "offset": 0,
        "timestamp": moment,
        "headers": [{"key": "h", "value": b"1"}],
    }
    assert (rows[1]["key"], rows[1]["value"], rows[1]["headers"], rows[1]["offset"]) == (None, None, None, 1)


def test_a_log_that_stays_open_gives_each_range_the_records_of_its_offsets(kafka):
    """Of a transaction's end an offset has no record: a range may end there, and its reader has read beyond it."""
    topic = Topic(kafka, 1)
    producer = Producer({"bootstrap.servers": kafka.brokers, "transactional.id": topic.name})
    producer.init_transactions(30)
    partition, log, at = f"{topic.name}/0", topic.source().reader().opener(), 0

    def read(first: int, last: int) -> list[int]:
        return [offset for batch in log.read(partition, first, last) for offset in batch.column("offset").to_pylist()]

    there: list[int] = []
    for size in (3, 1, 4):
        producer.begin_transaction()
        for _ in range(size):
            producer.produce(topic.name, b"x")
        producer.commit_transaction(30)
        # The broker ends a transaction a moment after it has promised to.
        eventually(lambda at=at, size=size: log.end({})[partition] == at + size + 1, "the end of the transaction")
        end = log.end({})[partition]
        there += range(at, at + size)
        assert read(at, end) == [offset for offset in there if offset >= at]
        at = end
    for first, last in ((0, 3), (3, 5), (5, 8), (8, 11), (2, 11), (2, 11), (0, 4), (4, 4), (4, 6)):
        assert read(first, last) == [offset for offset in there if first <= offset < last]
    log.close()


def test_a_job_starts_at_the_latest_at_a_time_or_at_offsets(kafka):
    topic = Topic(kafka, 2)
    topic.append([b"1", b"2", b"3"])
    first, second = f"{topic.name}/0", f"{topic.name}/1"
    assert offsets(topic.source(start="latest")) == {first: 2, second: 1}
    assert offsets(topic.source(start={0: 1})) == {first: 1, second: 0}
    assert offsets(topic.source(start={topic.name: {"1": 1}})) == {first: 0, second: 1}
    long_ago = datetime.datetime(2001, 1, 1, tzinfo=datetime.UTC)
    assert offsets(topic.source(start=long_ago)) == {first: 0, second: 0}
    with pytest.raises(ConfigError, match=r"partition .*/7, which is not there"):
        offsets(topic.source(start={7: 1}))


def test_several_topics_are_one_source(kafka):
    one, other = Topic(kafka, 1), Topic(kafka, 1)
    one.append([b"1"])
    other.append([b"2"])
    reader = sources.kafka(kafka.brokers, [one.name, other.name]).reader()
    end = reader.end({})
    assert offsets_in(end) == {f"{one.name}/0": 1, f"{other.name}/0": 1}


def test_offsets_behind_the_end_are_refused_with_both_numbers(kafka):
    topic = Topic(kafka, 1)
    topic.append([b"1"])
    with pytest.raises(
        ConnectorError, match=r"stands at offset 500 .* ends at 1: the topic was deleted and made again"
    ):
        topic.source().reader().end({f"{topic.name}/0": 500})


def test_a_missing_topic_is_named_with_the_existing_ones(kafka):
    Topic(kafka)
    with pytest.raises(ConfigError, match=r"no topic 'nope' at the Kafka brokers .* \(there are .*\); make it"):
        offsets(sources.kafka(kafka.brokers, "nope"))


def test_missing_brokers_are_named():
    with pytest.raises(TidewheelError, match=r"look for the topic 't' at the Kafka brokers 127.0.0.1:1: "):
        offsets(sources.kafka("127.0.0.1:1", "t", timeout="0.5 s"))


def test_a_refused_login_reports_what_to_check_without_the_password(tmp_path):
    options = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanisms": "SCRAM-SHA-512", "sasl.username": "ada"}
    with running_kafka(tmp_path, asks_for_password=True) as server:
        for made in (
            lambda: offsets(
                sources.kafka(server.brokers, "t", timeout="5 s", options={**options, "sasl.password": PASSWORD})
            ),
            lambda: sinks.kafka(
                server.brokers, "t", timeout="5 s", options={**options, "sasl.password": PASSWORD}
            ).start("j"),
        ):
            with pytest.raises(
                ConfigError, match=r"uthentication failed.*check the options security\.protocol"
            ) as refused:
                made()
            assert PASSWORD not in str(refused.value)


def test_options_come_from_the_environment_too_and_secrets_are_not_shown(monkeypatch):
    monkeypatch.setenv("TIDEWHEEL_KAFKA_SASL_PASSWORD", PASSWORD)
    source = sources.kafka("h:1", "t", options={"sasl.username": "ada"})
    assert source.topics.connection.settings()["sasl.password"] == PASSWORD
    assert PASSWORD not in repr(source.topics)
    assert source.topics.connection.hidden(f"bad {PASSWORD}") == "bad ***"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"topics": []}, "reads a topic, or several"),
        ({"topics": "t", "start": "yesterday"}, "starts at 'earliest', 'latest', a datetime"),
        ({"topics": ["a", "b"], "start": {0: 1}}, "of its own topics"),
        ({"topics": "t", "start": datetime.datetime(2026, 1, 1)}, "needs a time zone"),
        ({"topics": "t", "lost": "whatever"}, "lost= is one of fail, earliest, latest"),
        ({"topics": "t", "max_records": 0}, "at least 1"),
        ({"topics": "t", "options": {"group.id": "g"}}, "belongs to the Kafka connector"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings, said):
    with pytest.raises(ConfigError, match=said):
        sources.kafka("h:1", **settings)


def test_a_timeout_is_above_0():
    with pytest.raises(GraphError, match="the timeout of a Kafka connector must be at least 1 ns"):
        sources.kafka("h:1", "t", timeout="0 s")


def test_an_option_that_the_client_does_not_know_is_named():
    with pytest.raises(ConfigError, match=r"does not take its options: .*no\.such"):
        offsets(sources.kafka("h:1", "t", options={"no.such": "1"}))


def test_a_batch_is_planned_again_after_the_brokers_were_unreachable(kafka):
    topic = Topic(kafka, 1)
    topic.append([b"1"])
    source = DrivenSource(topic)
    with pytest.raises(ConnectorError):
        source.end({f"{topic.name}/0": 500})
    assert offsets_in(source.end({f"{topic.name}/0": 0})) == {f"{topic.name}/0": 1}


def test_sparks_own_connector_is_refused_with_the_way_to_use_it():
    with pytest.raises(ConfigError, match=r"sources\.dataframe\(lambda spark: spark\.readStream"):
        sources.kafka("h:1", "t", connector="spark")


def test_a_chosen_connector_has_no_effect_any_more():
    with pytest.warns(DeprecationWarning, match="leave it out"):
        sources.kafka("h:1", "t", connector="python")
