"""The delta sink, local and on a real S3 server: each record once, whatever is repeated, overtaken or of the wrong type."""

from __future__ import annotations

import datetime
import decimal
import itertools
import json
import os
import pickle
import sys
from pathlib import Path
from urllib.parse import unquote

import duckdb
import msgspec
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from typer.testing import CliRunner

from servers.stores import ACCESS_KEY, SECRET_KEY, running_seaweedfs
from tidewheel import sinks
from tidewheel._cli import app
from tidewheel._cli.program import load_job
from tidewheel._connectors.delta import table as delta_table
from tidewheel._connectors.delta.features import unsupported
from tidewheel._connectors.delta.sink import Delta
from tidewheel._connectors.delta.table import TableLocation
from tidewheel._connectors.staging import StagedBatches
from tidewheel.connectors import Staging
from tidewheel.errors import ConfigError, ConnectorUnavailable, CorruptError, StateError, StepError, StorageError
from tidewheel.testing import MemoryRun
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
    def test_a_crash_anywhere_in_publishing_is_repaired(self, harness, hit):
        super().test_a_crash_anywhere_in_publishing_is_repaired(harness, hit)


def test_a_commit_is_seen_all_at_once(harness, url):
    harness = harness()
    harness.publish(2, harness.stage(2, [{"n": 1}]), harness.stage(2, [{"n": 2}], task=1))
    table = DeltaTable(url)
    assert table.version() == 1
    assert rows(url) == [{"n": 1}, {"n": 2}]
    assert table.transaction_version("tidewheel:orders:out") == 2


def test_a_driver_that_looked_too_early_does_not_add_a_batch_twice(harness, url):
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


def test_output_of_a_former_job_of_this_name_is_not_claimed(harness):
    harness = harness()
    harness.publish(9, harness.stage(9, [{"n": 1}]))
    for sequence in (2, 9):
        with pytest.raises(StateError, match=rf"sequence {sequence} .*9 is already published"):
            harness.publish(sequence, harness.stage(sequence, [{"n": 2}], run="r2"))


def test_a_former_job_is_detected_after_any_number_of_other_commits(harness, url, monkeypatch):
    monkeypatch.setattr(delta_table, "_LOOK_BACK", 2)
    harness = harness()
    token = harness.stage(9, [{"n": 1}])
    harness.publish(9, token)
    for number in range(5):
        write_deltalake(url, pa.table({"n": [number]}), mode="append")
    before = rows(url)
    harness.sink._table = None
    harness.publish(9, token)
    with pytest.raises(StateError, match=r"sequence 9 .*9 is already published"):
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
    with pytest.raises(ConfigError, match="is partitioned by day, but partition_by is n"):
        sinks.delta(url, partition_by="n").start("orders")


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"m": 1}, "sink 'out': the table has no column m; it has n, at, s"),
        ({"n": 1.5}, "'n' has the type double, but in the table it has int64.*was truncated"),
        ({"n": "1"}, "'n' has the type string, but in the table it has int64"),
        ({"s": 1}, "'s' has the type int64, but in the table it has string"),
        ({"at": datetime.datetime(2025, 1, 31)}, "'at' has the type timestamp"),
        ({"n": [1]}, "'n' has the type list"),
    ],
)
def test_records_that_the_table_cannot_take_fail_before_the_commit(harness, url, given, text):
    schema = pa.schema([("n", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("s", pa.string())])
    DeltaTable.create(url, schema)
    with pytest.raises(StepError, match=text):
        harness().stage(2, [given])


def test_types_that_no_table_has_fail_before_the_commit_too(harness):
    with pytest.raises(StepError, match="'n' of type duration"):
        harness().stage(2, [{"n": datetime.timedelta(1)}])


def test_partition_by_a_column_that_is_not_there(harness):
    with pytest.raises(StepError, match="partition_by is day, but there is no column day"):
        harness(partition_by="day").stage(2, [{"n": 1}])


def test_bytes_cannot_divide_a_table(harness):
    with pytest.raises(StepError, match="cannot be partitioned by bytes, as the column 'day' has"):
        harness(partition_by="day").stage(2, [{"n": 1, "day": b"x"}])


def test_a_batch_may_have_only_nulls_in_the_partition_column(harness, url):
    harness = harness(partition_by="day")
    harness.publish(2, harness.stage(2, [{"n": 1, "day": "mo"}]))
    harness.publish(3, harness.stage(3, [{"n": 2, "day": None}]))
    assert rows(url) == [{"n": 1, "day": "mo"}, {"n": 2, "day": None}]


@pytest.mark.parametrize("mode", ["append", "merge"])
def test_tasks_know_a_table_and_columns_that_their_run_has_added(url, tmp_path, harnessed, mode):
    """The program that tasks have was pickled when the run started, before there was a table."""
    key = "n" if mode == "merge" else ()
    harness = harnessed(sinks.delta(url, mode=mode, key=key, evolve="add"), (tmp_path / "state").as_uri())
    driver, tasks = harness.sink, pickle.loads(pickle.dumps(harness.sink))
    for sequence, good, bad in ((2, {"n": 1}, {"n": 1.5}), (3, {"n": 2, "cents": 5}, {"n": 2, "cents": 1.5})):
        harness.sink = tasks
        token = harness.stage(sequence, [good])
        harness.sink = driver
        harness.publish(sequence, token)
        harness.sink = tasks
        with pytest.raises(StepError, match="has the type double, but in the table it has int64"):
            harness.stage(sequence + 1, [bad])
    assert rows(url) == [{"n": 1, "cents": None}, {"n": 2, "cents": 5}]


@pytest.mark.parametrize(
    "column",
    [
        pa.array([datetime.datetime(9999, 12, 31, 23, 59, 59, 999999)], pa.timestamp("us")),
        pa.array([datetime.datetime(9999, 12, 31, 23, 59, 59, 999999)], pa.timestamp("us", "UTC")),
        pa.array([10**6 * 86400 * 365 * 10000], pa.int64()).cast(pa.timestamp("us")),
        pa.array([365 * 10000], pa.int32()).cast(pa.date32()),
    ],
    ids=str,
)
def test_times_at_the_end_of_the_calendar_and_after_it_are_written(harness, url, column):
    harness = harness()
    batch = pa.RecordBatch.from_arrays([column], ["until"])
    harness.publish(2, harness.stage(2, batch))
    assert DeltaTable(url).to_pyarrow_table().column("until").combine_chunks().equals(column)


def test_a_missing_table_is_refused_without_create(url):
    with pytest.raises(ConfigError, match=r"there is no Delta table at .*create=True"):
        sinks.delta(url, create=False).start("orders")


def test_output_that_the_table_rejects_is_added_once_it_is_corrected(harness, url):
    harness = harness()
    harness.publish(2, harness.stage(2, [{"n": 1}]))
    table = DeltaTable(url)
    table.alter.add_constraint({"small": "n < 5"})
    token = harness.stage(3, [{"n": 7}])
    with pytest.raises(StepError, match=r"rejects the output.*Nothing committed is lost"):
        harness.publish(3, token)
    table.update_incremental()
    table.alter.drop_constraint("small")
    harness.publish(3, token)
    assert rows(url) == [{"n": 1}, {"n": 7}]


def test_an_unavailable_store_is_reported_and_the_output_waits(tmp_path, harnessed, monkeypatch):
    with running_seaweedfs(tmp_path / "weed") as server:
        url = f"{server.url('table')}&retry_s=0.2"
        harness = harnessed(sinks.delta(url), str(tmp_path / "state"))
        token = harness.stage(2, [{"n": 1}])
        server.kill()
        with pytest.raises(ConnectorUnavailable, match=r"is unavailable.*start again when it is available"):
            harness.publish(2, token)
        server.start()
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2")
        with pytest.raises(ConfigError, match=r"denies access.*AWS_ACCESS_KEY_ID") as refused:
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


def independent(url):
    """Read a table without the Delta client: replay its log, and let DuckDB read each file."""
    files = {}
    for log in sorted(Path(url, "_delta_log").glob("*.json")):
        for action in map(json.loads, log.read_text().splitlines()):
            if "add" in action:
                files[unquote(action["add"]["path"])] = action["add"]
            if "remove" in action:
                del files[unquote(action["remove"]["path"])]
    found = []
    for path, add in files.items():
        rows = duckdb.from_parquet(f"{url}/{path}").to_arrow_table().to_pylist()
        stats = json.loads(add["stats"])
        assert (len(rows), Path(url, path).stat().st_size) == (stats["numRecords"], add["size"])
        for name, least in stats["minValues"].items():
            values = [row[name] for row in rows if row[name] is not None]
            assert str(least) <= str(min(values)), name
        found += [{**add["partitionValues"], **row} for row in rows]
    return found


def test_a_second_reader_finds_the_same_rows(harness, url):
    harness = harness(partition_by="day")
    given = [{"day": day, "n": n, "s": f"{n}ü" * 20} for n, day in enumerate(["a/b c", "%2F", None, "2025-01-31"])]
    harness.publish(2, harness.stage(2, given[:2]), harness.stage(2, given[2:], task=1))
    assert sorted(independent(url), key=lambda row: row["n"]) == given
    assert sorted(rows(url), key=lambda row: row["n"]) == given


def test_tasks_write_the_files_of_the_table_and_publishing_writes_none(harness, url):
    harness = harness()
    tokens = [harness.stage(2, [{"n": task}], task=task) for task in range(3)]
    written = {str(path) for path in Path(url).glob("*.parquet")}
    assert len(written) == 3
    harness.publish(2, *tokens)
    assert {str(path) for path in Path(url).glob("*.parquet")} == written
    assert {uri.removeprefix("file://") for uri in DeltaTable(url).file_uris()} == written


def test_a_token_has_the_statistics_by_which_readers_skip_files(harness, url):
    at = datetime.datetime(2025, 1, 31, 12, 0, 0, 1, tzinfo=datetime.UTC)
    harness = harness()
    harness.publish(2, harness.stage(2, [{"n": 3, "s": "x" * 40, "at": at, "f": 1.5}, {"n": None, "s": "a", "at": at}]))
    (log,) = (json.loads(line)["add"] for line in _log(url) if '"add"' in line)
    assert json.loads(log["stats"]) == {
        "numRecords": 2,
        "minValues": {"n": 3, "s": "a", "at": "2025-01-31T12:00:00.000Z"},
        "maxValues": {"n": 3, "s": "x" * 32 + "\U0010ffff", "at": "2025-01-31T12:00:00.001Z"},
        "nullCount": {"n": 1, "s": 0, "at": 0, "f": 1},
    }


def _log(url):
    return sorted(Path(url, "_delta_log").glob("*.json"))[-1].read_text().splitlines()


def test_tasks_that_inferred_different_types_agree_in_a_new_table(harness, url):
    harness = harness(partition_by="day")
    tokens = [harness.stage(2, [{"day": 1, "n": 1}]), harness.stage(2, [{"day": 2, "n": 1.5, "more": "x"}], task=1)]
    harness.publish(2, *tokens)
    assert rows(url) == [{"day": 1, "n": 1.0, "more": None}, {"day": 2, "n": 1.5, "more": "x"}]


def test_rows_that_an_earlier_version_staged_are_added(harness, url):
    harness = harness()
    staged = StagedBatches(Staging(harness.store, "orders", "out", 2, "r1-0-0"))
    staged.write(pa.RecordBatch.from_pylist([{"n": 1}]))
    token = staged.prepare()
    for _ in range(2):
        harness.publish(2, token)
    assert rows(url) == [{"n": 1}]


def test_a_data_file_lost_before_publication_is_reported(harness, url):
    harness = harness()
    token = harness.stage(2, [{"n": 1}])
    for path in Path(url).glob("*.parquet"):
        path.unlink()
    with pytest.raises(StorageError, match=r"committed output is lost.*--drop-unpublished out"):
        harness.publish(2, token)
    assert rows(url) == []


def test_clients_can_rewrite_files_of_tasks(tmp_path, url, harnessed):
    """Clients look for the files of the log under their names, whatever the names of job and sink are."""
    added = harnessed(sinks.delta(url), str(tmp_path / "state"), job="or~ders %2F/17", name="the out=put")
    for sequence in (2, 3):
        added.publish(sequence, added.stage(sequence, [{"n": sequence}]))
    table = DeltaTable(url)
    table.delete("n = 2")
    table.optimize.compact()
    assert rows(url) == [{"n": 3}]


def test_a_published_batch_is_found_although_its_files_are_gone(harness, url):
    """A compaction has replaced them, and a cleaning has deleted them."""
    harness = harness()
    token = harness.stage(2, [{"n": 1}])
    harness.publish(2, token)
    harness.publish(3, harness.stage(3, [{"n": 2}]))
    table = DeltaTable(url)
    table.optimize.compact()
    table.vacuum(0, dry_run=False, enforce_retention_duration=False)
    harness.sink._table = None
    harness.publish(2, token)
    assert rows(url) == [{"n": 1}, {"n": 2}]


def test_new_columns_are_added_if_the_sink_may(harness, url):
    harness = harness(evolve="add")
    harness.publish(2, harness.stage(2, [{"n": 1}]))
    harness.sink.start("orders")
    tokens = [harness.stage(3, [{"n": 2, "s": "x"}]), harness.stage(3, [{"n": 3, "f": 1.5}], task=1)]
    for _ in range(2):
        harness.publish(3, *tokens)
    assert rows(url) == [{"n": 1, "s": None, "f": None}, {"n": 2, "s": "x", "f": None}, {"n": 3, "s": None, "f": 1.5}]


@pytest.mark.parametrize(
    "change", [lambda _: "other.parquet", lambda path: f"../{path}", lambda path: path.replace("2", "3")]
)
def test_a_token_cannot_add_other_files(harness, change):
    harness = harness()
    token = msgspec.msgpack.decode(harness.stage(2, [{"n": 1}]))
    token["files"][0][0] = change(token["files"][0][0])
    with pytest.raises(CorruptError, match="is not a file of this commit"):
        harness.publish(2, msgspec.msgpack.encode(token))


def test_files_of_a_crash_are_collected_when_the_table_forgets_them(harness, url):
    harness = harness()
    harness.publish(2, harness.stage(2, [{"n": 1}]))
    published = {path.name for path in Path(url).glob("*.parquet")}
    harness.stage(3, [{"n": 2}])
    (left,) = {path.name for path in Path(url).glob("*.parquet")} - published
    Path(url, "foreign.parquet").write_bytes(b"")
    assert harness.sink.collect("orders", "out") == []
    for path in Path(url).glob("*.parquet"):
        os.utime(path, (1, 1))
    assert harness.sink.collect("orders", "more") == []
    assert harness.sink.collect("orders", "out", dry_run=True) == [left]
    assert harness.sink.collect("orders", "out") == [left]
    assert {path.name for path in Path(url).glob("*.parquet")} == {*published, "foreign.parquet"}


def test_a_table_with_unsupported_features_is_refused_before_the_start(url):
    DeltaTable.create(url, pa.schema([("n", pa.int64())])).alter.add_constraint({"small": "n < 5"})
    with pytest.raises(ConfigError, match=r"it has the constraint small \(n < 5\), which the sink does not support"):
        sinks.delta(url).start("orders")


@pytest.mark.parametrize(
    ("versions", "features", "configuration", "metadata", "found"),
    [
        ((1, 2), (), {}, {}, []),
        ((3, 7), ("timestampNtz", "checkConstraints", "columnMapping"), {}, {}, []),
        ((3, 7), ("deletionVectors",), {}, {}, ["the feature deletionVectors"]),
        ((3, 7), ("rowTracking", "future"), {}, {}, ["the feature future", "the feature rowTracking"]),
        ((4, 8), (), {}, {}, ["the protocol versions 4 and 8"]),
        ((2, 5), (), {"delta.columnMapping.mode": "name"}, {}, ["column mapping by name"]),
        ((1, 4), (), {}, {"delta.generationExpression": "1"}, ["the generated column n"]),
        ((1, 6), (), {}, {"delta.identity.start": 1}, ["the identity column n"]),
        ((1, 2), (), {}, {"delta.invariants": "{}"}, ["the invariant of the column n"]),
    ],
)
def test_features_that_are_not_supported_have_names(versions, features, configuration, metadata, found):
    assert unsupported(versions, features, configuration, [{"name": "n", "metadata": metadata}]) == found


@pytest.fixture
def program(tmp_path, url):
    program = tmp_path / "program.py"
    program.write_text(
        "from tidewheel import Job, sinks, sources\n"
        f"job = Job('orders', state={(tmp_path / 'state').as_uri()!r})\n"
        "numbers = job.source('in', sources.iterable([{'n': 1}]))\n"
        f"numbers.sink('out', sinks.delta({url!r}))\n"
    )
    return program


def test_gc_keeps_files_that_a_stopped_job_has_yet_to_publish(program, url, monkeypatch):
    """Its catalog or store may be away for longer than the table keeps files that nothing refers to."""
    job = load_job(str(program))
    with MemoryRun(job) as run:
        run.batch({"in": [{"n": 1}]})
    with monkeypatch.context() as patch, MemoryRun(job) as run:
        patch.setattr(Delta, "publish", _unavailable)
        with pytest.raises(ConnectorUnavailable):
            run.batch({"in": [{"n": 2}]})
    for path in Path(url).glob("*.parquet"):
        os.utime(path, (1, 1))
    said = CliRunner().invoke(app, ["checkpoints", "gc", str(program)])
    assert said.exit_code == 0, said.output
    with MemoryRun(job) as run:
        run.batch({"in": [{"n": 3}]})
    assert rows(url) == [{"n": 1}, {"n": 2}, {"n": 3}]


def _unavailable(*_):
    raise ConnectorUnavailable("the store is away")


def test_gc_with_the_program_collects_files_of_a_crash(program, url):
    job = load_job(str(program))
    with MemoryRun(job) as run:
        run.batch({"in": [{"n": 1}]})
    (written,) = Path(url).glob("*.parquet")
    left = written.with_name(f"{written.stem}-again.parquet")
    left.write_bytes(b"")
    os.utime(left, (1, 1))
    said = CliRunner().invoke(app, ["checkpoints", "gc", str(program)])
    assert said.exit_code == 0, said.output
    assert left.name in said.output
    assert not left.exists()
    assert rows(url) == [{"n": 1}]
