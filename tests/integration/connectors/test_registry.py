"""Codecs with a schema registry: Apicurio Registry, and a small server for answers that Apicurio does not give."""

from __future__ import annotations

import http.server
import json
import secrets
import struct
import threading
from contextlib import contextmanager
from dataclasses import dataclass

import fastavro
import pyarrow as pa
import pytest
from confluent_kafka import Consumer, Producer

from servers.kafka_server import Kafka
from servers.registry_server import registry  # noqa: F401
from servers.stores import free_ports
from tidewheel import Job, RunOptions, StoredJob, codecs, sinks, sources
from tidewheel._core import pickling
from tidewheel._operators.stateless.decode import decode_all
from tidewheel.errors import ConfigError, ConnectorUnavailable, Retry
from tidewheel.testing import MemoryRun, run_in_memory

PASSWORD = "hunter2-and-more"
ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [{"name": "user", "type": "string"}, {"name": "cents", "type": "long"}],
}
PLACE = {"name": "place", "type": "string", "default": "Rome"}
ORDER_WITH_PLACE = {**ORDER, "fields": [*ORDER["fields"], PLACE]}
ORDER_WITHOUT_DEFAULT = {**ORDER, "fields": [*ORDER["fields"], {"name": "place", "type": "string"}]}
ROWS = pa.RecordBatch.from_pylist([{"user": "ada", "cents": 3}, {"user": "bob", "cents": -(2**60)}])


@dataclass
class Order:
    user: str
    cents: int


def messages(path: str):
    """Make a class that protoc would: a message with a message in it, behind another message."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    file.message_type.add(name="Other")
    order = file.message_type.add(name="Order")
    for each in (order, order.nested_type.add(name="Line")):
        each.field.add(name="user", number=1, type=9, label=1)
        each.field.add(name="cents", number=2, type=3, label=1)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(path))


CODECS = {
    "avro": lambda **more: codecs.avro(ORDER, Order, **more),
    "json": lambda **more: codecs.json(Order, **more),
    "protobuf": lambda **more: codecs.protobuf(messages("shop.Order"), Order, **more),
}


def topic() -> str:
    return f"topic-{secrets.token_hex(4)}"


def register(registry, subject: str, schema, **more) -> int:  # noqa: F811
    return registry.ask("POST", f"/subjects/{subject}/versions", {"schema": json.dumps(schema), **more})["id"]


def avro_payload(number: int, schema, record) -> bytes:
    import io

    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, record)
    return struct.pack(">bI", 0, number) + out.getvalue()


@pytest.mark.parametrize("name", CODECS)
def test_payloads_name_the_schema_that_is_registered_for_the_topic(registry, name):  # noqa: F811
    name_of_topic = topic()
    codec = CODECS[name](registry=registry.url).for_topic(name_of_topic)
    codec.prepare()
    payloads = pickling.loads(pickling.dumps(codec)).encode(ROWS)
    registered = registry.ask("GET", f"/subjects/{name_of_topic}-value/versions/latest")
    assert [struct.unpack(">bI", payload[:5]) for payload in payloads] == [(0, registered["id"])] * 2
    assert registered.get("schemaType", "AVRO") == name.upper()
    reading = pickling.loads(pickling.dumps(CODECS[name](registry=registry.url)))
    assert [reading.decode(payload) for payload in payloads] == [Order("ada", 3), Order("bob", -(2**60))]


@pytest.mark.parametrize("name", CODECS)
def test_a_second_start_uses_the_registered_schema(registry, name):  # noqa: F811
    name_of_topic = topic()
    for _ in range(2):
        CODECS[name](registry=registry.url).for_topic(name_of_topic).prepare()
    assert registry.ask("GET", f"/subjects/{name_of_topic}-value/versions") == [1]


@pytest.mark.parametrize(("subject", "expected"), [("{record}", "shop.Order"), ("{topic}-{record}", "{}-shop.Order")])
def test_a_subject_can_be_the_record_or_topic_and_record(registry, subject, expected):  # noqa: F811
    name_of_topic = topic()
    codecs.avro(ORDER, registry=registry.url, subject=subject).for_topic(name_of_topic).prepare()
    assert registry.ask("GET", f"/subjects/{expected.format(name_of_topic)}/versions") == [1]


def test_avro_is_read_with_the_schema_that_it_was_written_with(registry):  # noqa: F811
    old, new = (register(registry, f"{topic()}-value", schema) for schema in (ORDER, ORDER_WITH_PLACE))
    payloads = [
        avro_payload(old, ORDER, {"user": "ada", "cents": 3}),
        avro_payload(new, ORDER_WITH_PLACE, {"user": "bob", "cents": 4, "place": "Oslo"}),
    ]

    def read(schema):
        return [codecs.avro(schema, registry=registry.url).decode(payload) for payload in payloads]

    ada, bob = {"user": "ada", "cents": 3}, {"user": "bob", "cents": 4}
    assert read(None) == [ada, {**bob, "place": "Oslo"}]
    assert read(ORDER) == [ada, bob]
    assert read(ORDER_WITH_PLACE) == [{**ada, "place": "Rome"}, {**bob, "place": "Oslo"}]


def test_avro_schemas_that_refer_to_others_are_read(registry):  # noqa: F811
    subject = f"{topic()}-value"
    register(registry, subject, ORDER)
    cart = {"type": "record", "name": "Cart", "namespace": "shop", "fields": [{"name": "first", "type": "shop.Order"}]}
    references = [{"name": "shop.Order", "subject": subject, "version": 1}]
    number = register(registry, f"{topic()}-value", cart, references=references)
    whole = {**cart, "fields": [{"name": "first", "type": ORDER}]}
    payload = avro_payload(number, whole, {"first": {"user": "ada", "cents": 3}})
    assert codecs.avro(registry=registry.url).decode(payload) == {"first": {"user": "ada", "cents": 3}}


def test_messages_inside_messages_name_their_place(registry):  # noqa: F811
    codec = codecs.protobuf(messages("shop.Order.Line"), registry=registry.url).for_topic(topic())
    payload = codec.encode(ROWS)[0]
    assert payload[5:8] == bytes((4, 2, 0))
    assert codec.decode(payload) == {"user": "ada", "cents": 3}


def test_a_payload_with_a_wrong_or_missing_schema_id_is_a_broken_record(registry):  # noqa: F811
    number = register(
        registry, f"{topic()}-value", {"type": "object", "properties": {"a": {"type": "integer"}}}, schemaType="JSON"
    )
    good = codecs.avro(ORDER, registry=registry.url).for_topic(topic()).encode(ROWS)[0]
    payloads = [
        avro_payload(99_999, ORDER, {"user": "ada", "cents": 3}),
        struct.pack(">bI", 0, number),
        b"\x01abcdef",
        b"",
        good,
    ]
    decoded, errors = decode_all(codecs.avro(registry=registry.url), payloads)
    assert decoded == [{"user": "ada", "cents": 3}]
    assert [text.partition(": ")[2] for text in errors.values()] == [
        f"UnknownSchema: the schema registry {registry.url} has no schema with the id 99999",
        f"ValueError: its schema {number} is of the type JSON, not AVRO",
        *["ValueError: the payload does not begin with a zero byte and the id of a schema"] * 2,
    ]


def test_an_incompatible_schema_is_refused_before_anything_is_committed(spark, tmp_path, kafka: Kafka, registry):  # noqa: F811
    name = topic()
    kafka.create(name)
    register(registry, f"{name}-value", ORDER)
    registry.ask("PUT", f"/config/{name}-value", {"compatibility": "BACKWARD"})
    job = Job(name, state=f"file://{tmp_path}/state")
    rows = sources.iterable([{"user": "ada", "cents": 3, "place": "Oslo"}])
    codec = codecs.avro(ORDER_WITHOUT_DEFAULT, registry=registry.url)
    job.source("in", rows).sink("out", sinks.kafka(kafka.brokers, name, codec=codec))
    with pytest.raises(
        ConfigError, match=rf"incompatible with the newest one of the subject '{name}-value'.*place.*Nothing"
    ):
        job.run(until="end", options=RunOptions(spark=spark, local=str(tmp_path / "local")))
    assert registry.ask("GET", f"/subjects/{name}-value/versions") == [1]
    assert read_all(kafka, name, 0) == []


def test_a_registry_that_is_down_refuses_the_start_before_anything_is_read(kafka: Kafka):
    name = topic()
    kafka.create(name)
    job = Job(name, state=f"memory:{name}", n_shards=2)
    codec = codecs.avro(ORDER, registry=f"http://127.0.0.1:{free_ports(1)[0]}")
    job.source("in", sources.iterable([])).sink("out", sinks.kafka(kafka.brokers, name, codec=codec))
    with pytest.raises(ConnectorUnavailable, match="schema registry"), MemoryRun(job):
        pytest.fail("the run has begun")
    assert StoredJob(name, state=job.state).show().batch is None
    assert read_all(kafka, name, 0) == []


def read_all(kafka: Kafka, name: str, count: int) -> list[bytes]:
    """Read the first records of a topic, and show that there are no more."""
    from confluent_kafka import TopicPartition

    consumer = Consumer({"bootstrap.servers": kafka.brokers, "group.id": name, "enable.partition.eof": True})
    consumer.assign([TopicPartition(name, 0, 0)])
    found = []
    while (message := consumer.poll(30)) is not None and message.error() is None:
        found.append(message.value())
    consumer.close()
    assert len(found) == count
    return found


def test_records_go_from_topic_to_topic_by_their_schemas(spark, tmp_path, kafka: Kafka, registry):  # noqa: F811
    incoming, outgoing = topic(), topic()
    for each in (incoming, outgoing):
        kafka.create(each)
    number = register(registry, f"{incoming}-value", ORDER_WITH_PLACE)
    producer = Producer({"bootstrap.servers": kafka.brokers})
    for payload in (avro_payload(number, ORDER_WITH_PLACE, {"user": "ada", "cents": 3, "place": "Oslo"}), b"?"):
        producer.produce(incoming, payload)
    producer.flush(30)
    job = Job(outgoing, state=f"file://{tmp_path}/state")
    orders = job.source("in", sources.kafka(kafka.brokers, incoming)).decode(
        "orders", codecs.avro(registry=registry.url)
    )
    orders.broken.sink("broken", broken := sinks.collect())
    out = codecs.avro(ORDER, registry=registry.url)
    orders.map("rise", lambda order: {**order, "cents": order["cents"] + 1}).sink(
        "out", sinks.kafka(kafka.brokers, outgoing, codec=out)
    )
    job.run(until="end", options=RunOptions(spark=spark, local=str(tmp_path / "local")))
    assert [record["value"] for record in broken.records] == [b"?"]
    (payload,) = read_all(kafka, outgoing, 1)
    latest = registry.ask("GET", f"/subjects/{outgoing}-value/versions/latest")
    assert payload == avro_payload(latest["id"], json.loads(latest["schema"]), {"user": "ada", "cents": 4})


def test_json_that_does_not_match_its_type_is_not_written(registry):  # noqa: F811
    codec = codecs.json(Order, registry=registry.url).for_topic(topic())
    with pytest.raises(ConfigError, match=r'\{"user":"ada"\} does not match its type: .*`cents`'):
        codec.encode(pa.RecordBatch.from_pylist([{"user": "ada"}]))


class Answers(http.server.ThreadingHTTPServer):
    """Gives one answer to every request, and keeps what was asked."""

    daemon_threads = True

    def __init__(self, status: int, body: str = "{}", headers: dict[str, str] | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status, self.body, self.headers = status, body.encode(), headers or {}
        self.asked: list[tuple[str, str | None]] = []

    def url(self, login: str = "") -> str:
        return f"http://{login}127.0.0.1:{self.server_address[1]}/some/path"


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Answers

    def do_GET(self) -> None:
        self.server.asked.append((self.path, self.headers["Authorization"]))
        self.send_response(self.server.status)
        for name, value in {**self.server.headers, "Content-Length": str(len(self.server.body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(self.server.body)

    def log_message(self, *arguments) -> None:
        pass


@contextmanager
def answering(*arguments, **more):
    server = Answers(*arguments, **more)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


PAYLOAD = avro_payload(1, ORDER, {"user": "ada", "cents": 3})


@pytest.mark.parametrize(
    ("login", "sent"),
    [(f"ada:{PASSWORD}@", "Basic YWRhOmh1bnRlcjItYW5kLW1vcmU="), ("token@", "Bearer token"), ("", None)],
)
def test_the_login_of_the_url_is_sent_and_each_schema_is_fetched_once(login, sent):
    with answering(200, json.dumps({"schema": json.dumps(ORDER)})) as server:
        codec = codecs.avro(registry=server.url(login))
        assert decode_all(codec, [PAYLOAD] * 3)[0] == [{"user": "ada", "cents": 3}] * 3
        assert decode_all(pickling.loads(pickling.dumps(codec)), [PAYLOAD])[1] == {}
        assert server.asked == [("/some/path/schemas/ids/1", sent)]


def test_an_unknown_id_is_asked_for_once_in_a_while():
    with answering(404, json.dumps({"error_code": 40403, "message": "no"})) as server:
        assert len(decode_all(codecs.avro(registry=server.url()), [PAYLOAD] * 50)[1]) == 50
        assert len(server.asked) == 1


def test_a_redirect_is_not_followed_and_its_target_gets_no_login():
    with answering(200) as other, answering(302, headers={"Location": other.url()}) as server:
        with pytest.raises(ConfigError, match="answers HTTP 302, and not as a schema registry does"):
            codecs.avro(registry=server.url(f"ada:{PASSWORD}@")).decode(PAYLOAD)
        assert other.asked == []


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_login_ends_the_run_and_shows_no_password(status):
    with answering(status) as server:
        job = Job("refused", state=f"memory:refused-{status}")
        codec = codecs.avro(registry=server.url(f"ada:{PASSWORD}@"))
        orders = job.source("in", sources.iterable([PAYLOAD])).decode("orders", codec)
        orders.sink("out", sinks.collect())
        orders.broken.sink("broken", broken := sinks.collect())
        with pytest.raises(Exception, match=rf"refuses the log-in \(HTTP {status}\)") as caught:
            run_in_memory(job)
    assert PASSWORD not in f"{caught.value!r} {codec!r} {vars(codec)}".replace(repr(codec._registry), "")
    assert broken.records == []


@pytest.mark.parametrize("end", ["%0A", "\u2026"])
def test_a_token_that_cannot_be_sent_is_refused_and_not_shown(end):
    """Python's own error shows the header, and it would be the error of each payload in the dead letters."""
    with pytest.raises(ConfigError, match="has a character that no token has") as caught:
        codecs.avro(registry=f"http://{PASSWORD}{end}@localhost:1")
    assert PASSWORD not in str(caught.value)


@pytest.mark.parametrize("status", [429, 500, 503])
def test_an_outage_repeats_the_batch_and_breaks_no_record(status):
    with answering(status) as server:
        job = Job("outage", state=f"memory:outage-{status}")
        orders = job.source("in", sources.iterable([PAYLOAD])).decode("orders", codecs.avro(registry=server.url()))
        orders.sink("out", sinks.collect())
        orders.broken.sink("broken", broken := sinks.collect())
        with pytest.raises(Retry, match=f"the schema registry .* fails: HTTP {status}"):
            run_in_memory(job)
    assert broken.records == []
    with pytest.raises(ConnectorUnavailable, match="does not answer: ConnectionRefusedError"):
        codecs.avro(ORDER, registry=server.url()).for_topic("orders").prepare()


def test_settings_that_cannot_work_are_refused():
    for mistake, text in (
        (lambda: codecs.avro(), "needs a schema, or the URL of a schema registry"),
        (lambda: codecs.avro(registry="registry:8081"), "must name a schema registry, as in https://"),
        (lambda: codecs.avro(registry="http://a,b"), "names several hosts"),
        (lambda: codecs.json(registry=7), "registry= is the URL of a schema registry, not 7"),
        (lambda: codecs.json(Order, registry="http://a", subject="{name}"), "subject= is text in which"),
        (lambda: codecs.json(Order, registry="http://a").prepare(), "no topic for the subject"),
        (lambda: codecs.json(registry="http://a").for_topic("t").prepare(), "needs a type"),
        (lambda: codecs.avro(registry="http://a").for_topic("t").prepare(), "needs a schema"),
    ):
        with pytest.raises(ConfigError, match=text):
            mistake()
