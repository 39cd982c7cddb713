"""Upserts into tables of Delta, Iceberg and PostgreSQL follow the source table, deletes included."""

from __future__ import annotations

import datetime
import itertools
import random

import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from support.debezium_events import history, message
from tidewheel import Job, codecs, sinks
from tidewheel.errors import ConfigError, StepError
from tidewheel.sources import iterable
from tidewheel.testing import MemoryRun

SENT = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
_numbers = itertools.count()


@pytest.fixture(params=["delta", "iceberg", "postgres", "postgres that creates"])
def target(request, tmp_path):
    """Yield the sink of a new table, and a function that returns its rows."""
    if request.param == "delta":
        url = str(tmp_path / "table")
        yield sinks.delta(url, mode="merge"), lambda: DeltaTable(url).to_pyarrow_table().to_pylist()
        return
    if request.param == "iceberg":
        catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/lake"}
        read = load_catalog("default", **catalog).load_table
        yield (
            sinks.iceberg("shop.customers", catalog=catalog, mode="merge"),
            lambda: read("shop.customers").scan().to_arrow().to_pylist(),
        )
        return
    postgres, table = request.getfixturevalue("postgres"), f"upserted_{next(_numbers)}"
    creates = request.param.endswith("creates")
    if not creates:
        postgres.query(f"CREATE TABLE {table} (id bigint PRIMARY KEY, name text NOT NULL, cents bigint)")

    def rows():
        found = postgres.query(f"SELECT id, name, cents FROM {table}")
        return [dict(zip(("id", "name", "cents"), row, strict=True)) for row in found]

    yield sinks.postgres(postgres.dsn, table, "upsert", create=creates), rows


def changes(job):
    stream = job.source("changes", iterable([])).decode("change", codecs.debezium())
    stream.broken.sink("broken", sinks.discard())
    return stream.upserts("customers", key="id")


def test_the_table_follows_random_changes(target):
    sink, rows = target
    seed = random.randrange(10**6)
    print("seed", seed)
    messages, table = history(seed, 120)
    job = Job(f"follows-{next(_numbers)}", state=f"memory:follows-{next(_numbers)}", n_shards=4)
    changes(job).sink("out", sink)
    for begin in range(0, len(messages), 50):
        # Each run publishes the newest commit again.
        with MemoryRun(job, parallelism=2) as run:
            for at in range(begin, min(begin + 50, len(messages)), 10):
                run.batch({"changes": [{"timestamp": SENT, **each} for each in messages[at : at + 10]]})
    assert sorted(rows(), key=lambda row: row["id"]) == [table[id] for id in sorted(table)]


def test_a_key_of_several_columns_is_the_key_of_rows(postgres):
    table = f"pairs_{next(_numbers)}"
    postgres.query(f"CREATE TABLE {table} (shop text, id int, n int, PRIMARY KEY (shop, id))")
    job = Job("pairs", state=f"memory:pairs-{next(_numbers)}", n_shards=4)
    stock = job.source("in", iterable([])).upserts("stock", key=("shop", "id"), delete="gone")
    stock.sink("out", sinks.postgres(postgres.dsn, table, "latest"))
    with MemoryRun(job, parallelism=2) as run:
        run.batch({"in": [{"shop": shop, "id": 1, "n": n, "gone": False} for n, shop in enumerate("abc")]})
        run.batch({"in": [{"shop": "b", "id": 1, "n": 1, "gone": True}]})
    assert postgres.query(f"SELECT * FROM {table} ORDER BY 1") == [("a", 1, 0), ("c", 1, 2)]


@pytest.fixture
def changed(postgres, tmp_path, harnessed):
    """Return a harness of a sink that deletes, and its rows."""

    def made(**options):
        table = f"changed_{next(_numbers)}"
        postgres.query(f"CREATE TABLE {table} (k int PRIMARY KEY, v text NOT NULL)")
        sink = sinks.postgres(postgres.dsn, table, "upsert", key="k", **options)
        harness = harnessed(sink, str(tmp_path / "state"), job=table)
        return harness, lambda: postgres.query(f"SELECT * FROM {table} ORDER BY 1")

    return made


def test_several_changes_of_a_key_count_as_the_last(changed):
    harness, rows = changed(delete="gone")
    kept = [{"k": 1, "v": "a", "gone": False}, {"k": 2, "v": "b", "gone": None}]
    harness.publish(
        2, harness.stage(2, [*kept, {"k": 1, "v": None, "gone": True}], [{"k": 1, "v": "c", "gone": False}])
    )
    assert rows() == [(1, "c"), (2, "b")]
    harness.publish(3, harness.stage(3, [{"k": 2, "v": "d", "gone": False}], [{"k": 2, "gone": True}]))
    assert rows() == [(1, "c")]


def test_an_expression_selects_deletes_and_republishing_changes_nothing(changed):
    harness, rows = changed(delete=pc.field("v") == "")
    harness.publish(2, harness.stage(2, [{"k": 1, "v": "a"}, {"k": 2, "v": "b"}]))
    tokens = harness.stage(3, [{"k": 1, "v": ""}])
    harness.publish(3, tokens)
    harness.publish(4, harness.stage(4, [{"k": 1, "v": "again"}]))
    harness.publish(3, tokens)
    assert rows() == [(1, "again"), (2, "b")]


def test_a_column_of_deletes_that_is_missing_fails_the_batch(changed):
    harness, _ = changed(delete="gone")
    with pytest.raises(StepError, match="delete is gone, but the records have k, v"):
        harness.stage(2, [{"k": 1, "v": "a"}])


@pytest.mark.parametrize("options", [{"mode": "insert"}, {"mode": "latest", "key": "k", "by": "v"}])
def test_delete_needs_rows_that_are_found_by_key(options):
    with pytest.raises(ConfigError, match="takes delete= in the modes 'upsert' and 'latest'"):
        sinks.postgres("host=localhost", "t", delete="gone", **options)


def test_an_event_without_a_key_is_an_error_before_anything_is_committed(tmp_path):
    url = str(tmp_path / "table")
    job = Job("keyless", state=f"memory:keyless-{next(_numbers)}", n_shards=4)
    changes(job).sink("out", sinks.delta(url, mode="merge"))
    with MemoryRun(job) as run:
        before = run.next_batch
        with pytest.raises(ConfigError, match="has no key"):
            run.batch({"changes": [{**message("c", {"id": 1, "name": "a"}), "key": None, "timestamp": SENT}]})
        assert run.next_batch == before
    assert not DeltaTable.is_deltatable(url)
