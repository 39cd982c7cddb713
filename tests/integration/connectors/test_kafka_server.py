"""The broker of the tests: its data survive a kill, and a replacement for Apache Kafka is reported."""

from __future__ import annotations

from integration.connectors.test_kafka_source import MortalTopic
from servers import kafka_jars, kafka_server
from tidewheel.testing.connectors import DrivenSource


def test_its_content_survives_a_kill(durable_kafka):
    topic = MortalTopic(durable_kafka, 2)
    topic.append([b"1", b"2", b"3"])
    where = durable_kafka.brokers
    for _ in range(2):
        durable_kafka.kill()
        durable_kafka.start()
    assert durable_kafka.brokers == where
    source = DrivenSource(topic)
    assert sorted(source.read(source.start(), source.end(source.start()))) == [b"1", b"2", b"3"]


def test_without_maven_another_tool_is_used_with_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(kafka_jars, "_CACHE", tmp_path)
    monkeypatch.setattr(kafka_jars.shutil, "which", lambda name: None)
    monkeypatch.delenv("TIDEWHEEL_TEST_KAFKA", raising=False)
    assert not kafka_server.is_real.__wrapped__()
    (line,) = capsys.readouterr().err.splitlines()
    assert "there is no `mvn` on the PATH" in line
