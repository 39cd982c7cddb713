"""Topics by pattern: those that match now, and those that are created while the job runs."""

from __future__ import annotations

import re

import pytest

from integration.connectors.test_kafka_source import Topic, offsets_in, produce
from servers.kafka_server import real_kafka  # noqa: F401
from tidewheel import sources
from tidewheel._connectors.kafka.topic_ids import is_id
from tidewheel.errors import ConfigError
from tidewheel.testing.connectors import DrivenSource, SourceConformance


class Matching(Topic):
    """A topic that is read by a pattern."""

    def source(self, **more):
        more = {"timeout": "20 s", **more}
        return sources.kafka(self.server.brokers, re.compile(f"{self.name}(-.*)?"), **more)

    def create(self, ending: str, payloads: list[bytes]) -> str:
        """Create another topic that matches."""
        name = f"{self.name}-{ending}"
        self.server.create(name, 1)
        produce(self.server, name, [{"value": each} for each in payloads])
        return name


class TestKafkaSourceByPattern(SourceConformance):
    @pytest.fixture
    def harness(self, kafka):
        return Matching(kafka)


def test_topics_created_during_a_run_are_read_from_their_first_record(real_kafka):  # noqa: F811
    topic = Matching(real_kafka, 1)
    topic.append([b"1"])
    driven = DrivenSource(topic)
    end = driven.end(driven.start())
    later = topic.create("later", [b"2", b"3"])
    for each in (driven, DrivenSource(topic)):
        until = each.end(end)
        assert offsets_in(until) == {f"{topic.name}/0": 1, f"{later}/0": 2}
        assert each.read(end, until) == [b"2", b"3"]
        assert each.end(until) == until
        assert len([name for name in until if is_id(name)]) == 2


def test_the_whole_name_must_match(kafka):
    topic, other = Topic(kafka, 1), Topic(kafka, 1)
    reader = sources.kafka(kafka.brokers, re.compile(f"{topic.name[:-1]}|{other.name}")).reader()
    assert set(offsets_in(reader.start())) == {f"{other.name}/0"}


def test_topics_of_kafka_itself_do_not_match(real_kafka):  # noqa: F811
    topic = Topic(real_kafka, 1)
    names = offsets_in(sources.kafka(real_kafka.brokers, re.compile(".*")).reader().start())
    assert f"{topic.name}/0" in names
    assert not [name for name in names if name.startswith("__")]


def test_a_pattern_without_topics_is_refused_before_the_job_starts(kafka):
    with pytest.raises(
        ConfigError, match=r"there are no topics that match 'nowhere-\.\*' at the Kafka brokers .*correct the"
    ):
        sources.kafka(kafka.brokers, re.compile("nowhere-.*")).open()


def test_offsets_to_start_at_name_topics_that_match(kafka):
    topic = Matching(kafka, 1)
    topic.append([b"1", b"2"])
    assert offsets_in(topic.source(start={topic.name: {0: 1}}).reader().start()) == {f"{topic.name}/0": 1}
    for start in ({0: 1}, {"other": {0: 1}}):
        with pytest.raises(ConfigError, match="of its own topics"):
            topic.source(start=start)


def test_a_pattern_of_bytes_is_refused():
    with pytest.raises(ConfigError, match="the pattern of a Kafka source is one of text"):
        sources.kafka("broker:9092", re.compile(b"orders"))
