"""Debezium's events in Avro with a real schema registry: the table follows, also over a change of its schema."""

from __future__ import annotations

import datetime

import pytest

from integration.connectors.test_registry import avro_payload, register, topic
from servers.registry_server import registry  # noqa: F401
from tidewheel import Job, StoredJob, codecs, sinks, sources
from tidewheel.errors import ConfigError
from tidewheel.testing import run_in_memory

AT = datetime.datetime(2026, 3, 1, 9, tzinfo=datetime.UTC)
KEY = {"type": "record", "name": "Key", "namespace": "shop.customers", "fields": [{"name": "id", "type": "long"}]}
ROW = [{"name": "id", "type": "long"}, {"name": "name", "type": ["null", "string"], "default": None}]
CITY = {"name": "city", "type": ["null", "string"], "default": None}


def envelope(*columns):
    """Return the schema of events as Kafka Connect makes it."""
    row = {"type": "record", "name": "Value", "fields": list(columns)}
    source = [{"name": name, "type": "string"} for name in ("schema", "table")] + [{"name": "ts_ms", "type": "long"}]
    return {
        "type": "record",
        "name": "Envelope",
        "namespace": "shop.customers",
        "fields": [
            {"name": "before", "type": ["null", row], "default": None},
            {"name": "after", "type": ["null", "Value"], "default": None},
            {"name": "source", "type": {"type": "record", "name": "Source", "fields": source}},
            {"name": "op", "type": "string"},
        ],
    }


OLD, NEW = envelope(*ROW), envelope(*ROW, CITY)


class Topic:
    """What a connector writes to its topic, with both schemas of the table and of its key registered."""

    def __init__(self, registry) -> None:  # noqa: F811
        name = topic()
        self.key = register(registry, f"{name}-key", KEY)
        self.ids = {len(str(each)): register(registry, f"{name}-value", each) for each in (OLD, NEW)}
        self.minutes = 0

    def message(self, op, row, schema=OLD, key=True):
        self.minutes += 1
        time = AT + datetime.timedelta(minutes=self.minutes)
        source = {"schema": "public", "table": "customers", "ts_ms": int(time.timestamp() * 1000)}
        before, after = (row, None) if op == "d" else (None, row)
        event = {"before": before, "after": after, "source": source, "op": op}
        payload = avro_payload(self.ids[len(str(schema))], schema, event)
        return {"key": self.key_of(row["id"]) if key else None, "value": payload, "timestamp": time}

    def tombstone(self, id):
        return {"key": self.key_of(id), "value": None, "timestamp": AT + datetime.timedelta(minutes=self.minutes)}

    def key_of(self, id):
        return avro_payload(self.key, KEY, {"id": id})


def job_of(registry, state):  # noqa: F811
    job = Job("shop", state=state)
    changes = job.source("in", sources.kafka("broker:9092", "customers")).decode(
        "changes", codecs.debezium(codecs.avro(registry=registry.url))
    )
    changes.broken.sink("broken", sinks.collect())
    changes.upserts("customers", key="id").sink("copy", sinks.collect())
    return job


def test_snapshots_changes_deletes_and_tombstones_over_a_change_of_the_schema(registry):  # noqa: F811
    sent = Topic(registry)
    first = [
        sent.message("r", {"id": 1, "name": "Ada"}),
        sent.message("r", {"id": 2, "name": "Bob"}),
        sent.message("u", {"id": 1, "name": "Ada L."}),
    ]
    second = [
        sent.message("u", {"id": 2, "name": "Bob", "city": "Rome"}, NEW),
        sent.message("d", {"id": 1, "name": "Ada L.", "city": None}, NEW),
        sent.tombstone(1),
        sent.message("c", {"id": 3, "name": "Cyd", "city": "Oslo"}, NEW),
    ]
    # A connector that crashed sends again what it has sent.
    result = run_in_memory(job_of(registry, "memory:debezium-avro"), [{"in": first}, {"in": [*first[2:], *second]}])
    assert result.outputs["broken"] == []
    copy = [(row["id"], row["name"], row.get("city"), row["_deleted"]) for row in result.outputs["copy"]]
    assert copy == [
        (1, "Ada", None, False),
        (2, "Bob", None, False),
        (1, "Ada L.", None, False),
        (2, "Bob", "Rome", False),
        (1, "Ada L.", None, True),
        (3, "Cyd", "Oslo", False),
    ]


def test_an_event_without_a_key_ends_the_run_before_anything_is_committed(registry):  # noqa: F811
    sent, state = Topic(registry), "memory:debezium-keyless"
    keyless = sent.message("c", {"id": 1, "name": "Ada"}, key=False)
    with pytest.raises(ConfigError, match=r"a Debezium event of the table public.customers has no key"):
        run_in_memory(job_of(registry, state), {"in": [keyless]}, state=state)
    assert StoredJob("shop", state=state).show().batch is None
