"""Batches of a job that reads MQTT run again without a connection to the broker, which the job itself may have."""

from __future__ import annotations

import random
from dataclasses import dataclass

from support.replayed import ReadingRun
from support.waiting import eventually
from tidewheel import Job, StoredJob, sinks, sources
from tidewheel._connectors.mqtt import bridge as bridges
from tidewheel._connectors.mqtt.bridge import Bridging
from tidewheel._core.urls import Url
from tidewheel.connectors import MqttBridge


@dataclass
class Message:
    topic: str
    payload: bytes
    mid: int
    qos: int = 1
    retain: bool = False


class Broker:
    """Stands for a connection."""

    made = 0

    def __init__(self, *_, **__) -> None:
        Broker.made += 1
        self.acknowledged: list[int] = []

    def ack(self, mid, qos):
        self.acknowledged.append(mid)

    def close(self):
        pass


def send(buffer: str, numbers: range) -> None:
    with MqttBridge(Bridging(Url("mqtt://broker"), ("s/#",), Url(buffer), "sensors", 5)) as bridge:
        broker = Broker()
        for number in numbers:
            bridge._take(broker, Message("s/1", b"%d" % number, number))
        eventually(lambda: broker.acknowledged == list(numbers))


def test_a_second_run_does_not_connect_to_the_broker(tmp_path, monkeypatch):
    monkeypatch.setattr(bridges, "MqttConnection", Broker)
    buffer = f"file://{tmp_path}/buffer"
    send(buffer, range(5))
    job = Job("sensors", state=f"file://{tmp_path}/state", n_shards=4, keep=100)
    rows = job.source("in", sources.mqtt("mqtt://broker", "s/#", buffer=buffer, client_id="sensors", keep=True))
    counted = rows.key_by("by-topic", "topic").stateful_map("count", lambda key, row, n: (n, n + 1), default=0)
    counted.sink("out", sinks.collect())
    with ReadingRun(job) as run:
        run.read_all(random.Random(1), 1)
    send(buffer, range(5, 8))
    stored, Broker.made = StoredJob("sensors", state=job.state), 0
    assert stored.replay(job, 2).same
    assert len(stored.messages(job, 2, "count", "s/1")) == 5
    assert stored.shadow(job, last=1).same
    assert len(stored.replay(job, "next").rows["out"]) == 3
    assert Broker.made == 0
