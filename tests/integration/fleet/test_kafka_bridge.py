"""`tidewheel bridge kafka`: records of a topic, each once in the inbox, however often the bridge is killed."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from servers.kafka_server import kafka  # noqa: F401
from servers.nats_server import nats  # noqa: F401
from support.memory_inbox import whole
from tidewheel._connectors.kafka.client import once_coordinated
from tidewheel._core.keys import from_stored
from tidewheel.fleet import open_inbox
from tidewheel.fleet._inbox import decode_events


@pytest.fixture
def topic(kafka):  # noqa: F811
    name = f"orders.{secrets.token_hex(4)}"
    kafka.create(name, 3)
    return name


def produce(server, topic, first, last):
    producer = Producer({"bootstrap.servers": server.brokers})
    for number in range(first, last):
        value = json.dumps({"user": f"u{number % 7}", "n": number}).encode()
        producer.produce(topic, value, key=f"u{number % 7}", partition=number % 7 % 3)
    assert producer.flush(30) == 0


def bridge(server, topic, inbox, *more, faults=""):
    command = [sys.executable, "-m", "tidewheel", "bridge", "kafka", "--brokers", server.brokers, "--topic", topic]
    return subprocess.run(
        [*command, "--inbox", inbox, "--shards", "4", "--to-the-end", *more],
        env={**os.environ, "TIDEWHEEL_FAULTS": faults, "COLUMNS": "1000"},
        capture_output=True,
        text=True,
        start_new_session=True,
    )


def stored(url):
    with open_inbox(url) as inbox:
        return [
            (from_stored(key), json.loads(payload)["n"])
            for each in whole(inbox)
            for key, payload in zip(decode_events(each).keys, decode_events(each).payloads, strict=True)
        ]


def check(url, count):
    events = stored(url)
    assert sorted(n for _, n in events) == list(range(count))
    for user in range(7):
        numbers = [n for key, n in events if key == f"u{user}"]
        assert numbers == sorted(numbers)


def test_a_bridge_killed_before_its_commit_stores_each_record_once(kafka, topic, tmp_path):  # noqa: F811
    url, key = f"{tmp_path}/inbox", ("--key", "user")
    produce(kafka, topic, 0, 200)
    killed = bridge(kafka, topic, url, *key, faults="kafka-bridge.stored=kill")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert len(stored(url)) == 200
    produce(kafka, topic, 200, 300)
    done = bridge(kafka, topic, url, *key)
    assert (done.returncode, done.stdout) == (0, f"stored 100 records of topic {topic}\n"), done.stderr
    check(url, 300)
    # A group that knows nothing reads the topic from its beginning.
    assert bridge(kafka, topic, url, *key, "--group", "another").stdout == f"stored 0 records of topic {topic}\n"
    produce(kafka, topic, 300, 310)
    assert bridge(kafka, topic, url, *key).stdout == f"stored 10 records of topic {topic}\n"
    check(url, 310)


def test_an_invalid_record_stops_the_bridge_or_is_a_dead_letter(kafka, topic, tmp_path):  # noqa: F811
    url, letters = f"{tmp_path}/inbox", f"{tmp_path}/letters"
    produce(kafka, topic, 0, 20)
    producer = Producer({"bootstrap.servers": kafka.brokers})
    producer.produce(topic, b"nothing", partition=1)
    assert producer.flush(30) == 0
    produce(kafka, topic, 20, 40)
    refused = bridge(kafka, topic, url)
    assert refused.returncode == 1
    assert f"of partition 1 of topic '{topic}' is not an event" in " ".join(refused.stderr.split())
    for _ in range(2):
        assert bridge(kafka, topic, url, "--dead-letters", letters).returncode == 0
    check(url, 40)
    with open_inbox(letters) as inbox:
        (letter,) = [json.loads(payload) for each in whole(inbox) for payload in decode_events(each).payloads]
    assert (letter["payload"], letter["partition"]) == ("nothing", 1)


def test_a_record_larger_than_the_inbox_takes_goes_to_the_dead_letters(kafka, topic, nats):  # noqa: F811
    """A letter that holds the whole record would be too large as well."""
    url, letters = (nats.url(f"t-{secrets.token_hex(4)}") for _ in range(2))
    producer = Producer({"bootstrap.servers": kafka.brokers})
    large = b'{"user":"a","x":"' + b"x" * 300_000 + b'"}'
    with_a_large_key = b'{"user":"' + b"u" * 300_000 + b'"}'
    for value in (large, with_a_large_key):
        producer.produce(topic, value, partition=1)
    assert producer.flush(30) == 0
    produce(kafka, topic, 0, 20)
    done = bridge(kafka, topic, url, "--key", "user", "--dead-letters", letters)
    assert done.returncode == 0, done.stderr
    check(url, 20)
    with open_inbox(letters) as inbox:
        found = [json.loads(payload) for each in whole(inbox) for payload in decode_events(each).payloads]
    assert [letter["payload_bytes"] for letter in found] == [len(large), len(with_a_large_key)]
    assert all("keep large things in a file" in letter["error"] for letter in found)


def test_invalid_settings_are_reported(kafka, tmp_path):  # noqa: F811
    missing = bridge(kafka, "nowhere", f"{tmp_path}/inbox", "--key", "user")
    assert missing.returncode == 1
    assert "nowhere" in missing.stderr
    assert "--option x is not NAME=VALUE" in bridge(kafka, "t", f"{tmp_path}/inbox", "--option", "x").stderr


@pytest.mark.parametrize("name", ["NOT_COORDINATOR", "COORDINATOR_LOAD_IN_PROGRESS"])
def test_a_group_without_a_coordinator_is_retried_and_other_errors_are_not(name):
    # A broker under load answers so for a moment; no test can make it.
    answers = [
        KafkaException(KafkaError(getattr(KafkaError, name))),
        KafkaException(KafkaError(KafkaError.NOT_COORDINATOR)),
        7,
    ]

    def call() -> int:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    assert once_coordinated(call, 60) == 7
    answers[:] = [KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)), 7]
    with pytest.raises(KafkaException):
        once_coordinated(call, 60)
    assert answers == [7]
