"""The bridge without a broker: blocks within the limit, and a writer whose failure is reported."""

from __future__ import annotations

import threading

import pytest

from support.memory_inbox import MemoryInbox
from support.waiting import eventually
from tidewheel._connectors.mqtt import bridge as bridges
from tidewheel._connectors.mqtt.bridge import Bridging, arrived
from tidewheel._core.urls import Url
from tidewheel.connectors import MqttBridge
from tidewheel.errors import ConnectorError


class Message:
    qos, retain = 1, False

    def __init__(self, topic: str, payload: bytes, mid: int) -> None:
        self.topic, self.payload, self.mid = topic, payload, mid


class NotText(Message):
    @property
    def topic(self):
        return b"s/\xff".decode()

    @topic.setter
    def topic(self, _):
        pass


class Broker:
    """Stands for the connection; it notes what was acknowledged."""

    def __init__(self, *_, **__) -> None:
        self.acknowledged: list[int] = []

    def ack(self, mid, qos):
        self.acknowledged.append(mid)

    def close(self):
        pass


@pytest.fixture
def inbox(monkeypatch):
    opened = MemoryInbox(1)
    opened.max_block_bytes = 100_000
    monkeypatch.setattr(bridges, "opened_buffer", lambda _: opened)
    monkeypatch.setattr(bridges, "MqttConnection", Broker)
    return opened


@pytest.fixture
def bridge(inbox):
    with MqttBridge(Bridging(Url("mqtt://h"), ("s/#",), Url("buffer"), "sensors", 5)) as running:
        yield running


def test_a_burst_is_cut_into_blocks_that_the_buffer_takes(inbox, bridge):
    gate = threading.Event()
    inbox.before = gate.wait
    broker = Broker()
    for number in range(1100):
        bridge._take(broker, Message(f"s/{number}", b"x" * 1100, number))
    gate.set()
    eventually(lambda: len(broker.acknowledged) == 1100)
    assert broker.acknowledged == list(range(1100))
    assert max(len(stored.block.data) for stored in inbox.log) <= inbox.max_block_bytes
    assert [topic for stored in inbox.log for topic in arrived(stored).topics] == [f"s/{n}" for n in range(1100)]


@pytest.mark.parametrize(
    ("message", "reason"),
    [(NotText("", b"x", 1), "UnicodeDecodeError"), (Message("s/1", b"x" * 200_000, 1), "takes 200035 bytes")],
)
def test_an_unexpected_error_of_the_writer_ends_the_bridge(bridge, message, reason):
    broker = Broker()
    bridge._take(broker, message)
    eventually(lambda: bridge._failed is not None)
    bridge._take(broker, Message("s/1", b"x", 2))
    with pytest.raises(ConnectorError, match=f"acknowledges nothing more: .*{reason}"):
        bridge.check()
    with pytest.raises(ConnectorError):
        bridge.wait_quiet("10 ms")
    assert broker.acknowledged == []
