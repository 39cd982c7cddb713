"""A table is versioned, pinned for each batch, refreshed between batches, stored next to the state, and collected."""

from __future__ import annotations

import contextlib
import logging
import sqlite3
import tempfile
from types import SimpleNamespace

import pyarrow as pa
import pytest

from support.internals import faults, open_store, shard_of
from tidewheel import Job, sinks, sources, tables
from tidewheel._checkpoint.garbage import collect
from tidewheel._checkpoint.store import StreamCheckpoints
from tidewheel._checkpoint.tools.verify import verify
from tidewheel._connectors.tables.table import TableSource
from tidewheel._engine import table_loading, task_tables
from tidewheel._engine.job_tables import JobTables
from tidewheel._engine.table_rows import encoded_parts, read_schema, read_table
from tidewheel.errors import ConfigError, CorruptError
from tidewheel.testing import Clock, MemoryRun


class Prices:
    """A source of a table whose rows a test changes."""

    def __init__(self, **cents: int) -> None:
        self.cents, self.error, self.loads = cents, None, 0

    def __call__(self):
        self.loads += 1
        if self.error is not None:
            raise self.error
        return [{"sku": sku, "cents": cents} for sku, cents in self.cents.items()]


def made(prices, refresh="batch", **options):
    job = Job("shop", state=f"memory:{id(prices)}", **options)
    orders = job.source("in", sources.iterable([{"sku": ""}]))
    priced = orders.lookup("price", job.table("prices", prices, key="sku", refresh=refresh), on="sku", how="left")
    priced.sink("out", sinks.collect())
    return job


def batch(run, *skus):
    """Run a batch of orders; return their prices."""
    sink = run.job.graph.nodes[-1].operator.sink
    before = len(sink.records)
    run.batch({"in": [{"sku": sku} for sku in skus]})
    return [row["cents"] for row in sink.records[before:]]


def pinned(run):
    return run.run.head.tables["prices"]


def test_a_replaced_table_applies_to_the_next_batch_with_its_deletions():
    prices = Prices(tea=300, milk=90)
    with MemoryRun(made(prices)) as run:
        assert batch(run, "tea", "milk") == [300, 90]
        prices.cents = {"tea": 310}
        assert batch(run, "tea", "milk") == [310, None]
        assert (pinned(run).version, pinned(run).rows) == (2, 1)


def test_each_commit_records_the_version_that_its_batch_used():
    prices = Prices(tea=300)
    with MemoryRun(made(prices)) as run:
        batch(run, "tea")
        prices.cents = {"tea": 310}
        batch(run, "tea")
        kept = run.run.checkpoints.list()
    assert [(state.kind, state.tables["prices"].version) for state in kept if state.tables] == [
        ("table", 1),
        ("batch", 1),
        ("table", 2),
        ("batch", 2),
    ]


def test_equal_content_in_another_order_needs_no_new_table_version():
    prices = Prices(tea=300, milk=90)
    with MemoryRun(made(prices)) as run:
        before = run.run.head.sequence
        prices.cents = {"milk": 90, "tea": 300}
        batch(run, "tea")
        assert (pinned(run).version, run.run.head.sequence) == (1, before + 1)


def test_a_table_is_loaded_again_when_its_time_has_passed():
    prices, clock = Prices(tea=300), Clock()
    with MemoryRun(made(prices, "10 minutes"), clock=clock) as run:
        prices.cents = {"tea": 310}
        clock.advance(599)
        assert batch(run, "tea") == [300]
        clock.advance(1)
        assert batch(run, "tea") == [310]
        assert prices.loads == 2


def test_without_refresh_a_table_is_loaded_at_each_start():
    prices = Prices(tea=300)
    job = made(prices, None)
    with MemoryRun(job) as run:
        prices.cents = {"tea": 310}
        assert batch(run, "tea") == [300]
    with MemoryRun(job) as run:
        assert batch(run, "tea") == [310]


def test_a_restart_continues_with_the_table_version_until_it_is_due():
    prices, clock = Prices(tea=300), Clock()
    job = made(prices, "10 minutes")
    with MemoryRun(job, clock=clock) as run:
        batch(run, "tea")
    prices.cents = {"tea": 310}
    clock.advance(60)
    with MemoryRun(job, clock=clock) as run:
        assert batch(run, "tea") == [300]
        clock.advance(540)
        assert batch(run, "tea") == [310]
    assert prices.loads == 2


@pytest.mark.parametrize("point", ["task.started", "commit.before"])
def test_a_batch_that_runs_again_after_a_crash_uses_the_same_version(point):
    prices, clock = Prices(tea=300), Clock()
    job = made(prices, "10 minutes")
    with MemoryRun(job, clock=clock) as run:
        clock.advance(600)
        prices.cents = {"tea": 310}
        faults.arm(f"{point}=raise")
        try:
            with pytest.raises(faults.InjectedFault):
                batch(run, "tea")
        finally:
            faults.arm("")
    prices.cents = {"tea": 999}
    with MemoryRun(job, clock=clock, take_over=True) as run:
        assert batch(run, "tea") == [310]


def test_a_refresh_that_fails_keeps_the_version_with_a_warning(caplog):
    prices, clock, failed = Prices(tea=300), Clock(), []
    with MemoryRun(made(prices, "10 minutes"), clock=clock) as run:
        run.run.tables.failed = failed.append
        prices.error = ConnectionError("the database is away")
        clock.advance(600)
        with caplog.at_level(logging.WARNING):
            assert batch(run, "tea") == [300]
        assert failed == ["prices"]
        assert "table 'prices' (the function Prices) cannot be loaded" in caplog.text
        # It is tried again a minute later, and not before each batch.
        batch(run, "tea")
        assert prices.loads == 2
        prices.error, prices.cents = None, {"tea": 310}
        clock.advance(60)
        assert batch(run, "tea") == [310]


def test_a_first_load_is_retried_after_transient_errors_then_stops_the_job(monkeypatch):
    pauses: list[float] = []
    monkeypatch.setattr(JobTables, "_sleep", staticmethod(pauses.append))
    prices = Prices(tea=300)
    prices.error = ConnectionError("away")
    job = made(prices)
    with pytest.raises(ConfigError, match=r"table 'prices' .* cannot be loaded: .*away"):
        MemoryRun(job)
    assert (prices.loads, pauses) == (4, [1.0, 2.0, 4.0])
    assert StreamCheckpoints(open_store(job.state), "shop").latest() is None


def test_other_errors_of_a_first_load_stop_the_job_at_once():
    prices = Prices(tea=300)
    prices.error = ValueError("no such column")
    with pytest.raises(ConfigError, match="cannot be loaded: ValueError: no such column"):
        MemoryRun(made(prices))
    assert prices.loads == 1


def test_a_duplicate_key_in_a_new_version_stops_the_batch():
    prices = Prices(tea=300)
    with MemoryRun(made(prices)) as run:
        before = run.run.head
        prices_twice = [{"sku": "tea", "cents": 1}, {"sku": "tea", "cents": 2}]
        run.job.declared_tables["prices"].source = _Given(prices_twice)
        with pytest.raises(ConfigError, match=r"table 'prices' .*the key 'tea' comes twice"):
            batch(run, "tea")
        assert run.run.head == before


class _Given(TableSource):
    def __init__(self, rows):
        self.rows = rows

    def load(self, spark):
        return pa.Table.from_pylist(self.rows)

    def fingerprint(self):
        return None

    def describe(self):
        return "given"


def test_a_key_that_changes_its_type_is_refused():
    prices = Prices(tea=300)
    with MemoryRun(made(prices)) as run:
        prices.cents = {7: 300}
        with pytest.raises(ConfigError, match="its key had the type string and now has int64"):
            batch(run, "tea")


@pytest.mark.parametrize("key", ["tea", 7])
def test_a_query_without_rows_is_an_empty_table(key):
    """Only the values of a query show its types: there are none, neither at first nor after all rows were deleted."""
    with contextlib.closing(sqlite3.connect(":memory:", check_same_thread=False)) as database:
        database.execute("CREATE TABLE prices (sku, cents)")
        source = tables.sql("SELECT sku, cents FROM prices", lambda: _Borrowed(database))
        with MemoryRun(made(source)) as run:
            assert batch(run, key) == [None]
            database.execute("INSERT INTO prices VALUES (?, 300)", [key])
            assert batch(run, key) == [300]
            types = read_schema(run.run.store, "shop", pinned(run))
            database.execute("DELETE FROM prices")
            assert batch(run, key) == [None]
            assert read_schema(run.run.store, "shop", pinned(run)) == types


class _Borrowed:
    """A connection that stays open."""

    def __init__(self, connection):
        self.cursor = connection.cursor

    def close(self):
        pass


def test_files_of_versions_that_no_commit_needs_are_collected():
    prices = Prices(tea=0)
    with MemoryRun(made(prices, keep=2, collect_every=100)) as run:
        for cents in range(1, 6):
            prices.cents = {"tea": cents}
            batch(run, "tea")
        files = [entry.path for entry in run.run.folder.list("state")]
        assert sum(name.endswith(".table") for name in files) == 6
        collect(run.run.checkpoints, grace=0, keep=2)
        left = [entry.path for entry in run.run.folder.list("state") if entry.path.endswith(".table")]
        assert left == [file.name for file in pinned(run).files]
        assert batch(run, "tea") == [5]


def test_earlier_versions_stay_readable_as_long_as_their_commits_are_kept():
    prices = Prices(tea=300)
    job = made(prices)
    sequences = []
    with MemoryRun(job) as run:
        for cents in (300, 310, 320):
            prices.cents = {"tea": cents}
            batch(run, "tea")
            sequences.append(run.run.head.sequence)
        tables = {state.sequence: state.tables for state in run.run.checkpoints.list()}
        store = run.run.store
    for sequence, cents in zip(sequences, (300, 310, 320), strict=True):
        assert read_table(store, "shop", tables[sequence]["prices"]).to_pylist() == [{"sku": "tea", "cents": cents}]


def test_a_table_that_the_program_no_longer_uses_is_dropped():
    prices = Prices(tea=300)
    job = made(prices)
    with MemoryRun(job) as run:
        batch(run, "tea")
    plain = Job("shop", state=job.state)
    plain.source("in", sources.iterable([{"sku": ""}])).sink("out", sinks.collect())
    with MemoryRun(plain) as run:
        assert run.run.head.tables == {}


def test_a_damaged_file_is_found():
    prices = Prices(tea=300)
    with MemoryRun(made(prices)) as run:
        store, head = run.run.store, run.run.head
        assert verify(store, run.run.checkpoints).problems == ()
        name = pinned(run).files[0].name
        store.write(f"shop/{name}", b"x" + store.read(f"shop/{name}")[1:])
        (problem,) = verify(store, run.run.checkpoints).problems
        assert problem.what == name
        with pytest.raises(CorruptError, match=r"\.table at memory:.* is damaged"):
            read_table(store, "shop", head.tables["prices"])


def test_large_tables_are_stored_in_parts():
    rows = pa.table({"n": range(1000)})
    parts = encoded_parts(rows, part_bytes=1000)
    assert len(parts) == 8
    assert pa.concat_tables(pa.ipc.open_stream(part).read_all() for part in parts).equals(rows)
    assert len(encoded_parts(rows.slice(0, 0))) == 1


@pytest.fixture
def divided(monkeypatch):
    """Divide every table into parts."""
    monkeypatch.setattr(table_loading, "WHOLE_BYTES", 0)


def test_a_large_table_is_divided_by_the_shards_of_its_keys(divided):
    prices = Prices(**{f"s{n}": n for n in range(100)})
    with MemoryRun(made(prices, n_shards=8)) as run:
        assert batch(run, "s3", "none", "s99", "s3") == [3, None, 99, 3]
        assert batch(run) == []
        table, store = pinned(run), run.run.store
        assert (len(table.later_parts) + 1, table.rows) == (8, 100)
        for part in range(8):
            keys = read_table(store, "shop", table, part)["sku"].to_pylist()
            assert {shard_of(key, 8) for key in keys} <= {part}
        assert read_table(store, "shop", table).num_rows == 100
        assert verify(store, run.run.checkpoints).problems == ()


def test_equal_content_in_another_order_is_the_same_version_of_a_large_table(divided):
    prices = Prices(tea=300, milk=90, rum=1)
    with MemoryRun(made(prices)) as run:
        batch(run, "tea")
        prices.cents = {"rum": 1, "milk": 90, "tea": 300}
        batch(run, "tea")
        assert pinned(run).version == 1
        prices.cents["rum"] = 2
        assert batch(run, "rum") == [2]
        assert pinned(run).version == 2


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([{"sku": "tea", "cents": 1}, {"sku": "milk", "cents": 2}, {"sku": "tea", "cents": 3}], "'tea' comes twice"),
        ([{"sku": "tea", "cents": 1}, {"sku": None, "cents": 2}], "the key 'sku' is null in row 2"),
        ([{"ean": "tea"}], "there is no column 'sku'; it has ean"),
    ],
)
def test_an_invalid_large_table_is_refused_and_leaves_no_files(divided, monkeypatch, tmp_path, rows, said):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    job = made(Prices(tea=1))
    job.declared_tables["prices"].source = _Given(rows)
    with pytest.raises(ConfigError, match=rf"table 'prices' \(given\): .*{said}"):
        MemoryRun(job)
    assert list(tmp_path.iterdir()) == []


def test_a_table_keeps_its_version_if_a_refresh_fills_the_drivers_disk(divided, monkeypatch, caplog):
    prices, clock = Prices(tea=300), Clock()
    with MemoryRun(made(prices, "10 minutes"), clock=clock) as run:
        monkeypatch.setattr(tempfile, "tempdir", "/nowhere")
        prices.cents = {"tea": 310}
        clock.advance(600)
        with caplog.at_level(logging.WARNING):
            assert batch(run, "tea") == [300]
    assert "table 'prices' (the function Prices) cannot be loaded: FileNotFoundError" in caplog.text


def test_the_files_of_loading_are_removed_once_a_large_table_is_stored(divided, monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with MemoryRun(made(Prices(tea=300))) as run:
        assert batch(run, "tea") == [300]
        assert list(tmp_path.iterdir()) == []


def test_a_task_behind_key_by_opens_only_the_parts_of_its_shards(divided, monkeypatch):
    opened: list[tuple[int, int]] = []
    open_part = task_tables._open_part

    def opening(spec, store, table, pinned, part):
        opened.append((spec.parallelism, part))
        return open_part(spec, store, table, pinned, part)

    monkeypatch.setattr(task_tables, "_open_part", opening)
    rows = [{"sku": f"s{n}", "cents": n} for n in range(200)]
    job = Job("shop", state="memory:opened-parts", n_shards=8)
    orders = job.source("in", sources.iterable([{"sku": ""}])).key_by("by-sku", "sku")
    orders.lookup("price", job.table("prices", rows, key="sku")).sink("out", sinks.collect())
    own = [row for row in rows if shard_of(row["sku"], 8) % 4 == 1]
    with MemoryRun(job, parallelism=4) as run:
        opened.clear()
        run.batch({"in": [{"sku": row["sku"]} for row in own]})
    # All tasks open the first part, for its columns.
    assert {part for _, part in opened} == {0, 1, 5}
    assert job.graph.nodes[-1].operator.sink.records == own


def test_a_host_copies_the_parts_that_are_used_and_those_of_one_version(divided, tmp_path):
    prices = Prices(**{f"s{n}": n for n in range(100)})
    with MemoryRun(made(prices, n_shards=8)) as run:
        batch(run)
        versions = [run.run.head.tables]
        prices.cents["s7"] = 700
        batch(run)
        versions.append(run.run.head.tables)
        (table,) = run.run.tables.tables()
        for tables in versions:
            spec = SimpleNamespace(state=run.job.state, stream="shop", local=str(tmp_path), tables=tables)
            found = task_tables.open_table(spec, run.run.store, table)
            (cents,) = found.take(found.find([pa.array(["s7"])]), ["cents"])
    assert cents.to_pylist() == [700]
    copies = {path.name for path in tmp_path.rglob("*.arrow")}
    assert copies == {f"prices-{versions[1]['prices'].digest}-{part}.arrow" for part in {0, shard_of("s7", 8)}}
