"""mqtt: every committed record reaches the broker, some perhaps twice."""

from __future__ import annotations

import json
import uuid

import pytest

from servers.mqtt_server import PASSWORD, running_broker
from support.waiting import IN_TIME
from tidewheel import sinks
from tidewheel.errors import ConfigError, ConnectorError, ConnectorUnavailable
from tidewheel.testing.connectors import DrivenSink, SinkConformance, SinkHarness


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    """A broker that tests of this file may kill."""
    with running_broker(tmp_path_factory.mktemp("mqtt")) as server:
        yield server


class Topic(SinkHarness):
    secrets = (PASSWORD,)

    def __init__(self, broker, found, name) -> None:
        self.broker, self.name, self.found, self.settings = broker, name, found, {}

    def sink(self):
        where = f"{self.name}/{{id}}"
        return sinks.mqtt(self.broker.url, where, timeout=IN_TIME, patience="0.2 s", **self.settings)

    def contents(self):
        return [json.loads(data) for _, data in self.broker.settled(self.found)]


class TestATopic(SinkConformance):
    @pytest.fixture
    def harness(self, broker):
        name = f"t-{uuid.uuid4().hex}"
        with broker.listening(f"{name}/#", name) as found:
            yield Topic(broker, found, name)


@pytest.fixture
def topic(broker):
    name = f"t-{uuid.uuid4().hex}"
    with broker.listening(f"{name}/#", name) as found:
        yield Topic(broker, found, name)


def test_messages_keep_their_order_and_their_topic(topic):
    sink = DrivenSink(topic)
    sink.publish(sink.stage(2, topic.rows([3, 1]), topic.rows([2])))
    assert topic.broker.settled(topic.found) == [
        (f"{topic.name}/{number}", b'{"id":%d,"name":"name-%d"}' % (number, number)) for number in (3, 1, 2)
    ]


def test_a_returned_broker_gets_the_output_of_a_failed_publication(tmp_path):
    with running_broker(tmp_path) as broker:
        topic = Topic(broker, [], "t")
        sink = DrivenSink(topic)
        publication = sink.stage(2, topic.rows(range(5)))
        broker.kill()
        with pytest.raises(ConnectorUnavailable, match="does not answer"):
            sink.publish(publication)
        broker.start()
        with broker.listening("t/#") as found:
            sink.publish(publication)
            assert [json.loads(data)["id"] for _, data in broker.settled(found)] == list(range(5))


def test_a_missing_or_refusing_broker_is_reported_before_the_start(broker):
    with pytest.raises(ConnectorError, match="refuses the user"):
        sinks.mqtt(broker.url.replace("sEcReT", "wrong"), "a", timeout=IN_TIME).start("j")
    with pytest.raises(ConnectorUnavailable, match="does not answer"):
        sinks.mqtt("mqtt://127.0.0.1:1", "a").start("j")
    with pytest.raises(ConfigError, match="is not a valid topic"):
        sinks.mqtt(broker.url, "a b")
