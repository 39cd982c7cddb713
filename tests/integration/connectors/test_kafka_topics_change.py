"""Topics that change while a job runs: added partitions, a deleted topic, a topic that was created again."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException

from integration.connectors.test_kafka_source import Topic, offsets_in
from servers.kafka_server import real_kafka  # noqa: F401
from tidewheel._connectors.kafka.log import KafkaLog
from tidewheel.errors import ConfigError, ConnectorError
from tidewheel.testing.connectors import DrivenSource


@pytest.fixture
def topic(real_kafka) -> Topic:  # noqa: F811
    return Topic(real_kafka, 1)


def test_partitions_that_were_added_are_read_from_their_beginning(topic):
    topic.append([b"1"])
    source = DrivenSource(topic)
    start = source.start()
    end = source.end(start)
    topic.server.grow(topic.name, 3)
    topic.partitions = 3
    topic.append([b"2", b"3", b"4"])
    for each in (source, DrivenSource(topic)):
        later = each.end(end)
        assert offsets_in(later) == {f"{topic.name}/0": 2, f"{topic.name}/1": 1, f"{topic.name}/2": 1}
        assert sorted(each.read(end, later)) == [b"2", b"3", b"4"]
        assert each.end(later) == later


def test_partitions_that_are_added_while_a_run_is_on_are_left_to_the_next(topic):
    topic.append([b"1"])
    source = DrivenSource(topic)
    start = source.start()
    source.reader.freeze()
    topic.server.grow(topic.name, 2)
    topic.partitions = 2
    topic.append([b"2", b"3"])
    batches = list(source.batches(start))
    assert [payload for _, batch in batches for payload in batch] == [b"1"]
    again, end = DrivenSource(topic), batches[-1][0]
    assert sorted(again.read(end, again.end(end))) == [b"2", b"3"]


def made_anew(topic: Topic, payloads: list[bytes]) -> None:
    topic.server.delete(topic.name)
    topic.server.create(topic.name, topic.partitions)
    topic.append(payloads)


@pytest.mark.parametrize("same_run", [True, False])
def test_a_recreated_topic_stops_the_job(topic, same_run):
    topic.append([b"1", b"2", b"3"])
    source = DrivenSource(topic)
    end = source.end(source.start())
    made_anew(topic, [b"other"])
    if not same_run:
        source = DrivenSource(topic)
    with pytest.raises(ConnectorError, match="the topic was deleted and made again"):
        source.end(end)


@pytest.mark.parametrize("recorded", ["start", "end"])
def test_a_recreated_topic_of_any_length_stops_the_job(topic, recorded):
    topic.append([b"1", b"2", b"3"])
    start = DrivenSource(topic).start()
    positions = start if recorded == "start" else DrivenSource(topic).end(start)
    made_anew(topic, [b"other"] * 5)
    with pytest.raises(
        ConnectorError, match=r"with the id (\S+), and .* has the id (?!\1)\S+: the topic was deleted and made"
    ):
        DrivenSource(topic).end(positions)


def test_a_batch_repeated_after_a_restart_is_not_read_from_a_recreated_topic(topic):
    topic.append([b"1", b"2", b"3"])
    source = DrivenSource(topic)
    start = source.start()
    end = source.end(start)
    made_anew(topic, [b"other"] * 5)
    with pytest.raises(ConnectorError, match="the topic was deleted and made again"):
        DrivenSource(topic).read(start, end)


def test_positions_without_ids_are_checked_by_length_and_get_ids(topic):
    topic.append([b"1", b"2", b"3"])
    source = DrivenSource(topic)
    without = offsets_in(source.start())
    end = source.end(without)
    assert source.read(without, end) == [b"1", b"2", b"3"]
    assert end.keys() > without.keys()
    made_anew(topic, [b"other"])
    with pytest.raises(ConnectorError, match=r"stands at offset 3 .* ends at 1: the topic was deleted and made again"):
        DrivenSource(topic).end(offsets_in(end))


def test_a_topic_that_is_gone_stops_the_job(topic):
    topic.append([b"1"])
    source = DrivenSource(topic)
    end = source.end(source.start())
    topic.server.delete(topic.name)
    with pytest.raises(ConfigError, match=f"there is no topic '{topic.name}'"):
        source.end(end)


class Leaderless:
    """A client that is told once that a partition has no leader, as in the moment after it was made, or moved."""

    def __init__(self, client) -> None:
        self._client, self._told = client, False

    def __getattr__(self, name):
        return getattr(self._client, name)

    def get_watermark_offsets_in(self, *arguments, **named):
        if not self._told:
            self._told = True
            raise KafkaException(KafkaError(KafkaError.NOT_LEADER_FOR_PARTITION))
        return self._client.get_watermark_offsets_in(*arguments, **named)


def test_a_partition_without_a_leader_is_asked_for_again(topic, monkeypatch):
    topic.append([b"1"])
    plain = KafkaLog._consumer
    monkeypatch.setattr(KafkaLog, "_consumer", lambda self, settings: Leaderless(plain(self, settings)))
    assert offsets_in(DrivenSource(topic).start()) == {f"{topic.name}/0": 0}
