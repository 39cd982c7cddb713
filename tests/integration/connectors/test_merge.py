"""The delta and iceberg sinks with mode="merge": one row for each key, whatever is repeated, overtaken or changed by others."""

from __future__ import annotations

import datetime
import itertools
import json
import random
from pathlib import Path
from urllib.parse import quote, unquote

import datafusion
import duckdb
import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.transaction import RemoveAction

from servers.iceberg_rest import iceberg_rest  # noqa: F401
from tidewheel import Job, sinks
from tidewheel._connectors.delta.merge import _PLAIN
from tidewheel._connectors.files import merging, sorting
from tidewheel._connectors.iceberg.catalog import TableName
from tidewheel.errors import ConfigError, GraphError, StepError
from tidewheel.sources import iterable
from tidewheel.testing import MemoryRun
from tidewheel.testing.connectors import SinkConformance, SinkHarness

NAME = "shop.orders"
_numbers = itertools.count()


class _Delta:
    def __init__(self, folder):
        self.url = str(folder / "table")

    def sink(self, **options):
        return sinks.delta(self.url, **options)

    def contents(self):
        return DeltaTable(self.url).to_pyarrow_table().to_pylist() if DeltaTable.is_deltatable(self.url) else []

    def independent(self):
        """Replay the log, and let DuckDB read each file: neither has code of the Delta client."""
        files = {}
        for log in sorted(Path(self.url, "_delta_log").glob("*.json")):
            for action in map(json.loads, log.read_text().splitlines()):
                if "remove" in action:
                    del files[action["remove"]["path"]]
                if "add" in action:
                    files[action["add"]["path"]] = action["add"]
        found = []
        for path, add in files.items():
            rows = duckdb.from_parquet(f"{self.url}/{unquote(path)}").to_arrow_table().to_pylist()
            assert len(rows) == json.loads(add["stats"])["numRecords"]
            found += [{**add["partitionValues"], **row} for row in rows]
        return found

    def create(self, columns):
        DeltaTable.create(self.url, columns)

    def append(self, table):
        write_deltalake(self.url, table, mode="append")

    def drop(self, name):
        rest = DeltaTable(self.url).to_pyarrow_table().drop_columns([name])
        write_deltalake(self.url, rest, mode="overwrite", schema_mode="overwrite")

    def make_newer(self):
        log = Path(self.url, "_delta_log", f"{0:020}.json")
        actions = [json.loads(line) for line in log.read_text().splitlines()]
        newer = [
            {"protocol": {"minReaderVersion": 9, "minWriterVersion": 9}} if "protocol" in each else each
            for each in actions
        ]
        log.write_text("\n".join(map(json.dumps, newer)))

    def commits(self):
        return DeltaTable(self.url).version()


class _Iceberg:
    def __init__(self, folder, catalog=None, name=NAME):
        local = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/lake"}
        self.catalog, self.name = catalog or local, name

    def table(self):
        return TableName.of(self.name, self.catalog).load("the test")

    def sink(self, **options):
        return sinks.iceberg(self.name, catalog=self.catalog, **options)

    def contents(self):
        table = self.table()
        return [] if table is None else table.scan().to_arrow().to_pylist()

    def independent(self):
        """Read the table with iceberg-rust and DataFusion, which share no code with the client of the sink."""
        context = datafusion.SessionContext()
        context.register_table("read", self.table())
        return context.sql('SELECT * FROM "read"').to_arrow_table().to_pylist()

    def create(self, columns):
        TableName.of(self.name, self.catalog).create("the test", columns, ())

    def append(self, table):
        self.table().append(table)

    def drop(self, name):
        with self.table().update_schema() as update:
            update.delete_column(name)

    def make_newer(self):
        path = Path(self.table().metadata_location.removeprefix("file://"))
        path.write_text(json.dumps({**json.loads(path.read_text()), "format-version": 9}))

    def commits(self):
        return len(self.table().snapshots())


@pytest.fixture(params=[_Delta, _Iceberg], ids=["delta", "iceberg"])
def place(request, tmp_path):
    return request.param(tmp_path)


@pytest.fixture
def harness(tmp_path, place, harnessed):
    def made(**options):
        return harnessed(place.sink(**{"mode": "merge", "key": "k", **options}), str(tmp_path / "state"))

    return made


@pytest.fixture
def rows(place):
    def read():
        found, other = place.contents(), place.independent()
        names = sorted({name for row in found for name in row})
        texts = [sorted([str(row.get(name)) for name in names] for row in each) for each in (found, other)]
        assert texts[0] == texts[1]
        return sorted(found, key=lambda row: [str(value) for value in row.values()])

    return read


class _Table(SinkHarness):
    def __init__(self, place):
        self.place = place

    def sink(self):
        return self.place.sink(mode="merge", key="id")

    def contents(self):
        return self.place.contents()


class TestMergeConformance(SinkConformance):
    @pytest.fixture
    def harness(self, place):
        return _Table(place)


class TestRestConformance(SinkConformance):
    @pytest.fixture
    def harness(self, tmp_path, iceberg_rest):  # noqa: F811
        return _Table(_Iceberg(tmp_path, iceberg_rest.properties, f"shop.m{next(_numbers)}"))


def test_a_record_replaces_the_row_of_its_key(harness, rows):
    harness = harness()
    harness.publish(2, harness.stage(2, [{"k": 1, "v": "a"}, {"k": 2, "v": "b"}]))
    harness.publish(3, harness.stage(3, [{"k": 2, "v": "c"}, {"k": 3}]))
    assert rows() == [{"k": 1, "v": "a"}, {"k": 2, "v": "c"}, {"k": 3, "v": None}]


def test_several_changes_of_a_key_count_as_the_last(harness, place, rows):
    """Of one task, and of several: then the last task counts."""
    harness = harness(delete="gone")
    for sequence in (2, 3):
        first = harness.stage(
            sequence,
            [{"k": 1, "v": 1, "gone": False}, {"k": 1, "v": 2, "gone": True}],
            [{"k": 2, "v": 1, "gone": False}, {"k": 4, "v": sequence, "gone": False}],
        )
        second = harness.stage(
            sequence, [{"k": 2, "v": sequence, "gone": None}, {"k": 3, "v": 1, "gone": True}], task=1
        )
        harness.publish(sequence, first, second)
        assert rows() == [{"k": 2, "v": sequence}, {"k": 4, "v": sequence}]


def test_random_changes_give_the_rows_of_a_dict(harness, place, rows, monkeypatch):
    """Keys of two columns, in partitions between which rows move, with more rows than a task holds in memory."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    monkeypatch.setattr(sorting, "GROUP_BYTES", 500)
    monkeypatch.setattr(merging, "_EXACT", 3)
    harness = harness(key=["shop", "n"], delete=pc.field("cents") < 0, partition_by="kind")
    expected = {}
    for sequence in range(2, 5):
        tokens = []
        for task in range(2):
            changes = [
                {
                    "shop": draw.choice("ab ü/%"),
                    "n": draw.randrange(6),
                    "kind": draw.choice("x y=%"),
                    "cents": draw.randrange(-3, 9),
                }
                for _ in range(draw.randrange(1, 15))
            ]
            for change in changes:
                expected[change["shop"], change["n"]] = change
            tokens.append(harness.stage(sequence, *([change] for change in changes), task=task))
        harness.publish(sequence, *tokens)
    kept = [change for change in expected.values() if change["cents"] >= 0]
    assert rows() == sorted(kept, key=lambda row: [str(row[name]) for name in rows()[0]]) if kept else not rows()


def test_files_without_changed_keys_stay_and_files_with_only_these_are_dropped(harness, place, rows):
    harness = harness()
    for sequence in (2, 3, 4):
        some = [{"k": sequence * 10 + n, "v": "old"} for n in range(3)]
        harness.publish(sequence, harness.stage(sequence, some))
    paths = set(map(str, place_files(place)))
    harness.publish(5, harness.stage(5, [{"k": k, "v": "new"} for k in (31, 40, 41, 42)]))
    assert [row["v"] for row in rows()] == ["old"] * 4 + ["new"] + ["old"] + ["new"] * 3
    assert len(set(map(str, place_files(place))) - paths) == 2, "the new rows, and the rest of one old file"


def place_files(place):
    """Return the data files in the folder of a table."""
    folder = place.url if isinstance(place, _Delta) else place.table().location().removeprefix("file://")
    return Path(folder).rglob("*.parquet")


def test_delete_by_an_expression(harness, rows):
    harness = harness(delete=pc.field("op") == "d")
    harness.publish(2, harness.stage(2, [{"k": 1, "op": "c"}, {"k": 2, "op": "c"}]))
    harness.publish(3, harness.stage(3, [{"k": 1, "op": "d"}]))
    assert rows() == [{"k": 2, "op": "c"}]


def test_a_deletion_needs_only_the_key(harness, place, rows):
    place.create(pa.schema([("k", pa.int64()), pa.field("v", pa.string(), nullable=False)]))
    harness = harness(delete="gone")
    harness.publish(2, harness.stage(2, [{"k": k, "v": v, "gone": False} for k, v in ((1, "a"), (2, "b"))]))
    harness.publish(3, harness.stage(3, [{"k": 1, "gone": True}]))
    assert rows() == [{"k": 2, "v": "b"}]
    with pytest.raises(StepError, match="the table requires v, but the records have k"):
        harness.stage(4, [{"k": 2, "v": None, "gone": False}])


def test_deletions_before_there_is_a_table(harness, rows):
    harness = harness(delete="gone")
    harness.publish(2, harness.stage(2, [{"k": 1, "gone": True}]))
    harness.publish(3, harness.stage(3, [{"k": 1, "v": "a", "gone": False}]))
    assert rows() == [{"k": 1, "v": "a"}]


def test_a_commit_without_effect_has_its_marker_too(harness, rows):
    """Without it, a driver that was overtaken would delete a newer row."""
    harness = harness(delete="gone")
    harness.publish(2, harness.stage(2, [{"k": 2, "v": "other", "gone": False}]))
    older = harness.stage(3, [{"k": 1, "v": "old", "gone": True}])
    harness.publish(3, older)
    harness.publish(4, harness.stage(4, [{"k": 1, "v": "new", "gone": False}]))
    harness.sink._table = None
    harness.publish(3, older)
    assert rows() == [{"k": 1, "v": "new"}, {"k": 2, "v": "other"}]


def test_another_writer_between_looking_and_merging(harness, place, rows):
    """Its row has the same key: it must be replaced, and not be there twice."""
    harness = harness()
    harness.publish(2, harness.stage(2, [{"k": 1, "v": "a"}]))
    stale = DeltaTable(place.url) if isinstance(place, _Delta) else place.table()
    place.append(pa.table({"k": [2], "v": ["theirs"]}))
    harness.sink._table = stale
    harness.publish(3, harness.stage(3, [{"k": 2, "v": "ours"}]))
    assert rows() == [{"k": 1, "v": "a"}, {"k": 2, "v": "ours"}]


def test_a_merge_during_a_compaction(harness, place, rows):
    harness = harness()
    for sequence in (2, 3, 4):
        harness.publish(sequence, harness.stage(sequence, [{"k": sequence, "v": "a"}]))
    stale = harness.sink._table
    place.sink().compact()
    harness.sink._table = stale
    harness.publish(5, harness.stage(5, [{"k": 3, "v": "b"}]))
    assert rows() == [{"k": 2, "v": "a"}, {"k": 3, "v": "b"}, {"k": 4, "v": "a"}]


def test_a_table_that_was_appended_to_is_merged_into(tmp_path, place, harnessed, harness, rows):
    appended = harnessed(place.sink(), str(tmp_path / "state"), name="first")
    appended.publish(2, appended.stage(2, [{"k": 1, "v": "a"}, {"k": 2, "v": "b"}]))
    harness = harness()
    harness.publish(2, harness.stage(2, [{"k": 2, "v": "c"}]))
    assert rows() == [{"k": 1, "v": "a"}, {"k": 2, "v": "c"}]


def test_keys_of_several_columns_with_any_names(harness, rows):
    harness = harness(key=["Order Id", 'a"b'], partition_by="Order Id")
    harness.publish(2, harness.stage(2, [{"Order Id": 1, 'a"b': "x", "v": 1}, {"Order Id": 1, 'a"b': "y", "v": 1}]))
    harness.publish(3, harness.stage(3, [{"Order Id": 1, 'a"b': "y", "v": 2}]))
    assert sorted(row["v"] for row in rows()) == [1, 2]


@pytest.mark.parametrize(
    "keys",
    [
        [datetime.date(2025, 1, day) for day in (1, 2)],
        [datetime.datetime(2025, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(microseconds=n) for n in (1, 2)],
        ["x" * 50 + end for end in "ab"],
        [b"\0", b"\xff"],
    ],
)
def test_keys_of_all_types(harness, rows, keys):
    harness = harness()
    harness.publish(2, harness.stage(2, [{"k": keys[0], "v": 1}, {"k": keys[1], "v": 1}]))
    harness.publish(3, harness.stage(3, [{"k": keys[1], "v": 2}]))
    assert rows() == [{"k": keys[0], "v": 1}, {"k": keys[1], "v": 2}]


def test_the_partition_column_alone_is_the_key(harness, rows):
    harness = harness(partition_by="k")
    harness.publish(2, harness.stage(2, [{"k": "a/ %", "v": 1}, {"k": "ü", "v": 1}]))
    harness.publish(3, harness.stage(3, [{"k": "a/ %", "v": 2}]))
    assert rows() == [{"k": "a/ %", "v": 2}, {"k": "ü", "v": 1}]


def test_new_columns_are_added_if_the_sink_may(harness, rows):
    harness = harness(evolve="add")
    harness.publish(2, harness.stage(2, [{"k": 1}, {"k": 3}]))
    harness.sink.start("orders")
    harness.publish(3, harness.stage(3, [{"k": 1, "v": "a"}, {"k": 2, "v": "b"}]))
    assert rows() == [{"k": 1, "v": "a"}, {"k": 2, "v": "b"}, {"k": 3, "v": None}]


def test_the_key_of_the_stream_is_the_key_of_the_rows(tmp_path, place, rows):
    job = Job("orders", state=(tmp_path / "state").as_uri())
    stream = job.source("in", iterable([]), type=dict).key_by("user")
    stream.sink("out", place.sink(mode="merge"))
    with MemoryRun(job) as run:
        run.batch({"in": [{"user": "a", "n": 1}, {"user": "b", "n": 1}]})
        run.batch({"in": [{"user": "a", "n": 2}]})
    assert rows() == [{"user": "a", "n": 2}, {"user": "b", "n": 1}]


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


def test_a_key_column_that_the_table_lost_fails_the_batch(harness, place):
    harness = harness()
    harness.publish(2, harness.stage(2, [{"k": 1, "v": 1}]))
    place.sink(mode="merge", key="v").start("orders")
    with pytest.raises(ConfigError, match="has no column id for the key"):
        place.sink(mode="merge", key="id").start("orders")


@pytest.mark.parametrize("mode", ["append", "merge"])
def test_a_table_of_an_unknown_protocol_is_refused_before_the_start(place, mode):
    place.create(pa.schema([("k", pa.int64())]))
    place.make_newer()
    with pytest.raises(ConfigError, match=r"the installed (deltalake|pyiceberg) cannot read .*upgrade"):
        place.sink(mode=mode, key="k" if mode == "merge" else ()).start("orders")


@pytest.mark.parametrize("mode", ["append", "merge"])
def test_a_table_that_lost_a_column_fails_the_batch_before_its_commit(place, tmp_path, harnessed, mode):
    sink = place.sink(mode=mode, key="k" if mode == "merge" else ())
    harness = harnessed(sink, str(tmp_path / "state"))
    harness.publish(2, harness.stage(2, [{"k": 1, "v": "a"}]))
    place.drop("v")
    sink.start("orders")
    with pytest.raises(StepError, match="the table has no column v; it has k"):
        harness.stage(3, [{"k": 2, "v": "b"}], run="r2")


@pytest.mark.parametrize("name", ["delta.appendOnly", "delta.enableChangeDataFeed"])
def test_a_property_that_a_merge_would_break_is_refused_before_the_start(tmp_path, name):
    place = _Delta(tmp_path)
    DeltaTable.create(place.url, pa.schema([("k", pa.int64())]), configuration={name: "true"})
    place.sink().start("orders")
    with pytest.raises(ConfigError, match=f"it has the property {name}"):
        place.sink(mode="merge", key="k").start("orders")


def test_a_table_with_delete_files_is_refused_before_the_start(tmp_path, monkeypatch):
    place = _Iceberg(tmp_path)
    place.create(pa.schema([("k", pa.int64())]))
    place.append(pa.table({"k": [1]}))
    monkeypatch.setattr("tidewheel._connectors.iceberg.commits.has_delete_files", lambda table, head: True)
    place.sink().start("orders")
    with pytest.raises(ConfigError, match="it has delete files, which the sink does not support"):
        place.sink(mode="merge", key="k").start("orders")


def test_paths_of_the_log_are_escaped_as_the_client_does(tmp_path):
    """The sink removes a file by its path, which the client escapes again. Another escape would leave the file in the table."""
    place = _Delta(tmp_path)
    write_deltalake(place.url, pa.table({"k": [1]}))
    given = [f"x{chr(code)}y" for code in (*range(32, 127), 0xFC, 0x20AC) if chr(code) != "/"]
    table = DeltaTable(place.url)
    table.create_write_transaction([RemoveAction(path, True, 0) for path in given], "append", table.schema())
    lines = Path(place.url, "_delta_log", f"{1:020}.json").read_text().splitlines()
    logged = [json.loads(line)["remove"]["path"] for line in lines if "remove" in line]
    assert sorted(map(unquote, logged)) == sorted(given)
    assert [path for path in logged if quote(unquote(path), safe=_PLAIN) != path] == []


def test_a_path_that_the_client_would_escape_otherwise_is_refused(tmp_path, harness_of_delta):
    harness, url = harness_of_delta
    log = Path(url, "_delta_log", f"{1:020}.json")
    log.write_text(log.read_text().replace('"path":"tidewheel', '"path":"%74idewheel'))
    harness.sink._table = None
    with pytest.raises(StepError, match=r"names its file '%74idewheel.* in a way that the sink cannot name it"):
        harness.publish(3, harness.stage(3, [{"k": 1, "v": "b"}]))


@pytest.fixture
def harness_of_delta(tmp_path, harnessed):
    place = _Delta(tmp_path)
    harness = harnessed(place.sink(mode="merge", key="k"), str(tmp_path / "state"))
    harness.publish(2, harness.stage(2, [{"k": 1, "v": "a"}]))
    return harness, place.url


def test_changes_that_an_earlier_version_staged_are_merged(tmp_path, harness_of_delta):
    from tidewheel._connectors.keyed_rows import DELETE
    from tidewheel._connectors.sink import Staging
    from tidewheel._connectors.staging import StagedBatches

    harness, url = harness_of_delta
    tokens = []
    for task, some in enumerate(([(1, None, True), (2, "x", False)], [(2, "y", False), (3, "z", False)])):
        staged = StagedBatches(Staging(harness.store, "orders", "out", 3, f"r-{task}-0"))
        staged.write(pa.RecordBatch.from_pylist([dict(zip(("k", "v", DELETE), row, strict=True)) for row in some]))
        tokens.append(staged.prepare())
    for _ in range(2):
        harness.publish(3, *tokens)
    found = sorted(DeltaTable(url).to_pyarrow_table().to_pylist(), key=lambda row: row["k"])
    assert found == [{"k": 2, "v": "y"}, {"k": 3, "v": "z"}]


def test_a_token_cannot_add_other_files(harness):
    from tidewheel.errors import CorruptError

    harness = harness()
    harness.publish(2, harness.stage(2, [{"k": 1}]))
    token = harness.stage(3, [{"k": 1}])
    assert b"tidewheel-" in msgspec.msgpack.decode(token)["rows"]
    changed = msgspec.msgpack.decode(token)
    changed["rows"] = changed["rows"].replace(f"{3:020}".encode(), f"{4:020}".encode())
    with pytest.raises(CorruptError, match="is not a file of this commit"):
        harness.publish(3, msgspec.msgpack.encode(changed))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"mode": "upsert"}, "is append or merge, not 'upsert'"),
        ({"key": "k"}, 'need mode="merge"'),
        ({"evolve": "all"}, "not 'all'"),
    ],
)
def test_options_that_do_not_fit_are_refused(place, options, text):
    with pytest.raises(ConfigError, match=text):
        place.sink(**options)


def test_a_stream_without_a_key_is_refused(tmp_path, place):
    job = Job("orders", state=(tmp_path / "state").as_uri())
    with pytest.raises(GraphError, match=r"table .* has one row for each key, and the stream has no key"):
        job.source("in", iterable([])).sink("out", place.sink(mode="merge"))
