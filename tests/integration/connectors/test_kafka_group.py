"""A consumer group that shows the offsets of a job: for information, never read back."""

from __future__ import annotations

import logging
import secrets

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from integration.connectors.test_kafka_source import Topic
from servers.kafka_server import real_kafka  # noqa: F401
from support.waiting import eventually
from tidewheel import sources
from tidewheel._connectors.kafka.group import GroupOffsets
from tidewheel.errors import ConfigError
from tidewheel.testing.connectors import DrivenSource, SourceConformance


class GroupedTopic(Topic):
    """A topic whose job shows its offsets in a group."""

    def __init__(self, server, partitions: int = 3) -> None:
        super().__init__(server, partitions)
        self.group = f"group-{secrets.token_hex(4)}"

    def source(self, **more):
        return super().source(group=self.group, **more)

    def stored(self) -> dict[int, int]:
        """Return the offsets of the group, by partition."""
        admin = AdminClient({"bootstrap.servers": self.server.brokers})
        asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(self.group)])[self.group]
        return {each.partition: each.offset for each in asked.result(20).topic_partitions}


@pytest.fixture
def topic(real_kafka) -> GroupedTopic:  # noqa: F811
    return GroupedTopic(real_kafka)


class TestKafkaSourceWithGroup(SourceConformance):
    @pytest.fixture
    def harness(self, topic):
        return topic


def test_the_group_shows_committed_offsets_and_no_others(topic):
    topic.append([b"1", b"2", b"3", b"4"])
    driven = DrivenSource(topic)
    start = driven.start()
    end = driven.end(start)
    assert sorted(driven.read(start, end)) == [b"1", b"2", b"3", b"4"]
    driven.reader.committed(end)
    topic.append([b"5"])
    driven.end(end)
    driven.reader.close()
    assert topic.stored() == {0: 2, 1: 1, 2: 1}


def test_offsets_of_the_group_are_never_read(topic):
    topic.append([b"1", b"2", b"3"])
    admin = AdminClient({"bootstrap.servers": topic.server.brokers})
    moved = ConsumerGroupTopicPartitions(topic.group, [TopicPartition(topic.name, 0, 1)])
    admin.alter_consumer_group_offsets([moved])[topic.group].result(20)
    driven = DrivenSource(topic)
    start = driven.start()
    assert sorted(driven.read(start, driven.end(start))) == [b"1", b"2", b"3"]


def test_a_group_with_members_is_left_alone_with_one_warning(topic, caplog):
    topic.append([b"1"])
    member = Consumer({"bootstrap.servers": topic.server.brokers, "group.id": topic.group, "enable.auto.commit": False})
    member.subscribe([topic.name])
    eventually(lambda: member.poll(0.1) is None and bool(member.assignment()), "the member's assignment")
    try:
        offsets = GroupOffsets(topic.source().topics.connection, topic.group)
        with caplog.at_level(logging.WARNING):
            offsets.report({f"{topic.name}/0": 1})
            offsets.close()
            offsets.report({f"{topic.name}/0": 1})
            offsets.close()
    finally:
        member.close()
    (line,) = [each.getMessage() for each in caplog.records]
    assert line.startswith(f"cannot commit offsets to the group {topic.group!r} at the Kafka brokers")
    assert topic.stored() == {}


@pytest.mark.parametrize("group", ["", 7])
def test_a_group_without_a_name_is_refused(group):
    with pytest.raises(ConfigError, match="group= is the name of a consumer group, not"):
        sources.kafka("broker:9092", "orders", group=group)
