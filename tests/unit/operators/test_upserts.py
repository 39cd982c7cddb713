"""upserts: a table in state that follows the changes of another, and joins with it."""

from __future__ import annotations

import datetime
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.debezium_events import NOW, history, message, tombstone
from tidewheel import Job, codecs, sinks
from tidewheel._testing.result import result_of
from tidewheel.errors import GraphError, StepError
from tidewheel.sources import iterable
from tidewheel.testing import MemoryRun, run_in_memory

MESSAGE = {"key": b"", "value": b"", "timestamp": datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)}


def stamped(messages):
    """Return the messages with the time at which the topic got them."""
    return [{**MESSAGE, **each} for each in messages]


def changes_of(job, messages, **options):
    stream = job.source("changes", iterable(stamped(messages), **options)).decode("change", codecs.debezium())
    stream.broken.sink("broken", sinks.discard())
    return stream


def emitted(messages, **options):
    """Return what upserts emits, and the table that it keeps."""
    job = Job("table")
    changes_of(job, messages).upserts("customers", key="id", **options).sink("out", sinks.collect())
    ran = run_in_memory(job)
    return ran.outputs["out"], ran.states["customers"] if ran.states else {}


def test_changes_are_emitted_with_their_effect_on_the_row():
    rows, table = emitted(
        [
            message("r", {"id": 1, "name": "ada"}),
            message("u", {"id": 1, "name": "Ada"}),
            message("d", {"id": 1, "name": ""}),
        ]
    )
    assert [(row["name"], row["_deleted"]) for row in rows] == [("ada", False), ("Ada", False), ("Ada", True)]
    assert table == {}


def test_changes_that_change_nothing_emit_nothing():
    ada = message("c", {"id": 1, "name": "ada"})
    rows, table = emitted([ada, ada, message("d", {"id": 2, "name": ""}), tombstone(2)])
    assert [row["id"] for row in rows] == [1]
    assert table == {1: {"id": 1, "name": "ada"}}


def test_a_tombstone_alone_deletes_the_row():
    rows, table = emitted([message("c", {"id": 1, "name": "ada"}), tombstone(1)])
    assert [row["_deleted"] for row in rows] == [False, True]
    assert table == {}


def test_a_column_that_an_update_lacks_keeps_its_value():
    lacking = message("u", {"id": 1, "name": "Ada", "note": "__debezium_unavailable_value"})
    rows, _ = emitted([message("c", {"id": 1, "name": "ada", "note": "long"}), lacking])
    assert rows[-1] == {"id": 1, "name": "Ada", "note": "long", "_deleted": False}


def test_a_key_of_several_columns():
    job = Job("pairs")
    records = [{"shop": "a", "id": 1, "n": 1}, {"shop": "b", "id": 1, "n": 2}, {"shop": "a", "id": 1, "n": 3}]
    job.source("in", iterable(records)).upserts("stock", key=("shop", "id")).sink("out", sinks.collect())
    ran = run_in_memory(job)
    assert ran.states["stock"] == {("a", 1): records[2], ("b", 1): records[1]}
    assert all(record.keys() == {"shop", "id", "n", "_deleted"} for record in ran.outputs["out"])


@pytest.mark.parametrize("delete", ["gone", lambda record: record.gone])
def test_records_of_ones_own_name_their_deletes(delete):
    job = Job("own")
    records = [{"id": 1, "n": 1, "gone": False}, {"id": 2, "n": 2, "gone": None}, {"id": 1, "n": 1, "gone": True}]
    job.source("in", iterable(records)).upserts("own", key="id", delete=delete).sink("out", sinks.collect())
    ran = run_in_memory(job)
    assert [(row["id"], row["_deleted"]) for row in ran.outputs["out"]] == [(1, False), (2, False), (1, True)]
    assert ("gone" in ran.states["own"][2]) == callable(delete)


def test_a_change_without_a_value_in_the_key_column_names_table_and_columns():
    job = Job("lacking")
    changes = changes_of(job, [message("c", {"id": 1, "name": "ada"})])
    changes.upserts("customers", key="number").sink("out", sinks.discard())
    text = r"insert of the table public\.customers has no value in the key column 'number'.*id, name"
    with pytest.raises(StepError, match=text):
        run_in_memory(job)


@pytest.mark.parametrize("key", [(), "", [1], None, lambda record: 1])
def test_the_key_is_named_by_columns(key):
    with pytest.raises(GraphError, match="key= names the columns of the primary key"):
        Job("key").source("in", iterable([])).upserts("table", key=key)


def test_changes_that_name_their_deletes_take_no_delete():
    with pytest.raises(GraphError, match="remove delete="):
        changes_of(Job("both"), []).upserts("table", key="id", delete="gone")


@given(seed=st.integers(0, 10**6), cuts=st.integers(1, 5), shards=st.sampled_from([1, 4]))
def test_the_table_is_that_of_the_database_over_any_batches_and_restarts(seed, cuts, shards):
    messages, table = history(seed, 40)
    chance = random.Random(seed)
    job = Job("followed", state=f"memory:followed-{seed}-{cuts}-{shards}-{chance.random()}", n_shards=shards)
    rows: list[dict] = []
    changes_of(job, []).upserts("customers", key="id").inspect("seen", rows.append).sink("out", sinks.discard())
    edges = sorted(chance.randrange(len(messages)) for _ in range(cuts))
    for begin, end in zip([0, *edges], [*edges, len(messages)], strict=True):
        with MemoryRun(job, parallelism=min(2, shards)) as run:
            run.batch({"changes": stamped(messages[begin:end])})
    copy = {}
    for row in rows:
        copy[row["id"]] = row
    kept = {
        id: {name: row[name] for name in row if name != "_deleted"} for id, row in copy.items() if not row["_deleted"]
    }
    states = result_of(job, {}).states
    assert (states["customers"] if states else {}) == table
    assert kept == table


def test_an_as_of_join_finds_the_row_at_a_time_and_none_after_a_delete():
    job = Job("joined")
    events = [
        message("c", {"id": 1, "name": "ada"}, at=NOW + 10),
        message("u", {"id": 1, "name": "Ada"}, at=NOW + 20),
        message("d", {"id": 1, "name": ""}, at=NOW + 30),
        tombstone(1),
        message("c", {"id": 1, "name": "eve"}, at=NOW + 40),
    ]
    table = changes_of(job, events).upserts("customers", key="id").limit_out_of_orderness("changed", "1 s")
    orders = job.source("orders", iterable([{"id": 1, "at": NOW + at} for at in (5, 15, 25, 35, 45)]))
    timed = orders.map("time", lambda order: (order.id, datetime.datetime.fromtimestamp(order.at / 1000, datetime.UTC)))
    keyed = timed.event_time(lambda order: order[1], max_delay="1 s", name="ordered").key_by(
        "by-customer", lambda o: o[0]
    )
    names = keyed.as_of_join("named", table, function=lambda order, row: row["name"] if row else "")
    names.sink("out", sinks.collect())
    ran = run_in_memory(job)
    found = [record["value"] for record in ran.outputs["out"]]
    assert found == ["", "ada", "Ada", "", "eve"]


def test_a_deleted_row_leaves_nothing_in_the_state_of_a_join():
    job = Job("left", state="memory:left-nothing", n_shards=1)
    table = changes_of(job, []).upserts("customers", key="id").limit_out_of_orderness("changed", "0 s")
    orders = job.source("orders", iterable([])).event_time("at", max_delay="0 s").key_by("by-customer", "id")
    orders.as_of_join("named", table).sink("out", sinks.discard())
    later = datetime.datetime.fromtimestamp(NOW / 1000 + 60, datetime.UTC)
    with MemoryRun(job) as run:
        run.batch({"changes": stamped([message("c", {"id": 1, "name": "ada"})])})
        run.batch({"changes": stamped([message("d", {"id": 1, "name": ""}, at=NOW + 10)])})
        run.batch(
            {
                "changes": stamped([message("c", {"id": 2, "name": "eve"}, at=NOW + 60_000)]),
                "orders": [{"id": 3, "at": later}],
            }
        )
        run.batch({})
    assert result_of(job, {}).states["named"].keys() <= {2, 3}
