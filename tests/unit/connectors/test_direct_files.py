"""Files that tasks read themselves: the values that Spark would give, or Spark's own reader."""

from __future__ import annotations

import datetime
import decimal
import gzip
import itertools
import json
import os
import signal
from types import SimpleNamespace

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import orc, parquet

from tidewheel import Job, StoredJob
from tidewheel._connectors.direct import ListedFile, ReadBySpark, SourceBatch
from tidewheel._connectors.files.direct import FilesReader, readable
from tidewheel._connectors.files.json_split import JsonSplit
from tidewheel._connectors.files.orc_split import OrcSplit
from tidewheel._connectors.files.parquet_split import ParquetSplit
from tidewheel._connectors.schema import arrow_schema, spark_schema
from tidewheel._connectors.split import dealt, may_be_shared
from tidewheel._spark.batch_tasks import BatchTasks, Ran
from tidewheel._spark.workers_beside import WorkersBeside
from tidewheel.errors import ConfigError, StorageError, TidewheelError
from tidewheel.sinks import collect
from tidewheel.sources import files
from waiting import eventually

UTC = datetime.UTC
# Spark shifts older days between calendars.
TIMES = st.datetimes(datetime.datetime(1900, 1, 1), datetime.datetime(2200, 1, 1))
COLUMNS = {
    "text": ("string", pa.string(), st.text(st.characters(codec="utf-8"), max_size=8)),
    "long": ("bigint", pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "int": ("int", pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "short": ("smallint", pa.int16(), st.integers(-(2**15), 2**15 - 1)),
    "wide": ("bigint", pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "double": ("double", pa.float64(), st.floats(allow_nan=False)),
    "float": ("float", pa.float32(), st.floats(width=32, allow_nan=False)),
    "flag": ("boolean", pa.bool_(), st.booleans()),
    "bytes": ("binary", pa.binary(), st.binary(max_size=8)),
    "day": ("date", pa.date32(), st.dates(datetime.date(1900, 1, 1), datetime.date(2200, 1, 1))),
    "at": ("timestamp", pa.timestamp("us", "UTC"), TIMES.map(lambda time: time.replace(tzinfo=UTC))),
    "milli": (
        "timestamp",
        pa.timestamp("ms", "UTC"),
        TIMES.map(lambda time: time.replace(microsecond=time.microsecond // 1000 * 1000, tzinfo=UTC)),
    ),
    "local": ("timestamp_ntz", pa.timestamp("us"), TIMES),
    "money": (
        "decimal(12,2)",
        pa.decimal128(12, 2),
        st.decimals(-(10**9), 10**9, places=2).map(lambda number: decimal.Decimal(number)),
    ),
    "list": ("array<bigint>", pa.list_(pa.int64()), st.lists(st.integers(-9, 9), max_size=3)),
    "nested": (
        "struct<a:bigint,b:string>",
        pa.struct([("a", pa.int64()), ("b", pa.string())]),
        st.fixed_dictionaries({"a": st.integers(-9, 9), "b": st.text("ab", max_size=2)}),
    ),
    "missing": ("string", None, st.none()),
}


@st.composite
def tables(draw):
    names = draw(st.lists(st.sampled_from(sorted(COLUMNS)), min_size=1, max_size=5, unique=True))
    rows = draw(st.integers(0, 6))
    declared = ", ".join(f"{name} {COLUMNS[name][0]}" for name in names)
    arrays, fields = [], []
    for name in names:
        _, kind, values = COLUMNS[name]
        if kind is not None:
            column = draw(st.lists(st.none() | values, min_size=rows, max_size=rows))
            arrays.append(pa.array(column, kind))
            # Spark finds a column whatever the case of its name.
            fields.append(pa.field(draw(st.sampled_from([name, name.upper()])), kind))
    if not arrays:
        return declared, pa.table({"other": pa.array(range(rows), pa.int64())})
    return declared, pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def by_spark(spark, schema, path) -> list[dict]:
    def packed(batches):
        for batch in batches:
            out = pa.BufferOutputStream()
            with pa.ipc.new_stream(out, batch.schema) as writer:
                writer.write_batch(batch)
            yield pa.RecordBatch.from_pydict({"data": [out.getvalue().to_pybytes()]})

    frame = spark.read.format(path.suffix[1:]).schema(schema).load(str(path))
    rows = frame.coalesce(1).mapInArrow(packed, "data binary").collect()
    return [row for data in rows for row in pa.ipc.open_stream(bytes(data.data)).read_all().to_pylist()]


@pytest.mark.parametrize("int96", [False, True])
@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(table=tables())
def test_a_parquet_file_has_the_values_that_spark_reads(spark, tmp_path, table, int96):
    declared, contents = table
    path = tmp_path / "part.parquet"
    parquet.write_table(contents, path, use_deprecated_int96_timestamps=int96)
    schema = spark_schema(declared)
    columns = arrow_schema(schema, spark.conf.get("spark.sql.session.timeZone"))
    try:
        direct = [row for batch in ParquetSplit(str(path), 1, columns).read() for row in batch.to_pylist()]
    except ReadBySpark:
        # Times without a zone in a column with one, for example; such a batch is Spark's.
        assert int96
        assert "local" in declared
        return
    assert direct == by_spark(spark, schema, path)


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(table=tables())
def test_an_orc_file_has_the_values_that_spark_reads(spark, tmp_path, table):
    declared, contents = table
    path = tmp_path / "part.orc"
    orc.write_table(contents, str(path))
    schema = spark_schema(declared)
    columns = arrow_schema(schema, spark.conf.get("spark.sql.session.timeZone"))
    if any(pa.types.is_timestamp(field.type) for field in columns):
        assert "has times" in str(readable("orc", columns, {}))
        return
    assert readable("orc", columns, {}) is None
    direct = [row for batch in OrcSplit(str(path), 1, columns).read() for row in batch.to_pylist()]
    assert direct == by_spark(spark, schema, path)


def test_an_orc_file_that_spark_may_read_otherwise_is_left_to_it(tmp_path):
    def left(table, **columns):
        path = tmp_path / "a.orc"
        orc.write_table(table, str(path))
        with pytest.raises(ReadBySpark) as found:
            list(OrcSplit(str(path), 1, pa.schema(columns)).read())
        return str(found.value)

    assert "columns without names" in left(pa.table({"_col0": [1]}), a=pa.int64())
    assert "has string where the source has int64" in left(pa.table({"a": ["1"]}), a=pa.int64())
    assert "differ in case alone" in left(pa.table({"a": [1], "A": [2]}), a=pa.int64())
    old = pa.table({"a": [datetime.date(1500, 1, 1)]})
    assert "the day 1500-01-01" in left(old, a=pa.date32())


@pytest.mark.parametrize(("split", "write"), [(ParquetSplit, parquet.write_table), (OrcSplit, orc.write_table)])
def test_a_file_without_any_of_the_columns_that_are_read_has_its_records_all_the_same(tmp_path, split, write):
    # As files have that were written before a column was thought of.
    write(pa.table({"user": ["ada", "bob"]}), str(tmp_path / "a"))
    columns = pa.schema([("vip", pa.bool_())])
    (batch,) = split(str(tmp_path / "a"), 1, columns).read()
    assert batch.to_pylist() == [{"vip": None}] * 2


def test_an_orc_file_that_is_gone_or_cut_off_is_named(tmp_path):
    path = tmp_path / "a.orc"
    with pytest.raises(StorageError, match=r"a\.orc is gone"):
        list(OrcSplit(str(path), 1, COLUMNS_OF_CLICKS).read())
    orc.write_table(pa.table({"user": ["ada"], "cents": [1]}), str(path))
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(TidewheelError, match=r"a\.orc cannot be read as an ORC file"):
        list(OrcSplit(str(path), 1, COLUMNS_OF_CLICKS).read())


def listed(path) -> ListedFile:
    return ListedFile(f"file://{path}", os.stat(path).st_mtime_ns // 1_000_000)


COLUMNS_OF_CLICKS = pa.schema([("user", pa.string()), ("cents", pa.int64())])


def reader(tmp_path, format="parquet") -> FilesReader:
    return FilesReader(str(tmp_path), format, COLUMNS_OF_CLICKS)


def test_a_large_file_is_split_by_row_groups_and_gives_the_same_rows(tmp_path, monkeypatch):
    monkeypatch.setattr("tidewheel._connectors.files.direct._LARGE", 100)
    table = pa.table({"user": [f"u{n}" for n in range(100)], "cents": list(range(100))})
    parquet.write_table(table, tmp_path / "a.parquet", row_group_size=30)
    splits = reader(tmp_path).splits(SourceBatch(None, None, [listed(tmp_path / "a.parquet")]), 2)
    assert [split.groups for split in splits] == [(0,), (1,), (2,), (3,)]
    assert [row for split in splits for batch in split.read() for row in batch.to_pylist()] == table.to_pylist()


def test_a_file_that_is_gone_is_named(tmp_path):
    with pytest.raises(StorageError, match=r"b\.parquet is gone"):
        reader(tmp_path).splits(SourceBatch(None, None, [ListedFile(f"file://{tmp_path}/b.parquet", 0)]), 1)
    with pytest.raises(StorageError, match=r"b\.parquet is gone"):
        list(ParquetSplit(f"{tmp_path}/b.parquet", 1, COLUMNS_OF_CLICKS).read())


def test_a_file_that_was_changed_after_spark_listed_it_is_refused(tmp_path):
    parquet.write_table(pa.table({"user": ["ada"], "cents": [1]}), tmp_path / "a.parquet")
    entry = listed(tmp_path / "a.parquet")
    os.utime(tmp_path / "a.parquet", ns=(0, 10**18))
    with pytest.raises(StorageError, match=r"a\.parquet was changed after Spark had listed it"):
        reader(tmp_path).splits(SourceBatch(None, None, [entry]), 1)


def test_a_file_that_is_cut_off_is_named(tmp_path):
    path = tmp_path / "a.parquet"
    parquet.write_table(pa.table({"user": ["ada"], "cents": [1]}), path)
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(TidewheelError, match=r"a\.parquet cannot be read as a Parquet file"):
        list(ParquetSplit(str(path), 1, COLUMNS_OF_CLICKS).read())


def test_a_file_of_another_type_is_left_to_spark(tmp_path):
    parquet.write_table(pa.table({"user": ["ada"], "cents": ["1"]}), tmp_path / "a.parquet")
    with pytest.raises(ReadBySpark, match=r"a\.parquet has string where the source has int64"):
        list(ParquetSplit(str(tmp_path / "a.parquet"), 1, COLUMNS_OF_CLICKS).read())


def test_a_folder_that_is_a_column_is_left_to_spark(tmp_path):
    (tmp_path / "day=1").mkdir()
    with pytest.raises(ReadBySpark):
        reader(tmp_path).splits(SourceBatch(None, None, [ListedFile(f"file://{tmp_path}/day=1/a.parquet", 0)]), 1)


@pytest.mark.parametrize("line", ['{"user": 5, "cents": 1}', '{"user": "a", "cents": "1"}', "nonsense"])
def test_a_json_line_that_arrow_refuses_is_left_to_spark(tmp_path, line):
    path = tmp_path / "a.json"
    path.write_text('{"user": "ada", "cents": 1}\n' + line + "\n")
    with pytest.raises(ReadBySpark, match=r"a\.json"):
        list(JsonSplit(str(path), path.stat().st_size, COLUMNS_OF_CLICKS).read())


ZONED = TIMES.flatmap(
    lambda time: st.sampled_from([f"{time.isoformat()}Z", f"{time.isoformat(' ')}+05:45", f"{time.isoformat()}-08:00"])
)
ODD_TIMES = [
    "",
    "now",
    "2020-02-30T10:00:00Z",
    "2020-02-29",
    "2020-02-29T10",
    "2020-02-29T10:00:00.1234567Z",
    "12:00:00",
]
ODD_TIMES += [
    "2020-02-29T10:00:00 Europe/Paris",
    "2020-02-29T24:00:00Z",
    "2020-02-29T10:00:60Z",
    "+2020-02-29T10:00:00Z",
]
IN_JSON = {
    **{name: COLUMNS[name][2] for name in ("text", "long", "int", "flag")},
    "double": st.floats(allow_nan=False, allow_infinity=False),
    "day": COLUMNS["day"][2].map(str) | st.sampled_from(["2020-2-9", "2020-02-30", "2020-02-29T10:00:00Z"]),
    "at": ZONED | TIMES.map(str) | st.sampled_from(ODD_TIMES) | st.integers(0, 10**9),
    "local": TIMES.map(datetime.datetime.isoformat) | ZONED | st.sampled_from(ODD_TIMES),
}


@st.composite
def objects(draw) -> tuple[str, list[dict]]:
    """Columns of JSON lines, and the objects; each column is of one form for the most part."""
    names = draw(st.lists(st.sampled_from(sorted(IN_JSON)), min_size=1, max_size=4, unique=True))
    rows = draw(
        st.lists(st.fixed_dictionaries({}, optional={name: st.none() | IN_JSON[name] for name in names}), max_size=3)
    )
    return ", ".join(f"{name} {COLUMNS[name][0]}" for name in names), rows


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(drawn=objects())
def test_what_tasks_take_of_json_lines_is_what_spark_reads(spark, tmp_path, drawn):
    declared, rows = drawn
    path = tmp_path / "part.json"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    schema = spark_schema(declared)
    columns = arrow_schema(schema, spark.conf.get("spark.sql.session.timeZone"))
    assert readable("json", columns, {}) is None
    try:
        direct = [
            row for batch in JsonSplit(str(path), path.stat().st_size, columns).read() for row in batch.to_pylist()
        ]
    except ReadBySpark:
        return
    assert direct == by_spark(spark, schema, path)


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (
            pa.timestamp("us", "Europe/Paris"),
            "2020-02-29T10:00:00.5Z",
            datetime.datetime(2020, 2, 29, 10, 0, 0, 500_000, UTC),
        ),
        (pa.timestamp("us", "UTC"), "2020-02-29 10:00:00-01:30", datetime.datetime(2020, 2, 29, 11, 30, tzinfo=UTC)),
        (pa.timestamp("us", "UTC"), "2020-02-29 10:00:00", datetime.datetime(2020, 2, 29, 10, tzinfo=UTC)),
        (pa.timestamp("us"), "2020-02-29 10:00:00", datetime.datetime(2020, 2, 29, 10)),
        (pa.date32(), "2020-02-29", datetime.date(2020, 2, 29)),
    ],
)
def test_times_and_days_in_json_are_read_directly(tmp_path, kind, text, value):
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"at": text}) + '\n{"at": null}\n{}\n')
    (batch,) = JsonSplit(str(path), 1, pa.schema([("at", kind)])).read()
    assert batch.column("at").to_pylist() == [value, None, None]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (pa.timestamp("us", "Europe/Paris"), "2020-02-29T10:00:00"),
        (pa.timestamp("us"), "2020-02-29T10:00:00Z"),
        (pa.timestamp("us", "UTC"), "2020-02-30T10:00:00Z"),
        (pa.timestamp("us", "UTC"), "2020-02-29T10:00:00.1234567Z"),
        (pa.date32(), "2020-02-29T10:00:00Z"),
    ],
    ids=["which hour is it there", "a zone for no zone", "no such day", "too fine", "a time for a day"],
)
def test_a_time_that_spark_may_read_otherwise_is_left_to_it(tmp_path, kind, text):
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"at": text}))
    with pytest.raises(ReadBySpark, match=r"a\.json.*column 'at'"):
        list(JsonSplit(str(path), 1, pa.schema([("at", kind)])).read())


FAR = [datetime.datetime(9999, 12, 31), datetime.datetime(1, 1, 1), datetime.datetime(1500, 1, 1, 0, 0, 0, 7)]


def test_an_int96_of_any_year_has_its_value(tmp_path):
    path = tmp_path / "far.parquet"
    parquet.write_table(pa.table({"t": pa.array(FAR, pa.timestamp("us"))}), path, use_deprecated_int96_timestamps=True)
    columns = pa.schema([("t", pa.timestamp("us", "UTC"))])
    (batch,) = ParquetSplit(str(path), 1, columns).read()
    assert batch.column("t").to_pylist() == [time.replace(tzinfo=UTC) for time in FAR]


def test_an_int96_is_left_to_spark_where_it_is_no_instant_or_is_inside_a_column(tmp_path):
    path = tmp_path / "local.parquet"
    times = pa.array(FAR, pa.timestamp("us"))
    nested = pa.StructArray.from_arrays([times], ["t"])
    parquet.write_table(pa.table({"t": times, "s": nested}), path, use_deprecated_int96_timestamps=True)
    for name, type_ in (("t", times.type), ("s", nested.type)):
        with pytest.raises(ReadBySpark):
            list(ParquetSplit(str(path), 1, pa.schema([(name, type_)])).read())


@pytest.mark.parametrize(
    "metadata", [{"org.apache.spark.version": "2.4.8"}, {"org.apache.spark.legacyINT96": ""}], ids=["version", "mark"]
)
def test_a_file_with_another_calendar_is_left_to_spark(tmp_path, metadata):
    path = tmp_path / "old.parquet"
    table = pa.table({"a": pa.array([1], pa.int64())})
    parquet.write_table(table.replace_schema_metadata(metadata), path)
    with pytest.raises(ReadBySpark, match="calendar"):
        list(ParquetSplit(str(path), 1, table.schema).read())


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.json", b'{"a": 1}{"a": 2}\n'),
        ("a.json", b'{"a":\n 1}\n'),
        ("a.json", b'{"s": "\xff"}\n'),
        ("a.json.lz4", b"of another form of LZ4 than Arrow's"),
    ],
    ids=["two objects on a line", "one object on two lines", "no Unicode", "another compression"],
)
def test_json_that_arrow_takes_and_spark_reads_otherwise_is_left_to_spark(tmp_path, name, text):
    path = tmp_path / name
    path.write_bytes(text)
    columns = pa.schema([("a", pa.int64()), ("s", pa.string())])
    with pytest.raises(ReadBySpark):
        list(JsonSplit(str(path), len(text), columns).read())


@pytest.mark.parametrize("end", [b"", b"\n"])
@pytest.mark.parametrize("rows", [1, 200_000])
@pytest.mark.parametrize("suffix", ["json", "json.gz"])
def test_json_with_an_object_a_line_is_read_directly(tmp_path, suffix, rows, end):
    path = tmp_path / f"a.{suffix}"
    text = b"\n".join(b'{"a": %d}' % number for number in range(rows)) + end
    path.write_bytes(gzip.compress(text, 1) if suffix.endswith("gz") else text)
    batches = JsonSplit(str(path), len(text), pa.schema([("a", pa.int64())])).read()
    assert [number for batch in batches for number in batch.column("a").to_pylist()] == list(range(rows))


@given(st.lists(st.integers(0, 1000), max_size=8), st.integers(1, 4))
def test_splits_are_dealt_in_their_order_and_as_evenly_as_that_allows(sizes, tasks):
    hands = dealt(sizes, tasks)
    assert [position for hand in hands for position in hand] == list(range(len(sizes)))
    assert len(hands) <= tasks

    def largest(cuts):
        ends = [0, *cuts, len(sizes)]
        return max(sum(size + 1 for size in sizes[start:end]) for start, end in itertools.pairwise(ends))

    ways = itertools.combinations_with_replacement(range(len(sizes) + 1), tasks - 1)
    assert largest([hand.stop for hand in hands[:-1]]) == min(map(largest, ways))


def test_a_reader_that_cannot_be_is_refused(tmp_path, spark):
    (tmp_path / "a.csv").write_text("ada,1\n")
    job = Job("clicks", state=f"file://{tmp_path}/state")
    source = files(tmp_path, format="csv", schema="user string, raw binary", reader="arrow")
    job.source("in", source).sink("out", collect())
    with pytest.raises(ConfigError, match="the CSV column 'raw' is neither text"):
        job.run(bounded=True, spark=spark)


@pytest.mark.parametrize(("chosen", "in_driver"), [("auto", False), ("auto", True), ("spark", False)])
def test_both_readers_give_the_same_job_in_a_task_and_in_the_driver(tmp_path, spark, chosen, in_driver):
    for number in range(3):
        table = pa.table({"user": ["ada", "bob"], "cents": [number, 2 * number]})
        (tmp_path / "in").mkdir(exist_ok=True)
        parquet.write_table(table, tmp_path / "in" / f"{number}.parquet")
    (tmp_path / "in" / "odd.parquet").write_bytes((tmp_path / "in" / "0.parquet").read_bytes())
    sink = collect()
    job = Job("clicks", state=f"file://{tmp_path}/state")
    stream = job.source("in", files(tmp_path / "in", schema="user string, cents long", reader=chosen))
    stream.key_by("by-user", "user", value="cents").stateful_map(
        "total", lambda user, cents, total: ((total + cents, os.getpid()), total + cents), default=0
    ).sink("out", sink)
    told: list[dict[str, str]] = []
    result = job.run(bounded=True, spark=spark, in_driver=in_driver, on_readers=told.append)
    reader = "arrow" if chosen == "auto" else "spark, because the program asks for Spark's reader"
    assert told == [{"in": reader}]
    assert result.event_count == 8
    assert max(row["value"][0] for row in sink.records if row["user"] == "bob") == 6
    assert (os.getpid() in {row["value"][1] for row in sink.records}) is in_driver


@pytest.mark.parametrize("levels", [2, 3])
def test_a_batch_that_each_task_reads_keeps_the_order_of_its_file(tmp_path, spark, monkeypatch, levels):
    monkeypatch.setattr("tidewheel._spark.batch_tasks.SMALL_BYTES", 0)
    (tmp_path / "in").mkdir()
    table = pa.table({"user": [f"u{number % 7}" for number in range(100)], "cents": range(100)})
    parquet.write_table(table, tmp_path / "in" / "a.parquet", row_group_size=30)
    sink = collect()
    job = Job("clicks", state=f"file://{tmp_path}/state")
    stream = job.source("in", files(tmp_path / "in", schema="user string, cents long"))
    stream = stream.key_by("by-user", "user", value="cents").stateful_map(
        "all", lambda user, cents, seen: ([*seen, cents], [*seen, cents]), default=list
    )
    if levels == 3:
        stream = stream.key_by("by-length", len).map("same", lambda seen: seen)
    stream.sink("out", sink)
    batches: list[Ran] = []
    run = BatchTasks.run
    monkeypatch.setattr(BatchTasks, "run", lambda *args, **named: batches.append(run(*args, **named)) or batches[-1])
    result = job.run(bounded=True, spark=spark, parallelism=2)
    assert [(ran.spec.shared_key, ran.tasks) for ran in batches] == [("user", 2)]
    assert result.event_count == 100
    # The first value of a user is the user's number.
    last = {row["value"][0]: row["value"] for row in sorted(sink.records, key=lambda row: len(row["value"]))}
    assert last == {user: list(range(user, 100, 7)) for user in range(7)}


@pytest.mark.parametrize("crashes", [False, True])
def test_batches_without_a_shuffle_run_in_two_processes_beside_the_driver(tmp_path, spark, monkeypatch, crashes):
    monkeypatch.setattr("tidewheel._spark.batch_tasks.SMALL_BYTES", 0)
    monkeypatch.setattr("tidewheel._spark.batch_tasks.BESIDE_SECONDS", 0)
    are_ready, kept = WorkersBeside.are_ready, []

    def await_ready(workers: WorkersBeside, tasks: int) -> bool:
        if workers._batches > 1:
            eventually(lambda: are_ready(workers, tasks), "the processes")
            kept[:] = [worker.process.pid for worker in workers._workers]
        return are_ready(workers, tasks)

    monkeypatch.setattr(WorkersBeside, "are_ready", await_ready)
    (tmp_path / "in").mkdir()
    for number in range(5):
        table = pa.table({"user": [f"u{user}" for user in range(20)], "n": [number] * 20})
        parquet.write_table(table, tmp_path / "in" / f"{number}.parquet")
        os.utime(tmp_path / "in" / f"{number}.parquet", (number, number))
    crashed = tmp_path / "crashed"

    def count(user: str, number: int, seen: int) -> tuple[tuple[int, int], int]:
        if crashes and number == 2 and not crashed.exists():
            crashed.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return (number, os.getpid()), seen + 1

    sink = collect()
    job = Job("clicks", state=f"file://{tmp_path}/state")
    stream = job.source("in", files(tmp_path / "in", schema="user string, n long", max_files_per_trigger=1))
    stream.key_by("by-user", "user", value="n").stateful_map("seen", count, default=0).sink("out", sink)
    result = job.run(bounded=True, spark=spark, parallelism=2)
    assert result.event_count == 100
    assert dict(StoredJob("clicks", state=f"file://{tmp_path}/state").scan("seen")) == {
        f"u{user}": 5 for user in range(20)
    }
    processes = {number: {row["value"][1] for row in sink.records if row["value"][0] == number} for number in range(5)}
    assert processes[4] == set(kept)
    assert len(kept) == 2
    assert crashed.exists() is crashes
    assert processes[2].isdisjoint(kept) is crashes


@pytest.mark.parametrize(
    ("readings", "tasks", "shared"),
    [
        (["cheap"], 2, True),
        (["cheap", "cheap"], 4, True),
        (["dear"], 2, True),
        (["dear", "dear"], 2, False),
        (["dear", "cheap"], 2, False),
        (["once"], 2, False),
        (["cheap"], 1, False),
        (["cheap"], 5, False),
    ],
)
def test_a_batch_is_read_by_each_task_where_that_takes_less_than_a_shuffle(readings, tasks, shared):
    assert may_be_shared([SimpleNamespace(reading=reading) for reading in readings], tasks) is shared


def test_a_batch_that_arrow_cannot_read_as_spark_does_is_read_by_spark(tmp_path, spark, caplog):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_text('{"user": 5, "cents": 1}\n')
    sink = collect()
    job = Job("clicks", state=f"file://{tmp_path}/state")
    job.source("in", files(tmp_path / "in", format="json", schema="user string, cents long")).sink("out", sink)
    told: list[dict[str, str]] = []
    job.run(bounded=True, spark=spark, on_readers=told.append)
    assert [(row["user"], row["cents"]) for row in sink.records] == [("5", 1)]
    first, then = told
    assert first == {"in": "arrow"}
    assert then["in"].startswith("spark where tasks cannot, because ")
    assert "a.json" in then["in"]
    (warning,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert warning == f"job 'clicks': source 'in': reader: {then['in']}"
