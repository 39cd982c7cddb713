"""The iceberg sink with SQL and REST catalogs: each record once, whatever is repeated, overtaken or of the wrong type."""

from __future__ import annotations

import datetime
import decimal
import itertools
import os
import random
import sys
from pathlib import Path

import datafusion
import msgspec
import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform
from pyiceberg.types import LongType, NestedField, TimestamptzType

from servers.iceberg_rest import iceberg_rest  # noqa: F401
from servers.stores import ACCESS_KEY, SECRET_KEY
from tidewheel import sinks
from tidewheel._connectors.iceberg.catalog import TableName
from tidewheel.errors import ConfigError, ConnectorUnavailable, CorruptError, StateError, StepError, StorageError
from tidewheel.testing.connectors import SinkConformance, SinkHarness

_numbers = itertools.count()

NAME = "shop.orders"


def load(catalog, name=NAME) -> Table:
    table = TableName.of(name, catalog).load("the test")
    assert table is not None
    return table


def client_of(catalog):
    return load_catalog("default", **catalog)


def rows(catalog, name=NAME, branch="main"):
    found = load(catalog, name).scan().use_ref(branch).to_arrow().to_pylist()
    return sorted(found, key=lambda row: str(next(iter(row.values()))))


def independent(catalog, name=NAME):
    """Read a table with iceberg-rust and DataFusion, which share no code with the client of the sink."""
    context = datafusion.SessionContext()
    context.register_table("read", load(catalog, name))
    return context.sql('SELECT * FROM "read" ORDER BY n').to_arrow_table().to_pylist()


class _Table(SinkHarness):
    def __init__(self, name, catalog, **options):
        self.name, self.catalog, self.options = name, catalog, options

    def sink(self):
        return sinks.iceberg(self.name, catalog=self.catalog, **self.options)

    def contents(self):
        table = TableName.of(self.name, self.catalog).load("the test")
        branch = self.options.get("branch", "main")
        if table is None or branch not in table.metadata.refs:
            return []
        return table.scan().use_ref(branch).to_arrow().to_pylist()


class _RestTable(_Table):
    secrets = ("hunter2",)

    def __init__(self, server):
        super().__init__(f"shop.t{next(_numbers)}", {**server.properties, "token": "hunter2"})
        self.stop_server, self.start_server = server.kill, server.start

    def stop_server(self):
        raise AssertionError

    def start_server(self):
        raise AssertionError


@pytest.fixture
def catalog(tmp_path):
    return {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/lake"}


@pytest.fixture
def harness(tmp_path, catalog, harnessed):
    return lambda **options: harnessed(sinks.iceberg(NAME, catalog=catalog, **options), str(tmp_path / "state"))


class TestSqlConformance(SinkConformance):
    @pytest.fixture
    def harness(self, catalog):
        return _Table(NAME, catalog)


class TestRestConformance(SinkConformance):
    @pytest.fixture
    def harness(self, iceberg_rest):  # noqa: F811
        return _RestTable(iceberg_rest)


class TestBranchConformance(SinkConformance):
    @pytest.fixture
    def harness(self, catalog):
        return _Table(NAME, catalog, branch="staging", partition_by="id")


@pytest.mark.slow
class TestObjectStoreConformance(SinkConformance):
    """Data and metadata on S3, by the credentials in the properties of the catalog."""

    @pytest.fixture
    def harness(self, tmp_path, seaweedfs):
        return _Table(NAME, on_s3(tmp_path, seaweedfs))


def on_s3(tmp_path, server):
    place, _, settings = server.url(f"iceberg-{next(_numbers)}").partition("?")
    endpoint = dict(part.split("=", 1) for part in settings.split("&"))["endpoint"]
    return {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/catalog.db",
        "warehouse": place,
        "s3.endpoint": endpoint,
        "s3.region": "us-east-1",
        "s3.access-key-id": ACCESS_KEY,
        "s3.secret-access-key": SECRET_KEY,
    }


def test_files_in_an_object_store_are_written_read_and_collected(tmp_path, seaweedfs, harnessed, monkeypatch):
    catalog = on_s3(tmp_path, seaweedfs)
    harness = harnessed(sinks.iceberg(NAME, catalog=catalog), str(tmp_path / "state"))
    for sequence in (2, 3):
        harness.publish(sequence, harness.stage(sequence, [{"n": sequence}]))
    harness.stage(4, [{"n": 4}])
    assert rows(catalog) == [{"n": 2}, {"n": 3}]
    monkeypatch.setattr("tidewheel._connectors.iceberg.sink._KEPT_S", -10)
    (left,) = harness.sink.collect("orders", "out")
    assert f"-{4:020}-" in left
    assert harness.sink.collect("orders", "out") == []
    assert rows(catalog) == [{"n": 2}, {"n": 3}]


def test_a_commit_is_one_snapshot_with_job_sink_and_sequence(harness, catalog):
    harness = harness()
    harness.publish(2, harness.stage(2, [{"n": 1}]), harness.stage(2, [{"n": 2}], task=1))
    harness.publish(3, harness.stage(3, [{"n": 3}]), harness.stage(3, [{"n": 4}], task=1))
    first, second = load(catalog).snapshots()
    summary = second.summary.additional_properties
    assert (summary["tidewheel.sink"], summary["tidewheel.sequence"]) == ("orders:out", "3")
    assert second.parent_snapshot_id == first.snapshot_id
    assert rows(catalog) == [{"n": 1}, {"n": 2}, {"n": 3}, {"n": 4}]


def test_a_driver_that_looked_too_early_does_not_add_a_batch_twice(harness, catalog):
    harness = harness()
    harness.publish(2, harness.stage(2, [{"n": 1}]))
    token = harness.stage(3, [{"n": 2}])
    stale = load(catalog)
    harness.publish(3, token)
    harness.sink._table = stale
    harness.publish(3, token)
    assert rows(catalog) == [{"n": 1}, {"n": 2}]


def test_other_writers_and_a_lost_response_are_no_hindrance(harness, catalog, monkeypatch):
    harness = harness()
    harness.publish(2, harness.stage(2, [{"n": 1}]))
    load(catalog).append(pa.table({"n": [9]}))
    harness.publish(3, harness.stage(3, [{"n": 2}]))
    committed = Table._do_commit

    def lost(self, **arguments):
        monkeypatch.setattr(Table, "_do_commit", committed)
        committed(self, **arguments)
        raise CommitFailedException("the response was lost")

    monkeypatch.setattr(Table, "_do_commit", lost)
    harness.publish(4, harness.stage(4, [{"n": 3}]))
    assert rows(catalog) == [{"n": 1}, {"n": 2}, {"n": 3}, {"n": 9}]


def test_a_table_that_always_changes_ends_the_run_and_the_next_one_adds(harness, catalog, monkeypatch):
    harness = harness()
    harness.publish(2, harness.stage(2, [{"n": 1}]))

    def never(self, **arguments):
        raise CommitFailedException("somebody was faster")

    token = harness.stage(3, [{"n": 2}])
    with monkeypatch.context() as patch:
        patch.setattr(Table, "_do_commit", never)
        with pytest.raises(ConnectorUnavailable, match="changed 10 times"):
            harness.publish(3, token)
    harness.publish(3, token)
    assert rows(catalog) == [{"n": 1}, {"n": 2}]


def test_output_of_a_former_job_of_this_name_is_not_claimed(harness):
    harness = harness()
    harness.publish(9, harness.stage(9, [{"n": 1}]))
    for sequence in (2, 9):
        with pytest.raises(StateError, match=rf"sequence {sequence} .*9 is already published"):
            harness.publish(sequence, harness.stage(sequence, [{"n": 2}], run="r2"))


def test_a_batch_whose_snapshot_has_expired_is_found_by_its_files(harness, catalog):
    harness = harness()
    harness.publish(2, harness.stage(2, [{"n": 1}]))
    token = harness.stage(3, [{"n": 2}])
    harness.publish(3, token)
    load(catalog).append(pa.table({"n": [9]}))
    table = load(catalog)
    table.maintenance.expire_snapshots().by_ids([each.snapshot_id for each in table.snapshots()[:2]]).commit()
    harness.sink._table = None
    harness.publish(3, token)
    assert rows(catalog) == [{"n": 1}, {"n": 2}, {"n": 9}]


def test_an_older_snapshot_that_a_tag_keeps_does_not_hide_an_expired_one(harness, catalog):
    harness = harness()
    harness.publish(2, harness.stage(2, [{"n": 1}]))
    token = harness.stage(3, [{"n": 2}])
    harness.publish(3, token)
    load(catalog).append(pa.table({"n": [9]}))
    table = load(catalog)
    first, published, _ = (each.snapshot_id for each in table.snapshots())
    table.manage_snapshots().create_tag(first, "audited").commit()
    load(catalog).maintenance.expire_snapshots().by_ids([published]).commit()
    harness.sink._table = None
    harness.publish(3, token)
    assert rows(catalog) == [{"n": 1}, {"n": 2}, {"n": 9}]


def test_tasks_write_the_files_of_the_table_and_publishing_writes_none(harness, catalog, tmp_path):
    """The first batch creates the table, so its rows pass through the driver."""
    harness = harness()
    harness.publish(2, harness.stage(2, [{"n": 0}]))
    tokens = [harness.stage(3, [{"n": task}], task=task) for task in range(3)]
    written = set(tmp_path.glob("lake/**/*.parquet"))
    assert len(written) == 4
    harness.publish(3, *tokens)
    assert set(tmp_path.glob("lake/**/*.parquet")) == written
    assert len(load(catalog).inspect.files()) == 4


NESTED = pa.schema(
    [
        ("n", pa.int64()),
        ("s", pa.string()),
        ("d", pa.decimal128(10, 2)),
        ("at", pa.timestamp("us", "UTC")),
        ("day", pa.date32()),
        ("some", pa.list_(pa.struct([("a", pa.int32()), ("b", pa.string())]))),
        ("by", pa.map_(pa.string(), pa.float64())),
    ]
)


def _nested(draw, n):
    at = datetime.datetime(2025, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(microseconds=draw.randrange(10**14))
    return {
        "n": n,
        "s": draw.choice(["", "ü/= %", "x" * 40, None]),
        "d": decimal.Decimal(draw.randrange(-(10**6), 10**6)) / 100,
        "at": at,
        "day": draw.choice([at.date(), None]),
        "some": [{"a": draw.randrange(5), "b": None}] * draw.randrange(3),
        "by": [("k", draw.random())] * draw.randrange(2),
    }


@pytest.mark.parametrize("partition_by", [(), ("day", "s"), ("d",), ("at",)])
def test_a_second_reader_finds_the_same_rows(harness, catalog, partition_by):
    """Rows of all types, from tasks and from the driver, in partitions with nulls and empty texts."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    harness = harness(partition_by=partition_by)
    given = [_nested(draw, n) for n in range(12)]
    batches = [pa.RecordBatch.from_pylist(given[start : start + 3], NESTED) for start in range(0, 12, 3)]
    harness.publish(2, harness.stage(2, batches[0]), harness.stage(2, batches[1], task=1))
    harness.publish(3, harness.stage(3, batches[2]), harness.stage(3, batches[3], task=1))
    for found in (rows(catalog), independent(catalog)):
        assert sorted(found, key=lambda row: row["n"]) == given
    one = load(catalog).scan(f"n = {given[7]['n']}").to_arrow().to_pylist()
    assert one == [given[7]], "readers skip files by wrong statistics or partitions"


def test_a_table_partitioned_by_transforms_is_written_and_pruned(harness, catalog):
    """Days and buckets are computed like every other writer computes them."""
    schema = Schema(NestedField(1, "n", LongType(), required=True), NestedField(2, "at", TimestamptzType()))
    spec = PartitionSpec(
        PartitionField(2, 1000, DayTransform(), "day"), PartitionField(1, 1001, BucketTransform(4), "part")
    )
    client = client_of(catalog)
    client.create_namespace("shop")
    table = client.create_table(NAME, schema, partition_spec=spec)
    at = datetime.datetime(2025, 1, 31, 23, tzinfo=datetime.UTC)
    given = [{"n": n, "at": at + datetime.timedelta(hours=n)} for n in range(6)]
    batch = pa.RecordBatch.from_pylist(
        given, pa.schema([pa.field("n", pa.int64(), False), ("at", pa.timestamp("us", "UTC"))])
    )
    ours = harness()
    ours.publish(2, ours.stage(2, batch))
    mine = {tuple(each.values()) for each in load(catalog).inspect.partitions()["partition"].to_pylist()}
    other = client.create_table("shop.other", schema, partition_spec=spec)
    other.append(pa.Table.from_batches([batch]))
    assert mine == {tuple(each.values()) for each in other.inspect.partitions()["partition"].to_pylist()}
    assert independent(catalog) == given
    assert table.location() in next(iter(load(catalog).inspect.files()["file_path"].to_pylist()))


def test_a_partition_that_the_library_cannot_compute_is_refused_by_name(harness, catalog, monkeypatch):
    harness().publish(2, harness().stage(2, [{"n": 1}]))
    with load(catalog).update_spec() as spec:
        spec.add_field("n", BucketTransform(4), "part")
    monkeypatch.setitem(sys.modules, "pyiceberg_core", None)
    with pytest.raises(
        ConfigError,
        match=r"the partition field part \(bucket\[4\]\), which pyiceberg cannot compute",
    ):
        harness()


def test_staged_files_are_rewritten_after_a_change_of_the_partition_spec(harness, catalog):
    harness = harness()
    harness.publish(2, harness.stage(2, [{"n": 1, "s": "a"}]))
    token = harness.stage(3, [{"n": 2, "s": "b"}, {"n": 3, "s": "c"}])
    with load(catalog).update_spec() as spec:
        spec.add_field("s", IdentityTransform(), "s")
    harness.sink._table = None
    harness.publish(3, token)
    assert independent(catalog) == rows(catalog) == [{"n": 1, "s": "a"}, {"n": 2, "s": "b"}, {"n": 3, "s": "c"}]
    assert len(load(catalog).inspect.files()) == 3


def test_partition_by_must_agree_with_the_table(harness):
    first = harness(partition_by="n")
    first.publish(2, first.stage(2, [{"n": 1, "s": "a"}]))
    with pytest.raises(ConfigError, match="is partitioned by n, but partition_by is s"):
        harness(partition_by="s")


def test_partition_by_a_column_that_is_not_there(harness):
    with pytest.raises(StepError, match="partition_by is day, but there is no column day"):
        harness(partition_by="day").stage(2, [{"n": 1}])


def test_new_columns_are_added_if_the_sink_may(harness, catalog):
    harness = harness(evolve="add")
    harness.publish(2, harness.stage(2, [{"n": 1}]))
    tokens = [harness.stage(3, [{"n": 2, "s": "x"}]), harness.stage(3, [{"n": 3, "f": 1.5}], [{"n": 4}], task=1)]
    for _ in range(2):
        harness.publish(3, *tokens)
    expected = [{"n": n, "s": "x" if n == 2 else None, "f": 1.5 if n == 3 else None} for n in range(1, 5)]
    assert rows(catalog) == independent(catalog) == expected
    token = harness.stage(4, [{"n": 5, "s": "y"}])
    assert msgspec.msgpack.decode(token)["staged"] is None, "the task has loaded the new columns"


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"n": 1, "extra": 2}, r"has no column extra; it has n, at, s.*evolve"),
        ({"n": 1.5}, r"'n' has the type double"),
        ({"n": "1"}, r"'n' has the type string"),
        ({"at": datetime.datetime(2025, 1, 1)}, r"'at' has the type timestamp\[us\]"),
        ({"n": datetime.timedelta(1)}, "'n' of type duration"),
    ],
)
def test_records_that_do_not_fit_fail_before_the_commit(harness, given, text):
    harness = harness()
    at = datetime.datetime(2025, 1, 1, tzinfo=datetime.UTC)
    harness.publish(2, harness.stage(2, [{"n": 1, "at": at, "s": "x"}]))
    with pytest.raises(StepError, match=text):
        harness.stage(3, [given])


def test_tasks_that_inferred_different_types_agree_in_a_new_table(harness, catalog):
    harness = harness(partition_by="day")
    tokens = [harness.stage(2, [{"day": 1, "n": 1}]), harness.stage(2, [{"day": 2, "n": 1.5, "more": "x"}], task=1)]
    harness.publish(2, *tokens)
    assert rows(catalog) == [{"day": 1, "n": 1.0, "more": None}, {"day": 2, "n": 1.5, "more": "x"}]


def test_a_branch_starts_from_main_and_leaves_main_alone(harness, catalog):
    first = harness()
    first.publish(2, first.stage(2, [{"n": 1}]))
    staging = harness(branch="staging")
    staging.name = "audited"
    staging.publish(2, staging.stage(2, [{"n": 2}]))
    assert rows(catalog) == [{"n": 1}]
    assert rows(catalog, branch="staging") == [{"n": 1}, {"n": 2}]
    assert staging.sink.describe().endswith(", branch staging")


def test_a_tag_is_not_a_branch(harness, catalog):
    first = harness()
    first.publish(2, first.stage(2, [{"n": 1}]))
    table = load(catalog)
    table.manage_snapshots().create_tag(table.current_snapshot().snapshot_id, "v1").commit()
    with pytest.raises(ConfigError, match="a tag with the name v1"):
        harness(branch="v1")


@pytest.mark.parametrize(
    "change", [lambda _: "other.parquet", lambda path: f"../{path}", lambda path: path.replace("3-", "4-")]
)
def test_a_token_cannot_add_other_files(harness, change):
    harness = harness()
    harness.publish(2, harness.stage(2, [{"n": 1}]))
    token = msgspec.msgpack.decode(harness.stage(3, [{"n": 1}]))
    token["files"]["files"][0][0] = change(token["files"]["files"][0][0])
    with pytest.raises(CorruptError, match="is not a file of this commit"):
        harness.publish(3, msgspec.msgpack.encode(token))


def test_a_data_file_lost_before_publication_is_reported(harness, catalog, tmp_path):
    harness = harness()
    harness.publish(2, harness.stage(2, [{"n": 1}]))
    token = harness.stage(3, [{"n": 2}])
    for path in tmp_path.glob(f"lake/**/*-{3:020}-*.parquet"):
        path.unlink()
    harness.sink._table = None
    with pytest.raises(StorageError, match=r"committed output is lost.*--drop-unpublished out"):
        harness.publish(3, token)
    assert rows(catalog) == [{"n": 1}]


def test_old_files_of_a_crash_are_collected(harness, catalog, tmp_path):
    harness = harness()
    for sequence in (2, 3):
        harness.publish(sequence, harness.stage(sequence, [{"n": sequence}]))
    harness.stage(4, [{"n": 4}])
    files = list(tmp_path.glob("lake/**/*.parquet"))
    assert harness.sink.collect("orders", "out") == []
    for path in files:
        os.utime(path, (1, 1))
    assert harness.sink.collect("orders", "more") == []
    (left,) = harness.sink.collect("orders", "out", dry_run=True)
    assert harness.sink.collect("orders", "out") == [left]
    assert {path.name for path in files} - {path.name for path in tmp_path.glob("lake/**/*.parquet")} == {
        Path(left).name
    }


def test_a_missing_table_is_refused_without_create(harness):
    with pytest.raises(ConfigError, match=r"there is no Iceberg table shop.orders in the catalog .*create=True"):
        harness(create=False)


def test_a_table_of_a_newer_format_is_refused(iceberg_rest):  # noqa: F811
    client = client_of(iceberg_rest.properties)
    client.create_namespace_if_not_exists("shop")
    client.create_table("shop.newer", pa.schema([("n", pa.int64())]), properties={"format-version": "3"})
    with pytest.raises(ConfigError, match="it has the format version 3, which the sink does not support"):
        sinks.iceberg("shop.newer", catalog=iceberg_rest.properties).start("orders")


def test_arguments_that_cannot_work_are_refused(catalog, monkeypatch):
    with pytest.raises(ConfigError, match="a table with its namespace"):
        sinks.iceberg("orders", catalog=catalog)
    with pytest.raises(ConfigError, match='evolve of an iceberg sink is "add"'):
        sinks.iceberg(NAME, catalog=catalog, evolve="all")
    with pytest.raises(ConfigError, match=r"the catalog 'nowhere' .*is not configured"):
        sinks.iceberg(NAME, catalog="nowhere").start("orders")
    monkeypatch.setitem(sys.modules, "pyiceberg.catalog", None)
    with pytest.raises(ConfigError, match=r"pip install 'tidewheel\[iceberg\]'"):
        sinks.iceberg(NAME, catalog=catalog)
