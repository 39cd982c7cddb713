"""Kafka with passwords and certificates: valid ones work, invalid ones give an error that says what to check."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest

from integration.connectors.test_kafka_sink import Topic
from integration.connectors.test_kafka_source import offsets_in
from servers.apache_kafka import ApacheKafka
from servers.kafka_server import is_real, running
from servers.stores import make_certificates
from tidewheel import sinks, sources
from tidewheel.errors import ConfigError
from tidewheel.testing.connectors import DrivenSink

USER, PASSWORD, WRONG = "ada", f"right-{secrets.token_hex(8)}", f"wrong-{secrets.token_hex(8)}"


@pytest.fixture(scope="module", params=["sasl", "tls", "sasl and tls"])
def server(request, tmp_path_factory) -> Iterator[ApacheKafka]:
    if not is_real():
        pytest.skip("the broker is not Apache Kafka")
    users = {USER: PASSWORD} if "sasl" in request.param else None
    with running(ApacheKafka(tmp_path_factory.mktemp("kafka"), users, "tls" in request.param)) as server:
        yield server


def test_who_may_come_in_writes_and_reads(server):
    topic = Topic(server, options=server.options(USER))
    sink = DrivenSink(topic)
    for sequence in (2, 3):
        sink.publish(sink.stage(sequence, topic.rows([sequence])))
    assert sorted(row["id"] for row in topic.contents()) == [2, 3]


def test_a_missing_permission_is_reported_without_the_password(server, tmp_path):
    options = server.options(USER)
    if "sasl.password" in options:
        options["sasl.password"] = WRONG
    else:
        options["ssl.ca.location"] = str(make_certificates(tmp_path / "others") / "ca.pem")
    for refused in (
        lambda: sources.kafka(server.brokers, "t", timeout="10 s", options=options).reader().start(),
        lambda: sinks.kafka(server.brokers, "t", timeout="10 s", options=options).start("orders"),
    ):
        with pytest.raises(ConfigError, match=r"check the options security\.protocol, sasl\.\* and ssl\.\*") as told:
            refused()
        assert WRONG not in str(told.value)


def test_who_may_read_the_topic_needs_no_other_right(tmp_path):
    if not is_real():
        pytest.skip("the broker is not Apache Kafka")
    rights = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with running(ApacheKafka(tmp_path, {USER: PASSWORD}, settings=rights)) as server:
        server.create("t")
        server.allow_to_read(USER, "t")
        reader = sources.kafka(server.brokers, "t", timeout="10 s", options=server.options(USER)).reader()
        assert offsets_in(reader.end(reader.start())) == {"t/0": 0}
