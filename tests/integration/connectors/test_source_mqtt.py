"""mqtt: acknowledged messages are in the buffer, and a second read of it gives the same messages."""

from __future__ import annotations

import contextlib
import os
import threading
import traceback
import uuid

import paho.mqtt.client
import pytest

from servers.mqtt_server import PASSWORD, broker  # noqa: F401
from support.waiting import IN_TIME, eventually
from tidewheel import sources
from tidewheel._connectors.mqtt.bridge import opened_buffer
from tidewheel._connectors.mqtt.client import MqttConnection
from tidewheel._core import faults
from tidewheel.connectors import MqttBridge
from tidewheel.errors import ConfigError, ConnectorError, ConnectorUnavailable
from tidewheel.testing.connectors import SourceConformance, SourceHarness


class Topic(SourceHarness):
    """A bridge that runs beside the tests; what was appended is in the buffer."""

    secrets = (PASSWORD,)
    exact_limit = False

    def __init__(self, broker, folder) -> None:  # noqa: F811
        self.broker, self.buffer, self.name = broker, f"file://{folder}/buffer", f"t-{uuid.uuid4().hex}"
        self.bridge = MqttBridge(self.source().bridging)
        self.stored = 0

    def source(self, *, max_records=None):
        return settled(self, max_records=max_records, bridge=False)

    def append(self, payloads):
        # A few at a time, so that there are blocks to cut a batch between.
        for at in range(0, len(payloads), 10):
            part = payloads[at : at + 10]
            self.broker.send(f"{self.name}/a", part)
            self.stored += len(part)
            self.wait_for(self.stored)

    def wait_for(self, count):
        """Wait until so many messages are in the buffer."""
        with opened_buffer(self.buffer) as inbox:
            eventually(lambda: inbox.marks(self.name).get(0, 0) >= count, f"message {count} in the buffer")

    def payload(self, row):
        return bytes(row["data"])


def settled(topic, **settings):
    return sources.mqtt(
        topic.broker.url, f"{topic.name}/#", buffer=topic.buffer, client_id=topic.name, quiet="2 s", **settings
    )


class TestATopic(SourceConformance):
    @pytest.fixture
    def harness(self, broker, tmp_path):  # noqa: F811
        topic = Topic(broker, tmp_path)
        yield topic
        topic.bridge.close()


@pytest.fixture
def topic(broker, tmp_path):  # noqa: F811
    """A topic whose session is there, and nobody connected."""
    found = Topic(broker, tmp_path)
    found.bridge.close()
    return found


def read(topic, start=None, **settings):
    """Return the rows of a bounded run, and its end."""
    reader = settled(topic, **settings).reader()
    start = start or reader.start()
    reader.freeze()
    end = reader.end(start)
    rows = [row for part in reader.splits(start, end, 4) for batch in part.read() for row in batch.to_pylist()]
    reader.close()
    return rows, end


def test_messages_sent_while_the_job_was_down_arrive_later(topic):
    topic.broker.send(f"{topic.name}/a/b", [b"1", b"2"])
    first, end = read(topic)
    assert [(row["topic"], row["data"]) for row in first] == [(f"{topic.name}/a/b", data) for data in (b"1", b"2")]
    topic.broker.send(f"{topic.name}/c", [b"3"])
    more, _ = read(topic, end)
    assert [row["data"] for row in more] == [b"3"]
    again, _ = read(topic, bridge=False)
    assert [row["data"] for row in again] == [b"1", b"2", b"3"]


def test_messages_before_the_brokers_answer_are_acknowledged_at_once(topic, monkeypatch):
    """A broker that waits for it lets the connection begin; the messages are there when it has."""
    topic.broker.send(f"{topic.name}/a", [b"1", b"2"])
    acknowledged, answered = threading.Event(), MqttConnection._subscribed
    ack = paho.mqtt.client.Client.ack

    def noted(client, mid, qos):
        acknowledged.set()
        return ack(client, mid, qos)

    def after(connection, *arguments):
        first.append(acknowledged.is_set())
        answered(connection, *arguments)

    first = []
    monkeypatch.setattr(paho.mqtt.client.Client, "ack", noted)
    monkeypatch.setattr(MqttConnection, "_subscribed", after)
    with MqttBridge(settled(topic).bridging):
        assert first == [True]


@pytest.mark.parametrize(("point", "stored"), [("inbox.written", 0), ("mqtt.stored", 1)])
def test_messages_that_are_not_in_the_buffer_are_not_acknowledged(topic, monkeypatch, point, stored):
    """A bridge that fails before a message is stored, or before it could say so, leaves it with the broker."""
    acknowledged = []
    monkeypatch.setattr("paho.mqtt.client.Client.ack", lambda _, mid, qos: acknowledged.append(mid))
    topic.broker.send(f"{topic.name}/a", [b"1"])
    faults.arm(f"{point}=raise")
    try:
        bridge = MqttBridge(settled(topic).bridging)
        with pytest.raises(ConnectorError, match=rf"acknowledges nothing more: InjectedFault: fault point {point}"):
            bridge.wait_quiet(IN_TIME)
        with opened_buffer(topic.buffer) as inbox:
            assert inbox.marks(topic.name).get(0, 0) >= stored
        bridge.close()
    finally:
        faults.arm("")
    assert acknowledged == []


def test_read_messages_are_deleted_unless_kept(topic, monkeypatch):
    trimmed = []
    monkeypatch.setattr("tidewheel.fleet._inbox.file.FileInbox.trim", lambda _, below: trimmed.append(below))
    for keep in (True, False):
        reader = settled(topic, bridge=False, keep=keep).reader()
        reader.committed({"0": 7})
        reader.close()
    assert trimmed == [{0: 7}]


def test_a_missing_or_refusing_broker_is_reported(topic):
    wrong = sources.mqtt(
        topic.broker.url.replace("sEcReT", "wrong"), "a", buffer=topic.buffer, client_id="x", timeout=IN_TIME
    ).reader()
    with pytest.raises(ConnectorError, match=r"mqtt://127.0.0.1:\d+ refuses the user") as refused:
        wrong.start()
    assert "vErY" not in "".join(traceback.format_exception(refused.value))
    wrong.close()
    nobody = sources.mqtt("mqtt://127.0.0.1:1", "a", buffer=topic.buffer, client_id="x").reader()
    with pytest.raises(ConnectorUnavailable, match=r"mqtt://127.0.0.1:1 does not answer"):
        nobody.start()
    nobody.close()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"url": "nats://x"}, "must name an MQTT broker"),
        ({"topics": []}, "needs the topics"),
        ({"client_id": "a/b"}, "cannot be a client_id"),
        ({"max_records": 0}, "at least 1"),
    ],
)
def test_settings_that_cannot_work(settings, said):
    with pytest.raises(ConfigError, match=said):
        sources.mqtt(**{"url": "mqtt://localhost", "topics": "a", "buffer": "/b", "client_id": "c", **settings})


def test_a_process_with_many_open_files_connects(broker):  # noqa: F811
    """paho's own loop waits with `select`, which takes no descriptor above 1023."""
    with contextlib.ExitStack() as opened:
        while (number := os.open(os.devnull, os.O_RDONLY)) < 1024:
            opened.callback(os.close, number)
        opened.callback(os.close, number)
        topic = f"t-{uuid.uuid4().hex}"
        with broker.listening(topic) as found:
            broker.send(topic, [b"a", b"b"])
            assert [payload for _, payload in broker.settled(found)] == [b"a", b"b"]
