"""The delta sink, local and on a real S3 server: each record once, whatever is repeated, overtaken or of the wrong type."""

from __future__ import annotations

import datetime
import decimal
import itertools
import sys

import deltalake
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from servers import ACCESS_KEY, SECRET_KEY, running_seaweedfs
from tidewheel import sinks
from tidewheel._connectors import staging
from tidewheel._connectors.delta import table as delta_table
from tidewheel._connectors.delta.table import TableLocation
from tidewheel.errors import ConfigError, ConnectorUnavailable, CorruptError, OperatorError, StateError
from tidewheel.testing.connectors import SinkConformance, SinkHarness

_numbers = itertools.count()


def rows(url):
    place, options = TableLocation(str(url)).resolved()
    found = DeltaTable(place, storage_options=options).to_pyarrow_table().to_pylist()
    return sorted(found, key=lambda row: str(next(iter(row.values()))))


@pytest.fixture
def url(tmp_path):
    return str(tmp_path / "table")


@pytest.fixture
def harness(tmp_path, url, harnessed):
    return lambda **options: harnessed(sinks.delta(url, **options), str(tmp_path / "state"))


class _Table(SinkHarness):
    secrets = (SECRET_KEY,)

    def __init__(self, url):
        self.url = url

    def sink(self):
        return sinks.delta(self.url)

    def contents(self):
        place, options = TableLocation(self.url).resolved()
        if not DeltaTable.is_deltatable(place, options):
            return []
        return DeltaTable(place, storage_options=options).to_pyarrow_table().to_pylist()


class TestLocalConformance(SinkConformance):
    @pytest.fixture
    def harness(self, tmp_path):
        return _Table(str(tmp_path / "table"))


class TestRemoteConformance(SinkConformance):
    @pytest.fixture
    def harness(self, seaweedfs):
        return _Table(seaweedfs.url(f"delta-{next(_numbers)}"))

    # A commit to the server for every point, twice: the local table passes them all in every run of the suite.
    @pytest.mark.slow
    @pytest.mark.parametrize("hit", [1, 2])
    def test_a_crash_anywhere_while_publishing_is_made_good(self, harness, hit):
        super().test_a_crash_anywhere_while_publishing_is_made_good(harness, hit)


def test_a_commit_is_seen_all_at_once(harness, url):
    harness = harness()
    harness.publish(2, harness.stage(2, [{"n": 1}]), harness.stage(2, [{"n": 2}], task=1))
    table = DeltaTable(url)
    assert table.version() == 1
    assert rows(url) == [{"n": 1}, {"n": 2}]
    assert table.transaction_version("tidewheel:orders:out") == 2


def test_a_driver_that_looked_before_another_added_the_batch_does_not_add_it(harness, url):
    """Two drivers open the table, and both find the batch lacking."""
    harness = harness()
    harness.publish(2, harness.stage(2, [{"n": 1}]))
    token = harness.stage(3, [{"n": 2}])
    stale = DeltaTable(url)
    harness.publish(3, token)
    harness.publish(4, harness.stage(4, [{"n": 3}]))
    harness.sink._table = stale
    harness.publish(3, token)
    assert rows(url) == [{"n": 1}, {"n": 2}, {"n": 3}]


def test_other_writers_of_the_table_are_no_hindrance(harness, url):
    harness = harness()
    harness.publish(2, harness.stage(2, [{"n": 1}]))
    stale = DeltaTable(url)
    write_deltalake(url, pa.table({"n": [9]}), mode="append")
    harness.sink._table = stale
    harness.publish(3, harness.stage(3, [{"n": 2}]))
    assert rows(url) == [{"n": 1}, {"n": 2}, {"n": 9}]


def test_output_of_an_earlier_life_of_the_job_is_not_taken_for_its_own(harness):
    harness = harness()
    harness.publish(9, harness.stage(9, [{"n": 1}]))
    for sequence in (2, 9):
        with pytest.raises(StateError, match=rf"sequence {sequence} .*9 is published already"):
            harness.publish(sequence, harness.stage(sequence, [{"n": 2}], run="r2"))


def test_another_life_is_told_apart_after_any_number_of_commits_of_others(harness, url, monkeypatch):
    monkeypatch.setattr(delta_table, "_LOOK_BACK", 2)
    harness = harness()
    token = harness.stage(9, [{"n": 1}])
    harness.publish(9, token)
    for number in range(5):
        write_deltalake(url, pa.table({"n": [number]}), mode="append")
    before = rows(url)
    harness.sink._table = None
    harness.publish(9, token)
    with pytest.raises(StateError, match=r"sequence 9 .*9 is published already"):
        harness.publish(9, harness.stage(9, [{"n": 2}], run="r2"))
    assert rows(url) == before


def test_sinks_and_jobs_share_a_table(tmp_path, url, harnessed):
    for number, (job, name) in enumerate([("a", "x"), ("a", "y"), ("b", "x")]):
        each = harnessed(sinks.delta(url), str(tmp_path / "state"), job=job, name=name)
        each.publish(2, each.stage(2, [{"n": number}]))
    assert rows(url) == [{"n": 0}, {"n": 1}, {"n": 2}]


def test_a_table_is_made_from_the_types_of_the_records(harness, url):
    moment = datetime.datetime(2025, 1, 31, 12, tzinfo=datetime.UTC)
    given = {
        "flag": pa.array([True]),
        "whole": pa.array([1], pa.int32()),
        "large": pa.array([2**62], pa.uint64()),
        "exact": pa.array([decimal.Decimal("1.10")], pa.decimal128(10, 2)),
        "code": pa.array(["x"]).dictionary_encode(),
        "bytes": pa.array([b"\0\xff"]),
        "day": pa.array([moment.date()]),
        "at": pa.array([moment], pa.timestamp("ns", "Europe/Berlin")),
        "local": pa.array([moment.replace(tzinfo=None)]),
        "nested": pa.array([[{"a": 1, "b": ["ü"]}]]),
        "map": pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())),
        "nothing": pa.nulls(1),
    }
    harness = harness()
    harness.publish(2, harness.stage(2, pa.RecordBatch.from_pydict(given)))
    (row,) = rows(url)
    assert row == {
        **{name: array.to_pylist()[0] for name, array in given.items() if name != "nothing"},
        "at": moment,
        "map": [("k", 1)],
    }
    # Another run finds these types, and what fits into them is taken: an integer that is smaller, a column that lacks.
    harness.sink.start("orders")
    harness.publish(3, harness.stage(3, [{"whole": 2, "code": "y"}]))
    assert {row["whole"]: row["code"] for row in rows(url)} == {1: "x", 2: "y"}


def test_partition_by(harness, url):
    harness = harness(partition_by=["day"])
    harness.publish(2, harness.stage(2, [{"day": "mo", "n": 1}, {"day": "tu", "n": 2}]))
    assert DeltaTable(url).metadata().partition_columns == ["day"]
    assert rows(url) == [{"day": "mo", "n": 1}, {"day": "tu", "n": 2}]
    with pytest.raises(ConfigError, match="is partitioned by day, and partition_by is n"):
        sinks.delta(url, partition_by="n").start("orders")


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"m": 1}, "sink 'out': the table has no column m; it has n, at, s"),
        ({"n": 1.5}, "'n' holds double, and in the table it is int64.*was truncated"),
        ({"n": "1"}, "'n' holds string, and in the table it is int64"),
        ({"s": 1}, "'s' holds int64, and in the table it is string"),
        ({"at": datetime.datetime(2025, 1, 31)}, "'at' holds timestamp"),
        ({"n": [1]}, "'n' holds list"),
    ],
)
def test_records_that_the_table_cannot_take_fail_before_the_commit(harness, url, given, text):
    schema = pa.schema([("n", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("s", pa.string())])
    DeltaTable.create(url, schema)
    with pytest.raises(OperatorError, match=text):
        harness().stage(2, [given])


def test_types_that_no_table_has_fail_before_the_commit_too(harness):
    with pytest.raises(OperatorError, match="'n' of type duration"):
        harness().stage(2, [{"n": datetime.timedelta(1)}])


def test_partition_by_a_column_that_is_not_there(harness):
    with pytest.raises(OperatorError, match="partition_by names day, and there is no column day"):
        harness(partition_by="day").stage(2, [{"n": 1}])


def test_a_table_that_must_be_there_and_is_not(url):
    with pytest.raises(ConfigError, match=r"there is no Delta table at .*create=True"):
        sinks.delta(url, create=False).start("orders")


def test_what_the_table_refuses_is_told_and_added_once_it_is_corrected(harness, url):
    harness = harness()
    harness.publish(2, harness.stage(2, [{"n": 1}]))
    table = DeltaTable(url)
    table.alter.add_constraint({"small": "n < 5"})
    token = harness.stage(3, [{"n": 7}])
    with pytest.raises(OperatorError, match=r"refuses the output.*Nothing committed is lost"):
        harness.publish(3, token)
    table.update_incremental()
    table.alter.drop_constraint("small")
    harness.publish(3, token)
    assert rows(url) == [{"n": 1}, {"n": 7}]


def test_a_store_that_is_away_or_refuses_us_is_told_and_the_output_waits(tmp_path, harnessed, monkeypatch):
    with running_seaweedfs(tmp_path / "weed") as server:
        url = f"{server.url('table')}&retry_s=0.2"
        harness = harnessed(sinks.delta(url), str(tmp_path / "state"))
        token = harness.stage(2, [{"n": 1}])
        server.kill()
        with pytest.raises(ConnectorUnavailable, match=r"is away.*start again when it is back"):
            harness.publish(2, token)
        server.start()
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2")
        with pytest.raises(ConfigError, match=r"refuses us.*AWS_ACCESS_KEY_ID") as refused:
            harness.publish(2, token)
        assert "hunter2" not in str(refused.value)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
        harness.publish(2, token)
        assert rows(url) == [{"n": 1}]


def test_a_secret_in_the_url_is_refused():
    with pytest.raises(ConfigError, match="would show in logs"):
        sinks.delta("s3://bucket/table?secret_access_key=hunter2")


def test_a_missing_client_says_how_to_get_it(monkeypatch, url):
    monkeypatch.setitem(sys.modules, "deltalake", None)
    with pytest.raises(ConfigError, match=r"pip install 'tidewheel\[delta\]'"):
        sinks.delta(url)


@pytest.fixture
def many(harness, monkeypatch):
    """A sink, and the tokens of 30,000 rows in many small files of two tasks."""
    monkeypatch.setattr(staging, "FILE_BYTES", 100_000)
    added = harness()
    batches = [
        pa.RecordBatch.from_pydict({"n": range(n * 100, n * 100 + 100), "text": [f"{n:03}" * 50] * 100})
        for n in range(300)
    ]
    return added, [added.stage(1, *batches[:99], task=0), added.stage(1, *batches[99:], task=1)]


def test_a_batch_of_many_files_is_one_commit(many, url):
    added, tokens = many
    added.publish(1, *tokens)
    added.publish(1, *tokens)
    assert sorted(row["n"] for row in rows(url)) == list(range(30_000))
    assert len(DeltaTable(url).history()) == 2


def test_the_client_gets_rows_as_it_asks_for_them(many, monkeypatch, arrow_peak):
    added, tokens = many
    read = []
    # The client itself gathers rows to larger batches before it writes them: this one only reads.
    monkeypatch.setattr(
        deltalake, "write_deltalake", lambda table, reader, **_: read.extend(batch.num_rows for batch in reader)
    )
    with arrow_peak() as peak:
        added.publish(1, *tokens)
    assert sum(read) == 30_000
    assert 0 < peak.bytes < 1_000_000


def test_rows_that_are_damaged_are_told_as_such_and_nothing_is_added(harness, url, tmp_path, monkeypatch):
    monkeypatch.setattr(staging, "FILE_BYTES", 100_000)
    added = harness()
    added.publish(1, added.stage(1, [{"n": 1, "text": "a"}]))
    batches = [pa.RecordBatch.from_pydict({"n": [n] * 100, "text": ["x" * 1000] * 100}) for n in range(20)]
    token = added.stage(2, *batches)
    damaged = max((tmp_path / "state").rglob("*.arrow-*"), key=lambda file: int(file.name.rpartition("-")[2]))
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"?")
    with pytest.raises(CorruptError, match="is not what was staged there"):
        added.publish(2, token)
    assert rows(url) == [{"n": 1, "text": "a"}]
