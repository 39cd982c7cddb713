"""The delta sink with mode="merge": one row for each key, whatever is repeated, overtaken or changed by others."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, write_deltalake

from tidewheel import Job, sinks
from tidewheel.errors import ConfigError, GraphError, StepError
from tidewheel.sources import iterable
from tidewheel.testing import MemoryRun
from tidewheel.testing.connectors import SinkConformance, SinkHarness


def rows(url):
    return sorted(DeltaTable(url).to_pyarrow_table().to_pylist(), key=lambda row: str(next(iter(row.values()))))


@pytest.fixture
def url(tmp_path):
    return str(tmp_path / "table")


@pytest.fixture
def harness(tmp_path, url, harnessed):
    def made(**options):
        return harnessed(sinks.delta(url, **{"mode": "merge", "key": "k", **options}), str(tmp_path / "state"))

    return made


class _Table(SinkHarness):
    def __init__(self, url):
        self.url = url

    def sink(self):
        return sinks.delta(self.url, mode="merge", key="id")

    def contents(self):
        return DeltaTable(self.url).to_pyarrow_table().to_pylist() if DeltaTable.is_deltatable(self.url) else []


class TestMergeConformance(SinkConformance):
    @pytest.fixture
    def harness(self, tmp_path):
        return _Table(str(tmp_path / "table"))


def test_a_record_replaces_the_row_of_its_key(harness, url):
    harness = harness()
    harness.publish(2, harness.stage(2, [{"k": 1, "v": "a"}, {"k": 2, "v": "b"}]))
    harness.publish(3, harness.stage(3, [{"k": 2, "v": "c"}, {"k": 3}]))
    assert rows(url) == [{"k": 1, "v": "a"}, {"k": 2, "v": "c"}, {"k": 3, "v": None}]


def test_several_changes_of_a_key_count_as_the_last(harness, url):
    harness = harness(delete="gone")
    first = harness.stage(
        2, [{"k": 1, "v": 1, "gone": False}, {"k": 1, "v": 2, "gone": True}], [{"k": 2, "v": 1, "gone": False}]
    )
    second = harness.stage(2, [{"k": 2, "v": 2, "gone": None}, {"k": 3, "v": 1, "gone": True}], task=1)
    harness.publish(2, first, second)
    assert rows(url) == [{"k": 2, "v": 2}]
    assert DeltaTable(url).version() == 1


def test_delete_by_an_expression(harness, url):
    harness = harness(delete=pc.field("op") == "d")
    harness.publish(2, harness.stage(2, [{"k": 1, "op": "c"}, {"k": 2, "op": "c"}]))
    harness.publish(3, harness.stage(3, [{"k": 1, "op": "d"}]))
    assert rows(url) == [{"k": 2, "op": "c"}]


def test_a_deletion_needs_only_the_key(harness, url):
    DeltaTable.create(url, pa.schema([("k", pa.int64()), pa.field("v", pa.string(), nullable=False)]))
    harness = harness(delete="gone")
    harness.publish(2, harness.stage(2, [{"k": k, "v": v, "gone": False} for k, v in ((1, "a"), (2, "b"))]))
    harness.publish(3, harness.stage(3, [{"k": 1, "gone": True}]))
    assert rows(url) == [{"k": 2, "v": "b"}]
    with pytest.raises(StepError, match="the table requires v, but the records have k"):
        harness.stage(4, [{"k": 2, "v": None, "gone": False}])


def test_a_commit_without_effect_has_its_marker_too(harness, url):
    """Without it, a driver that was overtaken would bring back an older row."""
    harness = harness(delete="gone")
    older = harness.stage(2, [{"k": 1, "v": "old", "gone": True}])
    harness.publish(2, older)
    assert DeltaTable(url).transaction_version("tidewheel:orders:out") == 2
    harness.publish(3, harness.stage(3, [{"k": 1, "v": "new", "gone": False}]))
    harness.sink._table = None
    harness.publish(2, older)
    assert rows(url) == [{"k": 1, "v": "new"}]


def test_another_writer_between_looking_and_merging(harness, url):
    harness = harness()
    harness.publish(2, harness.stage(2, [{"k": 1, "v": "a"}]))
    stale = DeltaTable(url)
    write_deltalake(url, pa.table({"k": [2], "v": ["theirs"]}), mode="append")
    harness.sink._table = stale
    harness.publish(3, harness.stage(3, [{"k": 2, "v": "ours"}]))
    assert rows(url) == [{"k": 1, "v": "a"}, {"k": 2, "v": "ours"}]


def test_a_table_that_was_appended_to_is_merged_into(tmp_path, url, harnessed, harness):
    appended = harnessed(sinks.delta(url), str(tmp_path / "state"), name="first")
    appended.publish(2, appended.stage(2, [{"k": 1, "v": "a"}, {"k": 2, "v": "b"}]))
    harness = harness()
    harness.publish(2, harness.stage(2, [{"k": 2, "v": "c"}]))
    assert rows(url) == [{"k": 1, "v": "a"}, {"k": 2, "v": "c"}]


def test_keys_of_several_columns_with_any_names(harness, url):
    harness = harness(key=["Order Id", 'a"b'], partition_by="Order Id")
    harness.publish(2, harness.stage(2, [{"Order Id": 1, 'a"b': "x", "v": 1}, {"Order Id": 1, 'a"b': "y", "v": 1}]))
    harness.publish(3, harness.stage(3, [{"Order Id": 1, 'a"b': "y", "v": 2}]))
    assert sorted(row["v"] for row in rows(url)) == [1, 2]


def test_new_columns_are_added_if_the_sink_may(harness, url):
    harness = harness(evolve="add")
    harness.publish(2, harness.stage(2, [{"k": 1}]))
    harness.sink.start("orders")
    harness.publish(3, harness.stage(3, [{"k": 1, "v": "a"}, {"k": 2, "v": "b"}]))
    assert rows(url) == [{"k": 1, "v": "a"}, {"k": 2, "v": "b"}]


def test_the_key_of_the_stream_is_the_key_of_the_rows(tmp_path, url):
    job = Job("orders", state=(tmp_path / "state").as_uri())
    stream = job.source("in", iterable([]), value=dict).key_by("user")
    stream.sink("out", sinks.delta(url, mode="merge"))
    with MemoryRun(job) as run:
        run.batch({"in": [{"user": "a", "n": 1}, {"user": "b", "n": 1}]})
        run.batch({"in": [{"user": "a", "n": 2}]})
    assert rows(url) == [{"user": "a", "n": 2}, {"user": "b", "n": 1}]


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"k": None, "v": 1, "gone": False}, "the key column 'k' is null in a record"),
        ({"v": 1, "gone": False}, "the key is k, but the records have v"),
        ({"k": 1}, "delete is gone, but the records have k"),
        ({"k": 1, "gone": 1}, "delete is gone, which has the type int64 and is not a boolean"),
    ],
)
def test_records_that_cannot_be_merged_fail_before_the_commit(harness, given, text):
    with pytest.raises(StepError, match=text):
        harness(delete="gone").stage(2, [given])


def test_a_table_that_only_grows_is_refused_before_the_start(url):
    DeltaTable.create(url, pa.schema([("k", pa.int64())]), configuration={"delta.appendOnly": "true"})
    sinks.delta(url).start("orders")
    with pytest.raises(ConfigError, match=r"it has the property delta\.appendOnly"):
        sinks.delta(url, mode="merge", key="k").start("orders")


def test_a_table_without_the_key_is_refused_before_the_start(url):
    DeltaTable.create(url, pa.schema([("n", pa.int64())]))
    with pytest.raises(ConfigError, match="has no column k for the key"):
        sinks.delta(url, mode="merge", key="k").start("orders")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"mode": "upsert"}, "is append or merge, not 'upsert'"),
        ({"key": "k"}, 'need mode="merge"'),
        ({"evolve": "all"}, "not 'all'"),
    ],
)
def test_options_that_do_not_fit_are_refused(url, options, text):
    with pytest.raises(ConfigError, match=text):
        sinks.delta(url, **options)


def test_a_stream_without_a_key_is_refused(tmp_path, url):
    job = Job("orders", state=(tmp_path / "state").as_uri())
    with pytest.raises(GraphError, match='in the mode "merge" needs a key'):
        job.source("in", iterable([])).sink("out", sinks.delta(url, mode="merge"))
