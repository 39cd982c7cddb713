"""Codecs of payloads: encoding and decoding by type, and payloads that do not decode."""

from __future__ import annotations

import datetime
from dataclasses import dataclass

import msgspec
import pyarrow as pa
import pytest

from tidewheel import Job, codecs, sinks
from tidewheel._core import pickling
from tidewheel._operators.stateless.decode import decode_all
from tidewheel.errors import ConfigError, GraphError
from tidewheel.sources import iterable
from tidewheel.testing import run_in_memory

AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "user", "type": "string"}, {"name": "amount", "type": "long"}],
}


@dataclass
class Order:
    user: str
    amount: int


class Note(msgspec.Struct):
    text: str
    at: datetime.datetime | None = None


def order_message():
    """Make the class that protoc would, from a description."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    item = file.message_type.add(name="Item")
    item.field.add(name="sku", number=1, type=9, label=1)
    order = file.message_type.add(name="Order")
    order.field.add(name="user", number=1, type=9, label=1)
    order.field.add(name="amount", number=2, type=3, label=1)
    order.field.add(name="items", number=3, type=11, label=3, type_name=".shop.Item")
    order.field.add(name="first", number=4, type=11, label=1, type_name=".shop.Item")
    order.field.add(name="tags", number=5, type=9, label=3)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


CODECS = {
    "json": lambda declared: codecs.json(declared),
    "avro": lambda declared: codecs.avro(AVRO, declared),
    "protobuf": lambda declared: codecs.protobuf(order_message(), declared),
}
ROWS = pa.RecordBatch.from_pylist([{"user": "ada", "amount": 3}, {"user": "bob", "amount": -(2**60)}])


@pytest.mark.parametrize("name", CODECS)
def test_records_are_read_back_as_dicts_or_as_the_declared_type(name):
    for declared in (None, Order):
        codec = pickling.loads(pickling.dumps(CODECS[name](declared)))
        decoded, errors = decode_all(codec, codec.encode(ROWS))
        assert errors == {}
        found = decoded if declared else [{"user": each["user"], "amount": each["amount"]} for each in decoded]
        assert found == ([Order("ada", 3), Order("bob", -(2**60))] if declared else ROWS.to_pylist())


@pytest.mark.parametrize("name", CODECS)
def test_null_payloads_are_distinguished_by_position(name):
    codec = CODECS[name](Order)
    good, other = codec.encode(ROWS)
    decoded, errors = decode_all(codec, [b"\xff\xff\xff", good, None, good + b"\xff", other])
    assert decoded == [Order("ada", 3), Order("bob", -(2**60))]
    assert list(errors) == [0, 2, 3]
    assert errors[0].startswith(f"{name}: ")
    assert errors[2] == "the payload is null"


class Shouted(codecs.PayloadCodec):
    def decode(self, payload):
        return {"text": payload.decode("ascii")}

    def encode(self, columns):
        return [text.encode() for text in columns["text"].to_pylist()]


def test_a_codec_without_a_name_has_the_name_of_its_class_in_errors():
    decoded, errors = decode_all(Shouted(), [b"A", b"\xff"])
    assert decoded == [{"text": "A"}]
    assert errors[1].startswith("Shouted: UnicodeDecodeError: ")


def test_json_checks_fields_and_types():
    decoded, errors = decode_all(codecs.json(Order), [b'{"user":"a"}', b'{"user":1,"amount":2}', b"[]", b"7"])
    assert decoded == []
    assert "missing required field `amount`" in errors[0]
    assert "Expected `str`, got `int`" in errors[1]
    assert decode_all(codecs.json(), [b"[]", b'{"a":1}']) == ([{"a": 1}], {0: errors_of(codecs.json(), b"[]")})
    assert codecs.json(int).decode(b"7") == 7
    assert codecs.json(Note).decode(b'{"text":"x","more":1}') == Note("x")


def errors_of(codec, payload):
    return decode_all(codec, [payload])[1][0]


def test_json_writes_times_bytes_and_nothing():
    row = {"at": datetime.datetime(2026, 1, 31, tzinfo=datetime.UTC), "raw": b"\x00", "none": None, "n": 1.5}
    assert codecs.json().encode(pa.RecordBatch.from_pylist([row])) == [
        b'{"at":"2026-01-31T00:00:00Z","raw":"AA==","none":null,"n":1.5}'
    ]


def test_avro_accepts_a_schema_as_text_and_rejects_trailing_bytes():
    codec = codecs.avro(msgspec.json.encode(AVRO).decode())
    (payload, _) = codec.encode(ROWS)
    assert errors_of(codec, payload + b"xx") == "avro: ValueError: 2 bytes are left behind the record"
    with pytest.raises(ConfigError, match="the Avro schema cannot be used"):
        codecs.avro("{")
    with pytest.raises(ConfigError, match="does not fit the Avro schema"):
        codec.encode(pa.RecordBatch.from_pylist([{"user": 1, "amount": 2}]))


def test_protobuf_gives_nested_messages_lists_and_what_is_not_set():
    message = order_message()
    payload = message(user="ada", items=[{"sku": "x"}], tags=["t"]).SerializeToString()
    assert codecs.protobuf(message).decode(payload) == {
        "user": "ada",
        "amount": 0,
        "items": [{"sku": "x"}],
        "first": None,
        "tags": ["t"],
    }
    with pytest.raises(ConfigError, match="takes a class that protoc generated, not <class 'int'>"):
        codecs.protobuf(int)
    with pytest.raises(ConfigError, match=r"does not fit the message shop\.Order"):
        codecs.protobuf(message).encode(pa.RecordBatch.from_pylist([{"nope": 1}]))


def test_raw_sends_one_column_and_names_the_missing_one():
    assert codecs.raw().encode(pa.RecordBatch.from_pylist([{"value": "é"}, {"value": None}])) == ["é".encode(), None]
    with pytest.raises(ConfigError, match="sends the column 'value', and the records have user, amount"):
        codecs.raw().encode(ROWS)
    with pytest.raises(ConfigError, match="sends bytes or text, and the column 'amount' is int64"):
        codecs.raw("amount").encode(ROWS)


def test_a_declared_type_other_than_a_record_is_refused():
    with pytest.raises(ConfigError, match=r"decodes into a dataclass, a msgspec\.Struct or a plain type"):
        codecs.json(object())


def program(codec, records):
    job = Job("decoding", state="memory:decoding", n_shards=4)
    out, dead = sinks.collect(), sinks.collect()
    good = job.source("in", iterable(records)).decode("parse", codec)
    bad = good.broken
    good.sink("out", out)
    bad.sink("dead", dead)
    return job, out, dead


def test_dead_letters_keep_their_bytes_and_their_columns_and_are_counted():
    records = [{"value": b'{"user":"ada","amount":1}', "offset": 7}, {"value": b"oops", "offset": 8}]
    job, out, dead = program(codecs.json(Order), records)
    run_in_memory(job, {"in": records})
    assert out.records == [{"user": "ada", "amount": 1}]
    (letter,) = dead.records
    assert (letter["value"], letter["offset"]) == (b"oops", 8)
    assert letter["error"].startswith("json: DecodeError: ")


def test_dead_letters_must_lead_somewhere():
    job = Job("decoding", state="memory:decoding-2", n_shards=4)
    job.source("in", iterable([{"value": b""}])).decode("parse", codecs.json()).sink("out", sinks.discard())
    with pytest.raises(GraphError, match=r"output 1 of step 'parse' \(decode\) is not read, .* would be lost"):
        job.plan()


def test_an_invalid_codec_or_column_is_refused():
    job = Job("decoding", state="memory:decoding-3", n_shards=4)
    stream = job.source("in", iterable([{"value": b""}]))
    with pytest.raises(ConfigError, match=r"is not a codec of payloads; see tidewheel\.codecs"):
        stream.decode("parse", "json")  # type: ignore[arg-type]
    with pytest.raises(GraphError, match="there is no column 'payload' to decode; the columns are user, amount"):
        stream.decode("first", codecs.json(Order)).decode("again", codecs.json(), column="payload")
