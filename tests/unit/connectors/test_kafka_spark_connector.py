"""Topics read through Spark's own connector: it gives what the one in Python gives."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from apache_kafka import ApacheKafka
from kafka_jars import connector_jars
from kafka_server import real_kafka, running  # noqa: F401
from tidewheel._connectors.kafka.client import variable_of
from tidewheel._connectors.kafka.spark_connector import java_options
from tidewheel.testing.connectors import DrivenSink
from unit.connectors import test_kafka_sink
from unit.connectors.test_kafka_source import Topic, produce
from unit.connectors.test_kafka_transactions import in_transaction
from waiting import SOON

PROGRAM = Path(__file__).with_name("spark_connector_program.py")
PASSWORD, OTHER = "hunter2-and-more", "hunter3-and-less"


class Reading:
    """A process with a Spark that has the connector; a Spark that has begun can be given no jars."""

    def __init__(self, log: Path) -> None:
        jars = ",".join(sorted(map(str, connector_jars().glob("*.jar"))))
        self._log = log
        with log.open("wb") as out:
            self._process = subprocess.Popen(
                [sys.executable, str(PROGRAM), jars],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=out,
                text=True,
                env={**os.environ, variable_of("sasl.password"): PASSWORD},
            )

    def __call__(self, topic: Topic | test_kafka_sink.Topic, folder: Path, **settings: Any) -> dict[str, Any]:
        """Run a job that reads a topic, and return what the program says."""
        asked = {"brokers": topic.server.brokers, "topic": topic.name, "folder": str(folder), "settings": settings}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(asked), file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        assert answer, self._log.read_text()[-3000:]
        return json.loads(answer)

    def end(self) -> None:
        self._process.communicate(timeout=SOON)


@pytest.fixture(scope="module")
def reading(tmp_path_factory) -> Iterator[Reading]:
    started = Reading(tmp_path_factory.mktemp("spark") / "log")
    yield started
    started.end()


@pytest.fixture
def topic(real_kafka) -> Topic:  # noqa: F811
    return Topic(real_kafka, 2)


def test_every_record_comes_and_a_run_goes_on_where_the_last_ended(topic, reading, tmp_path):
    topic.append([b"1", b"2", b"3"])
    first = reading(topic, tmp_path, connector="spark", max_records=2)
    assert sorted(first["values"]) == ["1", "2", "3"]
    assert first["columns"] == ["key", "offset", "partition", "timestamp", "topic", "value"]
    assert (first["unread"], first["all"]) == (0, 3)
    topic.append([b"4"])
    # A run begins with the output of the newest commit, which may have been seen.
    again = reading(topic, tmp_path, connector="spark", max_records=2)
    assert {"4"} <= set(again["values"]) < {"1", "2", "3", "4"}


def test_it_is_taken_where_it_is_there_and_headers_come_when_asked_for(topic, reading, tmp_path):
    produce(topic.server, topic.name, [{"value": b"1", "headers": [("h", b"1")]}])
    found = reading(topic, tmp_path, headers=True)
    assert (found["values"], "headers" in found["columns"]) == (["1"], True)
    assert "error" not in reading(topic, tmp_path, headers=True, connector="spark")


def test_what_was_aborted_is_never_seen(topic, reading, tmp_path):
    topic.append([b"1", b"2"])
    in_transaction(topic, [b"never"]).abort_transaction(30)
    in_transaction(topic, [b"3"]).commit_transaction(30)
    opened = in_transaction(topic, [b"not yet"])
    assert sorted(reading(topic, tmp_path, connector="spark")["values"]) == ["1", "2", "3"]
    opened.abort_transaction(30)


def test_partitions_that_were_added_are_read(topic, reading, tmp_path):
    topic.append([b"1", b"2"])
    assert sorted(reading(topic, tmp_path, connector="spark")["values"]) == ["1", "2"]
    topic.server.grow(topic.name, 3)
    topic.partitions = 3
    topic.append([b"3", b"4", b"5"])
    assert {"3", "4", "5"} <= set(reading(topic, tmp_path, connector="spark")["values"])


def test_a_job_may_start_at_offsets_of_some_partitions(topic, reading, tmp_path):
    topic.append([b"1", b"2", b"3"])
    assert sorted(reading(topic, tmp_path, connector="spark", start={0: 1}).get("values", [])) == ["2", "3"]


def test_a_topic_that_is_not_there_is_named(topic, reading, tmp_path):
    topic.server.delete(topic.name)
    told = reading(topic, tmp_path, connector="spark")["error"]
    assert f"ConfigError: there is no topic '{topic.name}'" in told


def test_a_job_that_retention_passed_by_may_go_on(topic, reading, tmp_path):
    passed_by(topic, reading, tmp_path)
    assert "4" in reading(topic, tmp_path, connector="spark", lost="earliest")["values"]


def test_a_job_that_retention_passed_by_stops_and_says_why(topic, reading, tmp_path):
    passed_by(topic, reading, tmp_path)
    assert topic.name in reading(topic, tmp_path, connector="spark")["error"]


def passed_by(topic: Topic, reading: Reading, folder: Path) -> None:
    """Let a job stand before records that are not retained any more, and one that is."""
    produce(topic.server, topic.name, [{"value": b"1"}])
    reading(topic, folder, connector="spark")
    produce(topic.server, topic.name, [{"value": each} for each in (b"2", b"3", b"4")])
    topic.server.forget(topic.name, 3)


@pytest.mark.parametrize(("before", "after"), [("spark", "python"), ("python", "spark")])
def test_a_job_that_changes_its_connector_is_told_so(topic, reading, tmp_path, before, after):
    for connector, payload in ((before, b"1"), (after, b"2")):
        topic.append([payload])
        told = reading(topic, tmp_path, connector=connector)
    assert f'say connector="{before}"' in told["error"]


@pytest.mark.parametrize("before", ["spark", "python"])
def test_a_job_stays_with_the_connector_that_it_began_with(topic, reading, tmp_path, before):
    topic.append([b"1"])
    reading(topic, tmp_path, connector=before, max_records=1)
    topic.append([b"2"])
    assert "2" in reading(topic, tmp_path, connector="auto", max_records=1)["values"]
    topic.append([b"3"])
    assert "3" in reading(topic, tmp_path, connector=before, max_records=1)["values"]


def test_passwords_and_certificates_are_handed_on(reading, tmp_path, real_kafka):  # noqa: F811
    tls = tmp_path / "kafka" / "tls"
    # The broker asks for the client's certificate too.
    settings = {f"listener.name.client.ssl.{name}": value for name, value in _client_certificates(tls).items()}
    with running(ApacheKafka(tmp_path / "kafka", {"ada": PASSWORD, "bob": OTHER}, True, settings)) as server:
        own = {"ssl.certificate.location": str(tls / "server.pem"), "ssl.key.location": str(tls / "server.key")}
        topic = test_kafka_sink.Topic(server, options={**server.options("ada"), **own})
        sink = DrivenSink(topic)
        sink.publish(sink.stage(2, topic.rows([1])))
        # The password is in the environment of the process that reads.
        right, wrong = (
            {name: value for name, value in server.options(user).items() if name != "sasl.password"} | own
            for user in ("ada", "bob")
        )
        found = reading(topic, tmp_path / "right", connector="spark", options=right)
        assert found["values"] == ['{"id":1,"name":"name-1"}']
        refused = reading(topic, tmp_path / "wrong", connector="spark", options=wrong)["error"]
        assert "uthentication failed" in refused
        assert PASSWORD not in refused


def _client_certificates(tls: Path) -> dict[str, str]:
    return {"client.auth": "required", "truststore.type": "PEM", "truststore.location": str(tls / "ca.pem")}


def test_certificates_are_named_and_not_shown(monkeypatch):
    monkeypatch.setenv("TIDEWHEEL_KAFKA_SSL_KEY_PEM", "-----BEGIN PRIVATE KEY-----")
    options = java_options(
        {
            "ssl.ca.location": "/etc/ca.pem",
            "ssl.certificate.location": "/etc/own.pem",
            "ssl.key.pem": "-----BEGIN PRIVATE KEY-----",
        }
    )
    assert {name: value for name, value in options.items() if name.startswith("ssl")} == {
        "ssl.truststore.certificates": "${file:/etc:ca.pem}",
        "ssl.truststore.type": "PEM",
        "ssl.keystore.certificate.chain": "${file:/etc:own.pem}",
        "ssl.keystore.key": "${env:TIDEWHEEL_KAFKA_SSL_KEY_PEM}",
        "ssl.keystore.type": "PEM",
    }
    assert options["config.providers"] == "env,file"
    assert "config.providers" not in java_options({"client.id": "tide"})
