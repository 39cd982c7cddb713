"""At-least-once sinks killed while they publish: nothing is missing, and repeated records are counted."""

from __future__ import annotations

import random
import time
from collections import Counter
from pathlib import Path

import pytest

from chaos import harness
from integration.connectors import test_kafka_sink, test_sink_mqtt, test_sink_nats
from integration.connectors.publishing_program import COMMITS, PUBLISHED, SIZE
from servers.mqtt_server import broker  # noqa: F401
from servers.nats_server import nats  # noqa: F401

SEED = 20261115
PROGRAM = Path(__file__).with_name("publishing_program.py")
RANDOM_KILLS = 3


@pytest.fixture
def mqtt_topic(broker):  # noqa: F811
    with broker.listening("at-least-once/#", "at-least-once") as found:
        yield test_sink_mqtt.Topic(broker, found, "at-least-once"), broker.url


@pytest.fixture
def kafka_topic(kafka):
    return test_kafka_sink.Topic(kafka, exactly_once=False), kafka.brokers


@pytest.fixture
def nats_stream(nats):  # noqa: F811
    return test_sink_nats.Stream(nats, atomic=False), nats.server


@pytest.mark.parametrize(
    ("sink", "fixture"), [("mqtt", "mqtt_topic"), ("kafka", "kafka_topic"), ("nats", "nats_stream")]
)
def test_nothing_is_missing_and_repeats_are_counted(sink, fixture, request, tmp_path):
    print(f"seed {SEED}")
    draw = random.Random(SEED)
    place, server = request.getfixturevalue(fixture)

    def start(faults="", **most):
        return harness.start(tmp_path, faults, PROGRAM, sink=sink, server=server, place=place.name, **most)

    status, _, err = harness.finish(start(f"{PUBLISHED}=kill@2"))
    assert status == -9, err[-3000:]
    for _ in range(RANDOM_KILLS):
        # However late the kill comes, something is left for the lives after it.
        process = start(most="5")
        assert process.stdout.readline().startswith("published")
        time.sleep(draw.random() * 0.02)
        harness.kill(process)
        harness.finish(process)
    status, out, err = harness.finish(start())
    assert (status, out.splitlines()[-1:]) == (0, ["done"]), err[-3000:]

    found = Counter(row["id"] for row in place.contents())
    assert found.keys() == set(range(COMMITS * SIZE))
    repeated = found.total() - len(found)
    print(f"{sink}: {repeated} of {len(found)} records came again after {1 + RANDOM_KILLS} kills")
    assert repeated <= (1 + RANDOM_KILLS) * SIZE
