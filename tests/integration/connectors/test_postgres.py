"""The postgres sink against a real server: each record once, whatever is repeated, overtaken, killed or of the wrong type."""

from __future__ import annotations

import datetime
import decimal
import itertools
import json
import pickle
import threading

import psycopg
import pyarrow as pa
import pytest

from servers.postgres_server import PASSWORD
from support.waiting import IN_TIME, eventually
from tidewheel import Job, count, sinks, sum_
from tidewheel._connectors import staging
from tidewheel._connectors.postgres.columns import grouped
from tidewheel._engine.plan_sinks import sinks_of
from tidewheel._storage import open_store
from tidewheel.connectors import Publication, Staging
from tidewheel.errors import (
    ConfigError,
    ConnectorUnavailable,
    FencedError,
    GraphError,
    StateError,
    StepError,
    TidewheelError,
)
from tidewheel.sources import iterable
from tidewheel.testing import MemoryRun
from tidewheel.testing.connectors import DrivenSink, SinkConformance, SinkHarness

_numbers = itertools.count()


@pytest.fixture
def table():
    return f"out_{next(_numbers)}"


@pytest.fixture
def harness(postgres, table, tmp_path, harnessed):
    """Put a sink to a fresh table between a task and a driver; `columns` makes the table."""

    def make(columns: str | None = "n bigint", **options):
        if columns is not None:
            postgres.query(f"CREATE TABLE {table} ({columns})")
        options.setdefault("create", columns is None)
        return harnessed(sinks.postgres(postgres.dsn, table, **options), str(tmp_path / "state"), job=table)

    return make


@pytest.fixture
def rows(postgres, table):
    return lambda order=1: postgres.query(f"SELECT * FROM {table} ORDER BY {order}")


def test_a_whole_job_without_spark(postgres, table):
    job = Job("whole", state=f"memory:whole-{table}", n_shards=4)
    users = job.source("in", iterable([])).key_by("by-user", "user")
    totals = users.aggregate("totals", total=sum_("amount"), n=count())
    totals.sink("out", sinks.postgres(postgres.dsn, table, mode="latest", key="user", create=True))
    with MemoryRun(job, parallelism=2) as run:
        run.batch({"in": [{"user": "ada", "amount": 3}, {"user": "bob", "amount": 1}]})
        run.batch({"in": [{"user": "ada", "amount": 4}]})
    # The next run publishes the newest commit again.
    with MemoryRun(job) as run:
        run.batch({"in": [{"user": "bob", "amount": 1}]})
    assert postgres.query(f'SELECT "user", total, n FROM {table} ORDER BY 1') == [("ada", 7, 2), ("bob", 2, 2)]


def test_the_first_batch_of_a_memory_run_is_checked_by_the_table(postgres, table):
    postgres.query(f"CREATE TABLE {table} (value int)")
    job = Job("first", state=f"memory:first-{table}", n_shards=4)
    job.source("in", iterable([]), type=int).sink("out", sinks.postgres(postgres.dsn, table))
    with MemoryRun(job) as run, pytest.raises(StepError, match="out of range in the record"):
        run.batch({"in": [2**40]})


class _Table(SinkHarness):
    secrets = (PASSWORD,)

    def __init__(self, server, mode):
        self.server, self.mode, self.table = server, mode, f"conformance_{next(_numbers)}"
        key = ", PRIMARY KEY (id)" if mode != "insert" else ""
        server.query("DROP TABLE IF EXISTS tidewheel_markers")
        server.query(f"CREATE TABLE {self.table} (id bigint, name text{key})")

    def sink(self):
        return sinks.postgres(
            self.server.dsn, self.table, self.mode, key=["id"] if self.mode != "insert" else (), patience="1 s"
        )

    def contents(self):
        return [
            {"id": number, "name": name} for number, name in self.server.query(f"SELECT id, name FROM {self.table}")
        ]

    def stop_server(self):
        self.server.kill()

    def start_server(self):
        self.server.start()


class TestConformance(SinkConformance):
    @pytest.fixture(params=["insert", "upsert"])
    def harness(self, postgres, request):
        return _Table(postgres, request.param)


def test_of_ended_runs_one_marker_remains(postgres):
    place = _Table(postgres, "insert")
    for run in (1, 2, 3):
        sink = DrivenSink(place, job=f"orders/{run}")
        sink.publish(sink.stage(2, place.rows([run])))
    late = DrivenSink(place, job="orders/2")
    for runs in ([1, 2], [1]):
        place.sink().forget("orders", "out", runs)  # By a node that has published nothing.
    assert postgres.query("SELECT job FROM tidewheel_markers ORDER BY 1") == [("orders/3",), ("orders/over",)]
    with pytest.raises(FencedError, match="up to number 2 are finished"):
        late.publish(late.stage(3, place.rows([4])))
    assert sorted(row["id"] for row in place.contents()) == [1, 2, 3]


def test_output_is_invisible_until_it_is_published(harness, rows):
    harness = harness()
    token = harness.stage(2, [{"n": 1}], [{"n": 2}])
    assert rows() == []
    harness.publish(2, token)
    assert rows() == [(1,), (2,)]


def test_output_of_a_former_job_of_this_name_is_not_claimed(harness, rows):
    harness = harness()
    harness.publish(9, harness.stage(9, [{"n": 1}]))
    with pytest.raises(StateError, match=r"sequence 2 .*9 is already published"):
        harness.publish(2, harness.stage(2, [{"n": 2}], run="r2"))


def test_reset_removes_the_mark_and_leaves_the_rows(harness, rows, table):
    harness = harness()
    sink = harness.sink
    assert sink.published(table, "out") is None
    harness.publish(2, harness.stage(2, [{"n": 1}]))
    assert "the rows stay" in sink.published(table, "out")
    sink.remove(table, "out")
    assert sink.published(table, "out") is None
    harness.publish(2, harness.stage(2, [{"n": 2}]))
    assert rows() == [(1,), (2,)]


def test_upsert_changes_the_columns_that_records_have(harness, rows):
    harness = harness("k text PRIMARY KEY, n int, note text DEFAULT 'none'", mode="upsert", key="k")
    harness.publish(2, harness.stage(2, [{"k": "a", "n": 1}, {"k": "b", "n": 1}]))
    harness.publish(3, harness.stage(3, [{"k": "a", "note": "kept"}]))
    harness.publish(
        4, harness.stage(4, [{"k": "a", "n": 2}, {"k": "a", "n": 3}]), harness.stage(4, [{"k": "c", "n": 1}])
    )
    assert rows() == [("a", 3, "kept"), ("b", 1, "none"), ("c", 1, "none")]


def test_upsert_keeps_columns_that_some_records_of_a_batch_lack(harness, rows):
    harness = harness("k int PRIMARY KEY, a int, b int DEFAULT 7", mode="upsert", key="k")
    harness.publish(2, harness.stage(2, [{"k": 1, "a": 10, "b": 20}, {"k": 2, "a": 10, "b": 20}]))
    harness.publish(
        3, harness.stage(3, [{"k": 1, "a": 11}]), harness.stage(3, [{"k": 2, "b": 22}, {"k": 3, "b": 23}], task=1)
    )
    assert rows() == [(1, 11, 20), (2, 10, 22), (3, None, 23)]
    harness.publish(4, harness.stage(4, [{"k": 1, "a": 12}], [{"k": 1, "b": 24}], [{"k": 4, "a": 1}]))
    assert rows() == [(1, 12, 24), (2, 10, 22), (3, None, 23), (4, 1, 7)]


def test_rows_are_upserted_by_the_key_of_the_stream(postgres, table):
    postgres.query(f"CREATE TABLE {table} (k text PRIMARY KEY, n int)")
    job = Job("keyed", state=f"memory:keyed-{table}", n_shards=4)
    stream = job.source("in", iterable([{"k": "", "n": 0}])).key_by("by-k", "k")
    stream.sink("out", sinks.postgres(postgres.dsn, table, mode="upsert"))
    with MemoryRun(job) as run:
        run.batch({"in": [{"k": "a", "n": 1}, {"k": "b", "n": 2}]})
        run.batch({"in": [{"k": "a", "n": 3}]})
    assert postgres.query(f"SELECT k, n FROM {table} ORDER BY 1") == [("a", 3), ("b", 2)]


@pytest.mark.parametrize("mode", ["upsert", "latest"])
def test_a_stream_without_keys_needs_a_key_at_the_sink(mode):
    job = Job("unkeyed")
    stream = job.source("in", iterable([{"k": "a"}]))
    with pytest.raises(
        GraphError, match=r"sink 'out': table orders in .* and the stream has no key: put key_by before"
    ):
        stream.sink("out", sinks.postgres("host=localhost", "orders", mode=mode))
    with pytest.raises(GraphError, match=r"dead letter 'dead': table orders in .* has one row for each key"):
        job.dead_letter("dead", sinks.postgres("host=localhost", "orders", mode=mode))


def test_records_of_one_batch_may_lack_different_columns(postgres, table):
    postgres.query(f"CREATE TABLE {table} (k int PRIMARY KEY, a int, b int DEFAULT 7)")
    job = Job("shapes", state=f"memory:shapes-{table}", n_shards=4)
    changes = job.source("in", iterable([])).map("decode", lambda row: json.loads(row.value))
    changes.sink("out", sinks.postgres(postgres.dsn, table, mode="upsert", key="k"))
    batches = [
        [{"k": number, "a": number, "b": number} for number in range(4)],
        [{"k": 0, "a": 10}, {"k": 1, "b": 11}, {"k": 2, "a": 12}, {"k": 2, "b": 13}, {"k": 2, "a": 14}],
        [{"k": 3, "a": 20, "b": 20}, {"k": 3, "a": 21}, {"k": 3, "a": 22, "b": 22}, {"k": 4, "a": None}],
    ]
    with MemoryRun(job) as run:
        for batch in batches:
            run.batch({"in": list(map(json.dumps, batch))})
    assert postgres.query(f"SELECT k, a, b FROM {table} ORDER BY 1") == [
        (0, 10, 0),
        (1, 1, 11),
        (2, 14, 13),
        (3, 22, 22),
        (4, None, 7),
    ]


def test_batches_of_equal_columns_are_merged_unless_key_order_would_change():
    def tables(*rows):
        return [pa.table({name: [value] for name, value in row.items()}) for row in rows]

    many = tables(*({"k": n, "a": 1} if n % 2 else {"k": n, "b": 1} for n in range(100)))
    assert [len(group) for group in grouped(many, ["k"])] == [50, 50]
    same = tables({"k": 1, "a": 1, "b": 1}, {"k": 1, "a": 2}, {"k": 1, "a": 3, "b": 3}, {"k": 2, "a": 4})
    assert [[table["a"].to_pylist() for table in group] for group in grouped(same, ["k"])] == [[[1]], [[2], [4]], [[3]]]
    assert [len(group) for group in grouped(same, [])] == [2, 2]


def test_inserted_records_without_a_column_get_its_default(harness, rows):
    harness = harness("n int, note text DEFAULT 'none'")
    harness.publish(2, harness.stage(2, [{"n": 1}], [{"n": 2, "note": "some"}]))
    assert rows() == [(1, "none"), (2, "some")]


def test_latest_replaces_the_whole_row(harness, rows):
    harness = harness("k text PRIMARY KEY, n int, note text DEFAULT 'none'", mode="latest", key="k")
    harness.publish(2, harness.stage(2, [{"k": "a", "note": "old"}]))
    harness.publish(3, harness.stage(3, [{"k": "a", "n": 2}]))
    assert rows() == [("a", 2, "none")]


def test_latest_by_a_column_lets_no_older_record_replace_a_newer_one(harness, rows):
    harness = harness("k text PRIMARY KEY, n int, at int", mode="latest", key=["k"], by="at")
    # In one batch, between batches, and with the same value, where the last one wins.
    harness.publish(2, harness.stage(2, [{"k": "a", "n": 1, "at": 5}, {"k": "a", "n": 2, "at": 3}]))
    harness.publish(3, harness.stage(3, [{"k": "a", "n": 3, "at": 4}, {"k": "b", "n": 1, "at": None}]))
    assert rows() == [("a", 1, 5), ("b", 1, None)]
    harness.publish(4, harness.stage(4, [{"k": "a", "n": 4, "at": 5}, {"k": "b", "n": 2, "at": 1}]))
    assert rows() == [("a", 4, 5), ("b", 2, 1)]


def test_a_table_is_created_from_the_types_of_the_records(harness, rows, postgres, table):
    batch = pa.RecordBatch.from_pydict(
        {
            "flag": pa.array([True, None]),
            "small": pa.array([1, 2], pa.int16()),
            "whole": pa.array([2**62, None], pa.int64()),
            "large": pa.array([2**64 - 1, 0], pa.uint64()),
            "part": pa.array([float("nan"), 1e-300]),
            "exact": pa.array([decimal.Decimal("1.10"), None], pa.decimal128(10, 2)),
            "text": pa.array(['a"b,\\.\n', ""]),
            "code": pa.array(["x", "y"]).dictionary_encode(),
            "bytes": pa.array([b"\0\xff", None]),
            "day": pa.array([datetime.date(2025, 1, 31), None]),
            "at": pa.array([datetime.datetime(2025, 1, 31, 12, 0, 0, 1, datetime.UTC), None]),
            "local": pa.array([datetime.datetime(2025, 1, 31, 12), None]),
            "clock": pa.array([datetime.time(1, 2, 3), None]),
            "list": pa.array([[1, None], None]),
            "struct": pa.array([{"a": "ü\\u0000", "b": [1.5]}, None]),
            "map": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int64())),
            "nothing": pa.nulls(2),
        }
    )
    harness = harness(None, mode="upsert", key="text")
    harness.publish(2, harness.stage(2, batch))
    kinds = dict(
        postgres.query("SELECT column_name, udt_name FROM information_schema.columns WHERE table_name = %s", table)
    )
    assert " ".join(kinds.values()) == (
        "bool int4 int8 numeric float8 numeric text text bytea date timestamptz timestamp time jsonb jsonb jsonb"
    )
    first, second = rows("small")
    assert repr(first[4]) == "nan"
    assert [bytes(value) if isinstance(value, memoryview) else value for value in (*first[:4], *first[5:])] == [
        *(True, 1, 2**62, 2**64 - 1, decimal.Decimal("1.10"), 'a"b,\\.\n', "x", b"\0\xff", datetime.date(2025, 1, 31)),
        *(datetime.datetime(2025, 1, 31, 12, 0, 0, 1, datetime.UTC), datetime.datetime(2025, 1, 31, 12)),
        *(datetime.time(1, 2, 3), [1, None], {"a": "ü\\u0000", "b": [1.5]}, {"k": 1}),
    ]
    assert second == (None, 2, None, 0, 1e-300, None, "", "y", *[None] * 8)
    # Another process finds the table, and what it made is as good as what was there.
    harness.sink.start("another")


def _creating(postgres, table, **options):
    """A job whose sink creates its table."""
    job = Job("creating", state=f"memory:creating-{table}", n_shards=4)
    job.source("in", iterable([]), type=dict).sink("out", sinks.postgres(postgres.dsn, table, create=True, **options))
    return job


def test_a_record_that_does_not_fit_the_new_table_fails_before_the_commit(postgres, table):
    """In the run that created the table; tasks got the program before there was one."""
    job = _creating(postgres, table)
    with MemoryRun(job) as run:
        run.batch({"in": [{"n": 1}]})
        committed = run.run.head.sequence
        with pytest.raises(StepError, match=r"sink 'out': the column 'n' holds string, and in .* it is int8; convert"):
            run.batch({"in": [{"n": "text"}]})
        assert run.run.head.sequence == committed
    with MemoryRun(job) as run:
        run.batch({"in": [{"n": 2}]})
    assert postgres.query(f"SELECT n FROM {table} ORDER BY n") == [(1,), (2,)]


def test_tasks_that_disagree_about_the_new_table_fail_before_the_commit(postgres, table):
    job = _creating(postgres, table)
    with MemoryRun(job, parallelism=2, partitions=2) as run:
        committed = run.run.head.sequence
        with pytest.raises(StepError, match=r"sink 'out': .* incompatible types: .* n .*returns="):
            run.batch({"in": [{"n": 1}, {"n": "text"}]})
        assert run.run.head.sequence == committed
    assert postgres.query("SELECT to_regclass(%s)", table) == [(None,)]


@pytest.mark.parametrize("made", ["n text PRIMARY KEY", "n text"])
def test_a_table_that_another_program_creates_first_is_checked(postgres, table, made):
    job = _creating(postgres, table, mode="upsert", key="n")
    with MemoryRun(job) as run:
        committed = run.run.head.sequence
        postgres.query(f"CREATE TABLE {table} ({made})")
        with pytest.raises(TidewheelError, match=r"another program has created|has no unique constraint"):
            run.batch({"in": [{"n": 1}]})
        assert run.run.head.sequence == committed


def test_a_table_that_cannot_be_created_fails_the_batch_before_its_commit(postgres, table):
    with MemoryRun(_creating(postgres, table)) as run:
        committed = run.run.head.sequence
        with pytest.raises(StepError, match=r"tables can have at most 1600 columns. Nothing is committed: "):
            run.batch({"in": [{f"c{n}": n for n in range(1601)}]})
        assert run.run.head.sequence == committed


def test_tasks_that_were_sent_before_the_table_was_created_check_it(postgres, table):
    job = _creating(postgres, table)
    (sink,) = sinks_of(job.plan()).values()
    sink.start("creating")
    sent = pickle.loads(pickle.dumps(sink))
    store = open_store(f"memory:sent-{table}")

    def stage(number, row):
        partition = sent.open(Staging(store, "creating", "out", number, f"r1-0-{number}", sink.known()))
        partition.write(pa.RecordBatch.from_pylist([row]))
        return Publication(store, "creating", "out", number, (partition.prepare(),), None)

    sink.before_commit(stage(2, {"n": 1}))
    with pytest.raises(StepError, match=r"holds string, and in .* it is int8"):
        stage(3, {"n": "text"})


def test_one_column_of_nulls(harness, rows):
    harness = harness("n bigint")
    harness.publish(2, harness.stage(2, pa.RecordBatch.from_pydict({"n": pa.array([None, 1], pa.int64())})))
    assert rows() == [(1,), (None,)]


@pytest.mark.parametrize(
    ("columns", "options", "batch", "text"),
    [
        ("n int", {}, [{"m": 1}], r"sink 'out'.* has no column m; it has n"),
        ("n int, m int NOT NULL", {}, [{"n": 1}], "needs m"),
        ("n int", {}, [{"n": "text"}], "holds string, and in .* it is int4"),
        ("n int", {}, [{"n": 1.5}], "holds double, and in .* it is int4"),
        (
            "n int",
            {},
            [{"n": 1}, {"n": 2**31}],
            "out of range in the record {'n': 2147483648}: .* is int4; .* int8 and start",
        ),
        ("n numeric(4, 2)", {}, [{"n": 1.5}, {"n": 99.995}], r"the record {'n': 99.995}: in .* it is numeric\(4, 2\)"),
        ("n numeric(4, 2)", {}, [{"n": None}, {"n": -100}], "out of range in the record {'n': -100}"),
        ("n numeric(4, 2)", {}, [{"n": decimal.Decimal("100.00")}], "out of range in the record"),
        ("n numeric(4, 2)", {}, [{"n": float("inf")}], "out of range in the record {'n': inf}"),
        ("n numeric(2, -3)", {}, [{"n": 99_500}], r"out of range .* numeric\(2, -3\)"),
        ("n numeric(2, 4)", {}, [{"n": 0.01}], r"out of range .* numeric\(2, 4\)"),
        ("n real", {}, [{"n": 1.0}, {"n": 1e39}], "record {'n': 1e.39}.* is real; .* double precision and start again"),
        ("n real", {}, [{"n": 1e-60}], "out of range"),
        ("n real", {}, pa.record_batch({"n": pa.array([10**60], pa.decimal256(76, 0))}), "out of range .* is real"),
        (
            "n numeric(5, 2)",
            {},
            pa.record_batch({"n": pa.array([1.0, 999.995], pa.float32())}),
            r"out of range .* numeric\(5, 2\)",
        ),
        (
            "n numeric(5, 2)",
            {},
            pa.record_batch({"n": pa.array([1.0, 1000.0], pa.float32()).cast(pa.float16())}),
            "out of range in the record {'n': 1000.0}",
        ),
        (
            "n numeric(3, 2)",
            {},
            pa.record_batch({"n": pa.array([decimal.Decimal("10.00")], pa.decimal32(5, 2))}),
            "out of range in the record",
        ),
        ("n varchar(3)", {}, [{"n": 999}, {"n": 1000}], "too long in the record {'n': 1000}"),
        ("n varchar(3)", {}, [{"n": 0.5}, {"n": 0.25}], "too long in the record {'n': 0.25}"),
        ("n varchar(3)", {}, [{"n": decimal.Decimal("1.50")}], "too long in the record"),
        ("n varchar(4)", {}, [{"n": True}, {"n": False}], "too long in the record {'n': False}"),
        ("n varchar(9)", {}, [{"n": datetime.date(2026, 1, 1)}], "too long in the record"),
        ("n varchar(3)", {}, [{"n": b"a"}], "too long in the record"),
        ("n varchar(3)", {}, [{"n": [1]}, {"n": [1, 2]}], r"too long in the record {'n': \[1, 2\]}"),
        (
            "shop text PRIMARY KEY, value int",
            {"mode": "upsert", "key": "shop"},
            [{"key": "a", "value": 1}],
            r"no key column 'shop'; the records have key, value\. .* write \.sink\(…, key='shop'\)",
        ),
        ("n text", {}, [{"n": "a\0b"}], r"U\+0000"),
        ("n jsonb", {}, [{"n": ["a\0b"]}], r"U\+0000"),
        (
            "n int, m int NOT NULL",
            {},
            [{"n": 1, "m": 2}, {"n": 7, "m": None}],
            "'m' is null in the record {'n': 7,.*not null",
        ),
        ("n int, m int NOT NULL DEFAULT 1", {}, [{"n": 7, "m": None}], "'m' is null in the record"),
        (
            "n varchar(3)",
            {},
            [{"n": None}, {"n": "äöü"}, {"n": "abcd"}],
            "too long in the record {'n': 'abcd'}.* 3 char",
        ),
        ("n char(3)", {}, [{"n": "abcd"}], "too long in the record"),
        ("n int PRIMARY KEY", {"mode": "upsert", "key": "n"}, [{"n": None}], "'n' is null"),
        ("n int PRIMARY KEY, m int", {"mode": "upsert", "key": "n"}, [{"m": 1}], "no key column 'n'"),
        ("n int PRIMARY KEY, m int", {"mode": "latest", "key": "n", "by": "m"}, [{"n": 1}], r"no column 'm' \(by"),
        ("n interval", {}, [{"n": datetime.timedelta(1)}], "cannot be written"),
    ],
)
def test_records_that_the_table_cannot_take_fail_before_the_commit(harness, columns, options, batch, text):
    harness = harness(columns, **options)
    with pytest.raises(StepError, match=text):
        harness.stage(2, batch)


@pytest.mark.parametrize(
    ("columns", "options", "text"),
    [
        ("n int", {"mode": "upsert", "key": "n"}, "no unique constraint over n.*unique is: nothing.*ADD PRIMARY KEY"),
        ("n int, m int, PRIMARY KEY (m, n)", {"mode": "upsert", "key": "n"}, r"unique is: m, n\).*key=\['m', 'n'\]$"),
        (
            "n int UNIQUE DEFERRABLE",
            {"mode": "upsert", "key": "n"},
            "no unique constraint over n, or only a deferrable one",
        ),
        ("m int", {"mode": "upsert", "key": "n"}, "no column n; it has m"),
    ],
)
def test_a_table_without_a_usable_key_is_refused_at_the_start(harness, columns, options, text):
    with pytest.raises(ConfigError, match=text):
        harness(columns, **options)


def test_a_unique_index_over_several_columns_is_a_key(harness, rows):
    harness = harness("a int, b int, n int, UNIQUE (b, a)", mode="upsert", key=["a", "b"])
    for sequence in (2, 3):
        harness.publish(sequence, harness.stage(sequence, [{"a": 1, "b": 2, "n": sequence}]))
    assert rows() == [(1, 2, 3)]


def test_a_table_that_a_crash_would_empty_is_refused(postgres, table):
    postgres.query(f"CREATE UNLOGGED TABLE {table} (n int)")
    with pytest.raises(ConfigError, match="unlogged"):
        sinks.postgres(postgres.dsn, table).start("job")


def test_a_view_is_refused(postgres, table):
    postgres.query(f"CREATE VIEW {table} AS SELECT 1 AS n")
    with pytest.raises(ConfigError, match="not an ordinary table"):
        sinks.postgres(postgres.dsn, table).start("job")


def test_a_missing_table_is_refused_at_the_start(harness):
    with pytest.raises(ConfigError, match=r"there is no table .*create=True"):
        harness(None, create=False)


def test_a_table_of_another_schema_has_its_markers_there(postgres, tmp_path, harnessed):
    postgres.query('CREATE SCHEMA "Sales"')
    harness = harnessed(sinks.postgres(postgres.dsn, "Sales.orders", create=True), str(tmp_path / "state"))
    harness.publish(2, harness.stage(2, [{"n": 1}]))
    assert postgres.query('SELECT n, job FROM "Sales".orders, "Sales".tidewheel_markers') == [(1, "orders")]


def test_a_text_that_is_too_long_is_found_in_an_encoded_column(harness):
    harness = harness("n varchar(3)")
    with pytest.raises(StepError, match=r"too long in the record {'n': 'abcd'}"):
        harness.stage(2, pa.RecordBatch.from_pydict({"n": pa.array(["a", None, "abcd"]).dictionary_encode()}))


def test_numbers_that_just_fit_are_taken(harness, rows):
    harness = harness("k int, a numeric(4, 2), b numeric(2, -3), c real, d varchar(3)")
    fitting = [
        {"k": 1, "a": 99.994, "b": 99_499, "c": 3.4e38, "d": 999},
        {"k": 2, "a": float("nan"), "b": -99_499, "c": float("inf"), "d": -99},
        {"k": 3, "a": None, "b": None, "c": 0.0, "d": None},
    ]
    harness.publish(2, harness.stage(2, fitting))
    first, second, third = rows()
    assert first[1:3] == (decimal.Decimal("99.99"), 99_000)
    assert first[4] == "999"
    assert (second[1].is_nan(), *second[2:]) == (True, -99_000, float("inf"), "-99")
    assert third == (3, None, None, 0.0, None)


def test_numbers_of_the_types_that_arrow_does_not_compare_are_taken(harness, rows):
    harness = harness("a numeric(5, 2), b numeric(3, 2), c numeric(6, 3), d numeric(5, 2)")
    columns = {
        "a": pa.array([1.5, None], pa.float32()).cast(pa.float16()),
        "b": pa.array([decimal.Decimal("9.99"), None], pa.decimal32(5, 2)),
        "c": pa.array([decimal.Decimal("999.999"), None], pa.decimal64(12, 3)),
        "d": pa.array([999.994, None], pa.float32()),
    }
    harness.publish(2, harness.stage(2, pa.record_batch(columns)))
    assert rows() == [tuple(map(decimal.Decimal, ("1.50", "9.99", "999.999", "999.99"))), (None,) * 4]


def test_the_longest_text_that_fits_is_accepted(harness, rows):
    harness = harness("a varchar(4), b varchar(5), c varchar(10), d varchar(26), e varchar(4), f varchar(5)")
    moment = datetime.datetime(2026, 1, 1, 1, 2, 3, tzinfo=datetime.UTC)
    fitting = {"a": 0.25, "b": False, "c": datetime.date(2026, 1, 1), "d": moment, "e": b"a", "f": [1, 2]}
    harness.publish(2, harness.stage(2, [fitting]))
    assert rows() == [("0.25", "false", "2026-01-01", "2026-01-01 01:02:03.000000", "\\x61", "[1,2]")]


def test_a_number_in_a_column_of_texts_is_its_digits(harness, rows):
    harness = harness("n text, m text, o text")
    harness.publish(2, harness.stage(2, [{"n": 7, "m": 0.5, "o": True}]))
    assert rows() == [("7", "0.5", "true")]


def test_texts_that_just_fit_and_nulls_that_a_trigger_fills_in_are_taken(harness, rows, postgres, table):
    filled = "BEGIN NEW.m = coalesce(NEW.m, 5); RETURN NEW; END"
    postgres.query(f"CREATE FUNCTION {table}_filled() RETURNS trigger LANGUAGE plpgsql AS '{filled}'")
    postgres.query(f"CREATE TABLE {table} (n varchar(3), m int NOT NULL)")
    postgres.query(f"CREATE TRIGGER filled BEFORE INSERT ON {table} FOR EACH ROW EXECUTE FUNCTION {table}_filled()")
    harness = harness(None)
    harness.publish(2, harness.stage(2, [{"n": "äöü", "m": None}, {"n": "abc  ", "m": 1}]))
    assert sorted(rows()) == [("abc", 1), ("äöü", 5)]


def test_output_that_the_database_rejects_is_published_once_corrected(harness, rows, postgres, table):
    harness = harness("n int CHECK (n < 5)")
    token = harness.stage(2, [{"n": 1}, {"n": 7}])
    with pytest.raises(StepError, match=r"sink 'out'.*refuses it.*n_check.*not lost.*--drop-unpublished out"):
        harness.publish(2, token)
    assert rows() == []
    postgres.query(f"ALTER TABLE {table} DROP CONSTRAINT {table}_n_check")
    harness.publish(2, token)
    assert rows() == [(1,), (7,)]


def test_a_stopped_run_that_holds_the_lock_is_disconnected(harness, rows, postgres, monkeypatch):
    from tidewheel._connectors.postgres import table as postgres_table

    monkeypatch.setattr(postgres_table, "_LOCK_WAIT", "50ms")
    harness = harness()
    token = harness.stage(2, [{"n": 1}])
    number = postgres_table._lock_number(f"{harness.job}\0{harness.name}")
    with psycopg.connect(postgres.dsn, password=PASSWORD) as stopped:
        stopped.execute("SELECT pg_advisory_xact_lock(%s)", [number])
        harness.publish(2, token)
        with pytest.raises(psycopg.OperationalError):
            stopped.execute("SELECT 1")
    assert rows() == [(1,)]


def test_a_run_that_takes_long_to_publish_is_waited_for(harness, rows, postgres, table, monkeypatch, caplog):
    """Holder and taker of a hand-over publish the same commit: neither ends the other's session."""
    from tidewheel._connectors.postgres import table as postgres_table

    # Much longer than a thread of this process may have to wait for its turn between two statements.
    monkeypatch.setattr(postgres_table, "_LOCK_WAIT", "500ms")
    harness = harness()
    postgres.query(
        f"CREATE FUNCTION nap_{table}() RETURNS trigger AS 'BEGIN PERFORM pg_sleep(0.15); RETURN NEW; END' LANGUAGE plpgsql"
    )
    postgres.query(f"CREATE TRIGGER nap BEFORE INSERT ON {table} FOR EACH ROW EXECUTE FUNCTION nap_{table}()")
    token = harness.stage(2, [{"n": n} for n in range(10)])
    drivers = [threading.Thread(target=harness.publish, args=(2, token)) for _ in range(2)]
    for each in drivers:
        each.start()
    for each in drivers:
        each.join()
    assert len(rows()) == 10
    assert "is away" not in caplog.text


def test_two_drivers_at_once_add_a_batch_once(harness, rows):
    harness = harness()
    token = harness.stage(2, [{"n": n} for n in range(1000)])
    drivers = [threading.Thread(target=harness.publish, args=(2, token)) for _ in range(4)]
    for each in drivers:
        each.start()
    for each in drivers:
        each.join()
    assert len(rows()) == 1000


def test_a_server_that_comes_back_in_time_costs_nothing_but_time(harness, rows, postgres, caplog):
    harness = harness(patience=IN_TIME)
    token = harness.stage(2, [{"n": 1}])
    postgres.kill()
    publishing = threading.Thread(target=harness.publish, args=(2, token))
    publishing.start()
    try:
        eventually(lambda: "is away" in caplog.text)
    finally:
        postgres.start()
    publishing.join()
    assert rows() == [(1,)]


def test_a_server_that_stays_unavailable_ends_the_run_and_output_waits(harness, rows, postgres):
    harness = harness(patience="0.2 s")
    token = harness.stage(2, [{"n": 1}])
    postgres.kill()
    try:
        with pytest.raises(ConnectorUnavailable, match=r"is away, for 0\.2 s now.*start again when it is back"):
            harness.publish(2, token)
    finally:
        postgres.start()
    harness.publish(2, token)
    assert rows() == [(1,)]


@pytest.mark.parametrize(
    "dsn", ["postgresql://me:hunter2@localhost/x", "host=localhost password=hunter2", "postgres//me:hunter2@localhost"]
)
def test_a_dsn_with_a_password_is_refused_without_showing_it(dsn):
    with pytest.raises(ConfigError) as refused:
        sinks.postgres(dsn, "orders")
    assert "hunter2" not in str(refused.value)
    assert refused.value.__cause__ is None


def test_a_wrong_password_is_reported_at_once_and_not_shown(postgres, monkeypatch):
    monkeypatch.setenv("ORDERS_PASSWORD", "hunter2")
    sink = sinks.postgres(postgres.dsn, "orders", password_env="ORDERS_PASSWORD")
    with pytest.raises(ConfigError, match=r"refuses us.*authentication failed.*Check the user") as refused:
        sink.start("job")
    for text in (str(refused.value), repr(sink), str(vars(sink)), repr(pickle.dumps(sink))):
        assert "hunter2" not in text
    monkeypatch.delenv("ORDERS_PASSWORD")
    with pytest.raises(ConfigError, match=r"ORDERS_PASSWORD .* is not set"):
        sink.start("job")


def test_the_password_comes_from_the_variable_that_is_named(postgres, table, monkeypatch):
    monkeypatch.setenv("PGPASSWORD", "wrong")
    monkeypatch.setenv("ORDERS_PASSWORD", PASSWORD)
    sinks.postgres(postgres.dsn, table, create=True, password_env="ORDERS_PASSWORD").start("job")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"mode": "merge"}, "insert, upsert, latest"),
        ({"mode": "insert", "key": "n"}, "takes no key"),
        ({"mode": "upsert", "key": "n", "by": "at"}, "takes by= in the mode 'latest'"),
        ({"table": ".orders"}, "a table such as"),
    ],
)
def test_settings_that_cannot_work_are_refused(options, text):
    with pytest.raises(ConfigError, match=text):
        sinks.postgres(**{"dsn": "host=localhost", "table": "orders", **options})


@pytest.mark.parametrize(
    ("mode", "options", "expected"),
    [
        ("insert", {}, 5000),
        ("upsert", {"key": "id"}, 1000),
        ("latest", {"key": "id"}, 1000),
        ("latest", {"key": "id", "by": "n"}, 1000),
    ],
)
def test_a_batch_is_added_without_being_in_memory_as_a_whole(
    harness, rows, monkeypatch, arrow_peak, mode, options, expected
):
    monkeypatch.setattr(staging, "FILE_BYTES", 100_000)
    added = harness("id bigint, n bigint, text text" + (", PRIMARY KEY (id)" if options else ""), mode=mode, **options)
    batches = [
        pa.RecordBatch.from_pydict(
            {"id": range(100 * (n % 10), 100 * (n % 10) + 100), "n": [n] * 100, "text": [f"{n}" * 500] * 100}
        )
        for n in range(10, 60)
    ]
    # The last of each key is the one with the highest number, unless it is looked for by that.
    batches = batches[::-1] if "by" in options else batches
    tokens = [added.stage(1, *batches[:25], task=0), added.stage(1, *batches[25:], task=1)]
    total = sum(batch.nbytes for batch in batches)
    del batches
    with arrow_peak() as peak:
        added.publish(1, *tokens)
        added.publish(1, *tokens)
    assert 0 < peak.bytes < total / 2
    found = rows()
    assert len(found) == expected
    if options:
        assert found == [(key, 50 + key // 100, f"{50 + key // 100}" * 500) for key in range(1000)]
