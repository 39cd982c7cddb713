"""Parquet and ORC files as tasks read them: the values that Spark reads, and errors that name the file."""

from __future__ import annotations

import datetime
import decimal
import os

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from pyarrow import feather, orc, parquet

from tidewheel._connectors.files.arrow_split import ArrowSplit
from tidewheel._connectors.files.input_file import InputFile
from tidewheel._connectors.files.orc_split import OrcSplit
from tidewheel._connectors.files.parquet_split import ParquetSplit
from tidewheel._connectors.schema import declared_schema, spark_schema
from tidewheel.errors import StorageError, TidewheelError

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


def listed(path) -> InputFile:
    status = os.stat(path)
    return InputFile(str(path), status.st_size, status.st_mtime_ns // 1_000_000)


def read(kind, path, schema) -> list[dict]:
    columns = schema if isinstance(schema, pa.Schema) else declared_schema(schema)
    return [row for batch in kind(listed(path), columns).read() for row in batch.to_pylist()]


def refused(kind, path, schema) -> str:
    with pytest.raises(TidewheelError) as found:
        read(kind, path, schema)
    assert str(path) in str(found.value)
    return str(found.value)


@pytest.mark.parametrize("int96", [False, True])
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(table=tables())
def test_a_parquet_file_has_the_values_that_spark_reads(spark, tmp_path, table, int96):
    declared, contents = table
    path = tmp_path / "part.parquet"
    parquet.write_table(contents, path, use_deprecated_int96_timestamps=int96)
    assert read(ParquetSplit, path, declared) == by_spark(spark, spark_schema(declared), path)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(table=tables())
def test_an_orc_file_has_the_values_that_spark_reads(spark, tmp_path, table):
    declared, contents = table
    assume("timestamp_ntz" not in declared)  # Spark does not read a time of ORC as one without a zone.
    # Spark's reader of ORC fails for some parts of a second before 1970 ("nanos > 999999999 or < 0").
    times = [column for column in contents.columns if pa.types.is_timestamp(column.type)]
    assume(all(time is None or time.timestamp() >= 0 for column in times for time in column.to_pylist()))
    path = tmp_path / "part.orc"
    orc.write_table(contents, str(path))
    assert read(OrcSplit, path, declared) == by_spark(spark, spark_schema(declared), path)


def test_orc_days_that_depend_on_the_writers_calendar_are_refused(tmp_path):
    orc.write_table(pa.table({"day": [datetime.date(1500, 1, 1)]}), str(tmp_path / "a.orc"))
    assert "depends on the calendar of the writer" in refused(OrcSplit, tmp_path / "a.orc", "day date")
    orc.write_table(pa.table({"_col0": [1]}), str(tmp_path / "b.orc"))
    assert "columns without names" in refused(OrcSplit, tmp_path / "b.orc", "n long")


@pytest.mark.parametrize(
    "metadata", [{"org.apache.spark.version": "2.4.0"}, {"org.apache.spark.legacyDateTime": "", "a": "b"}]
)
def test_times_of_a_parquet_file_with_another_calendar_are_refused(tmp_path, metadata):
    day = pa.table({"day": [datetime.date(1500, 1, 1)], "n": [1]})
    parquet.write_table(day.replace_schema_metadata(metadata), tmp_path / "a.parquet")
    assert "calendar of Spark 2" in refused(ParquetSplit, tmp_path / "a.parquet", "day date")
    assert read(ParquetSplit, tmp_path / "a.parquet", "n long") == [{"n": 1}]


def test_an_int96_of_any_year_has_its_value(tmp_path):
    at = datetime.datetime(2999, 12, 31, 23, 59, 59, 5, UTC)
    table = pa.table({"at": pa.array([at], pa.timestamp("us", "UTC"))})
    parquet.write_table(table, tmp_path / "a.parquet", use_deprecated_int96_timestamps=True)
    assert read(ParquetSplit, tmp_path / "a.parquet", "at timestamp") == [{"at": at}]
    assert ParquetSplit.schema_of(listed(tmp_path / "a.parquet")) == table.schema


KINDS = [(ParquetSplit, parquet.write_table), (OrcSplit, orc.write_table), (ArrowSplit, feather.write_feather)]
COLUMNS_READ = declared_schema("user string, cents long, note string")


@pytest.mark.parametrize(("split", "write"), KINDS)
def test_a_file_without_the_read_columns_still_yields_its_records(tmp_path, split, write):
    write(pa.table({"other": [1, 2, 3]}), str(tmp_path / "a"))
    assert read(split, tmp_path / "a", "user string") == [{"user": None}] * 3
    assert read(split, tmp_path / "a", pa.schema([])) == [{}] * 3


@pytest.mark.parametrize(("split", "write"), KINDS)
def test_a_wrong_type_in_a_column_that_is_not_read_is_noticed(tmp_path, split, write):
    write(pa.table({"user": ["ada"], "cents": [3], "note": [1.5]}), str(tmp_path / "a"))
    with pytest.raises(TidewheelError, match=r"a has double"):
        list(split(listed(tmp_path / "a"), COLUMNS_READ).narrowed({"user", "cents"}).read())


@pytest.mark.parametrize(("split", "write"), KINDS)
def test_only_requested_columns_are_returned(tmp_path, split, write):
    write(pa.table({"note": ["x"], "cents": [3]}), str(tmp_path / "a"))
    narrow = split(listed(tmp_path / "a"), COLUMNS_READ).narrowed({"user", "cents"})
    assert [row for batch in narrow.read() for row in batch.to_pylist()] == [{"user": None, "cents": 3}]


@pytest.mark.parametrize(("split", "write"), KINDS)
def test_a_file_that_is_cut_off_or_gone_is_named(tmp_path, split, write):
    write(pa.table({"user": ["ada"] * 50}), str(tmp_path / "a"))
    whole = (tmp_path / "a").read_bytes()
    (tmp_path / "a").write_bytes(whole[: len(whole) // 2])
    refused(split, tmp_path / "a", "user string")
    gone = listed(tmp_path / "a")
    (tmp_path / "a").unlink()
    with pytest.raises(StorageError, match="is gone"):
        list(split(gone, COLUMNS_READ).read())
