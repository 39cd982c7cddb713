"""The codec debezium: envelopes of changes, snapshots, tombstones, and other messages."""

from __future__ import annotations

import datetime
import io
import json

import fastavro
import pytest

from support.debezium_events import NOW, message, tombstone
from tidewheel import Job, codecs, sinks
from tidewheel._operators.stateless.decode import decode_all
from tidewheel.codecs import Change
from tidewheel.errors import ConfigError
from tidewheel.sources import iterable
from tidewheel.testing import run_in_memory

TIME = datetime.datetime.fromtimestamp(NOW / 1000, datetime.UTC)
ROW = {"id": 1, "name": "ada"}


def decoded(*messages):
    """Run messages through a step; return the changes and the broken messages."""
    changes = []
    job = Job("decoded")
    stream = job.source("in", iterable(list(messages))).decode("change", codecs.debezium())
    stream.inspect("seen", changes.append).map("op", lambda change: change.op).sink("out", sinks.discard())
    stream.broken.sink("broken", sinks.collect())
    return changes, run_in_memory(job).outputs["broken"]


@pytest.mark.parametrize("schemas", [False, True])
@pytest.mark.parametrize(("op", "name"), [("c", "insert"), ("u", "update"), ("r", "snapshot")])
def test_an_envelope_becomes_a_change(op, name, schemas):
    changes, broken = decoded(message(op, ROW, schemas=schemas))
    assert changes == [Change(name, "public.customers", ROW, None, {"id": 1}, TIME)]
    assert broken == []


def test_a_delete_has_no_row_and_what_the_database_logged_before():
    changes, _ = decoded(message("d", ROW))
    assert changes == [Change("delete", "public.customers", None, {"id": 1, "name": None}, {"id": 1}, TIME)]


def test_a_tombstone_is_a_delete_by_its_key_at_the_time_of_its_message():
    changes, _ = decoded({**tombstone(1), "timestamp": TIME})
    assert changes == [Change("delete", "", None, key={"id": 1}, time=TIME)]


UNAVAILABLE = "__debezium_unavailable_value"


@pytest.mark.parametrize(
    "value",
    [
        UNAVAILABLE,
        "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ==",
        "5f5f646562657a69756d5f756e617661696c61626c655f76616c7565",
        json.dumps({UNAVAILABLE: UNAVAILABLE}, separators=(",", ":")),
        {UNAVAILABLE: UNAVAILABLE},
        [UNAVAILABLE],
        ["b68a35a7-17ad-35b3-af2a-ae46edb4545a"],
        list(UNAVAILABLE.encode()),
    ],
    ids=["text", "base64", "hex", "pairs as text", "pairs", "texts", "uuids", "numbers"],
)
def test_a_column_that_the_database_did_not_log_is_listed_and_left_out(value):
    """The text of the connectors has another form in columns of other types."""
    (change,), _ = decoded(message("u", {**ROW, "note": value}))
    assert (change.row, change.unchanged) == (ROW, ("note",))


def test_rows_after_a_schema_change_have_their_own_columns():
    changes, _ = decoded(message("c", ROW), message("u", {"id": 1, "full_name": "Ada L."}))
    assert [change.row for change in changes] == [ROW, {"id": 1, "full_name": "Ada L."}]


def test_a_message_without_a_key_ends_the_run_and_names_the_table():
    with pytest.raises(ConfigError, match=r"event of the table public\.customers has no key.*message\.key\.columns"):
        decoded({**message("c", ROW), "key": None}, {**message("c", ROW), "key": b'{"id": 1}'})


def test_events_without_a_key_column_are_read_and_a_null_payload_is_broken():
    values = [message("c", ROW)["value"], None]
    changes, errors = decode_all(codecs.debezium(), [(value, ..., ...) for value in values])
    assert [change.row for change in changes] == [ROW]
    assert "the payload is null, and the message has no key" in errors[1]


@pytest.mark.parametrize(
    ("event", "error"),
    [
        ({"op": "t", "source": {"db": "shop", "table": "customers"}}, "table shop.customers was truncated"),
        ({"ddl": "ALTER TABLE", "tableChanges": []}, "schema change topic"),
        ({"op": "m"}, "op must be c, u, d or r, not 'm'"),
        ({"id": 1}, "rows without an envelope"),
        ({"op": "c", "after": None}, "op is c, and after is null"),
        ({"op": "c", "after": "{}"}, "after of the event is str"),
    ],
)
def test_an_event_that_changes_no_row_is_broken(event, error):
    changes, broken = decoded({"key": b'{"id": 1}', "value": json.dumps(event).encode()})
    assert changes == []
    assert error in broken[0]["error"]


def test_it_reads_avro_envelopes():
    row = {
        "type": "record",
        "name": "Value",
        "fields": [{"name": "id", "type": "long"}, {"name": "name", "type": "string"}],
    }
    schema = {
        "type": "record",
        "name": "Envelope",
        "fields": [
            {"name": "before", "type": ["null", row], "default": None},
            {"name": "after", "type": ["null", "Value"], "default": None},
            {"name": "op", "type": "string"},
            {"name": "ts_ms", "type": ["null", "long"], "default": None},
        ],
    }
    key = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "long"}]}
    written = []
    for each, record in ((schema, {"after": ROW, "op": "c", "ts_ms": NOW}), (key, {"id": 1})):
        out = io.BytesIO()
        fastavro.schemaless_writer(out, fastavro.parse_schema(each), record)
        written.append(out.getvalue())
    codec = codecs.debezium(codecs.avro(schema), key=codecs.avro(key))
    assert codec.decode_message(*written, TIME) == Change("insert", "", ROW, None, {"id": 1}, TIME)


def test_it_does_not_write():
    with pytest.raises(ConfigError, match="cannot write"):
        codecs.debezium().encode(None)
