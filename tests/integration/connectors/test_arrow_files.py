"""Arrow files in the file format and the stream format; an error names the file that does not fit."""

from __future__ import annotations

import datetime
import decimal
import os

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import feather, ipc

from tidewheel import Job, RunOptions
from tidewheel._connectors.files.arrow_split import ArrowSplit
from tidewheel._connectors.files.input_file import InputFile
from tidewheel._storage import open_store
from tidewheel.checkpoints import StreamCheckpoints
from tidewheel.errors import TidewheelError
from tidewheel.sinks import collect, discard
from tidewheel.sources import files

CLICKS = pa.schema([("user", pa.string()), ("cents", pa.int64())])
TABLE = pa.table({"user": ["ada", "bob", None], "cents": [1, None, 3]})


def write(path, table=TABLE, *, rows=2, compression=None):
    """Write a table in batches: names that end with `arrows` get a stream."""
    options = ipc.IpcWriteOptions(compression=compression)
    new = ipc.new_stream if path.suffix == ".arrows" else ipc.new_file
    with pa.OSFile(str(path), "wb") as file, new(file, table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=rows)
    return path


def listed(path) -> InputFile:
    status = os.stat(path)
    return InputFile(str(path), status.st_size, status.st_mtime_ns // 1_000_000)


def read(path, columns=CLICKS) -> list[dict]:
    return [row for batch in ArrowSplit(listed(path), columns).read() for row in batch.to_pylist()]


def refused(path, columns=CLICKS) -> str:
    with pytest.raises(TidewheelError) as found:
        read(path, columns)
    assert path.name in str(found.value)
    return str(found.value)


TIME = datetime.datetime(2025, 1, 31, 12, 30, 0, 5)
COLUMNS = [
    (pa.string(), st.text(st.characters(codec="utf-8"), max_size=4), pa.string()),
    (pa.dictionary(pa.int8(), pa.string()), st.sampled_from("abc"), pa.string()),
    (pa.large_string(), st.text("ab"), pa.string()),
    (pa.string_view(), st.text("ab"), pa.string()),
    (pa.binary(3), st.binary(min_size=3, max_size=3), pa.binary()),
    (pa.uint32(), st.integers(0, 2**32 - 1), pa.int64()),
    (pa.uint64(), st.integers(0, 2**64 - 1).map(decimal.Decimal), pa.decimal128(20, 0)),
    (pa.int16(), st.integers(-9, 9), pa.int64()),
    (pa.float32(), st.floats(width=32, allow_nan=False), pa.float64()),
    (pa.date64(), st.dates(datetime.date(1500, 1, 1)), pa.date32()),
    (pa.timestamp("ns", "Europe/Paris"), st.just(TIME.astimezone(datetime.UTC)), pa.timestamp("us", "UTC")),
    (pa.timestamp("s"), st.just(TIME.replace(microsecond=0)), pa.timestamp("us")),
    (pa.decimal128(6, 2), st.decimals(-99, 99, places=2), pa.decimal128(12, 4)),
    (pa.large_list(pa.int32()), st.lists(st.integers(-9, 9), max_size=3), pa.list_(pa.int64())),
    (
        pa.struct([("a", pa.uint8()), ("b", pa.large_string())]),
        st.fixed_dictionaries({"a": st.integers(0, 255), "b": st.text("ab")}),
        pa.struct([("a", pa.int16()), ("b", pa.string())]),
    ),
    (pa.null(), st.none(), pa.string()),
]


@pytest.mark.parametrize("suffix", ["arrow", "arrows"])
@pytest.mark.parametrize(("given_as", "values", "wanted"), COLUMNS, ids=[str(kind[0]) for kind in COLUMNS])
@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_column_of_any_type_has_its_values(tmp_path, suffix, given_as, values, wanted, data):
    column = data.draw(st.lists(st.none() | values, max_size=5))
    path = write(tmp_path / f"a.{suffix}", pa.table({"C": pa.array(column, given_as), "other": range(len(column))}))
    assert read(path, pa.schema([("c", wanted)])) == [{"c": value} for value in column]


@pytest.mark.parametrize("suffix", ["arrow", "arrows"])
@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_compressed_batches_are_read_and_a_missing_column_is_null(tmp_path, suffix, compression):
    path = write(tmp_path / f"a.{suffix}", compression=compression)
    columns = CLICKS.append(pa.field("page", pa.string()))
    assert read(path, columns) == [{**row, "page": None} for row in TABLE.to_pylist()]


def test_a_feather_file_is_an_arrow_file(tmp_path):
    feather.write_feather(TABLE, str(tmp_path / "a.feather"))
    assert read(tmp_path / "a.feather") == TABLE.to_pylist()


def test_a_stream_is_never_divided(tmp_path):
    assert ArrowSplit.count(listed(write(tmp_path / "a.arrow"))) == 2
    assert ArrowSplit.count(listed(write(tmp_path / "a.arrows"))) == 1


@pytest.mark.parametrize("suffix", ["arrow", "arrows"])
def test_a_file_that_is_cut_off_anywhere_is_named(tmp_path, suffix):
    path = write(tmp_path / f"a.{suffix}")
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        refused(path)


def test_an_arrow_stream_without_its_end_is_refused(tmp_path):
    path = write(tmp_path / "a.arrows", pa.table({"n": pa.array([-1, 0], pa.int32())}))
    whole = path.read_bytes()
    assert whole[-16:-8] == whole[-8:]
    path.write_bytes(whole[:-8])
    assert "is cut off" in refused(path, pa.schema([("n", pa.int32())]))


def test_bytes_after_the_end_of_a_stream_are_refused(tmp_path):
    path = write(tmp_path / "a.arrows")
    path.write_bytes(path.read_bytes() * 2)
    assert "write one stream a file" in refused(path)


def test_a_file_of_another_format_or_schema_is_named(tmp_path):
    (tmp_path / "a.arrow").write_text('{"user": "ada"}\n')
    assert "neither the file format nor the stream format" in refused(tmp_path / "a.arrow")
    text = write(tmp_path / "b.arrow", pa.table({"user": ["ada"], "cents": ["1"]}))
    assert "has string in the column 'cents', and the source has int64" in refused(text)
    exact = write(tmp_path / "c.arrow", pa.table({"t": pa.array([1], pa.timestamp("ns"))}))
    assert "would lose data" in refused(exact, pa.schema([("t", pa.timestamp("us"))]))
    assert "has timestamp[ns] in" in refused(exact, pa.schema([("t", pa.timestamp("us", "UTC"))]))
    both = write(tmp_path / "d.arrow", pa.table({"user": ["ada"], "USER": ["bob"], "cents": [1]}))
    assert "several columns that may be 'User'" in refused(both, pa.schema([("User", pa.string())]))


def test_invalid_unicode_is_refused(tmp_path):
    broken = pa.StringArray.from_buffers(1, pa.array([b"\xff"]).buffers()[1], pa.py_buffer(b"\xff"))
    assert "UTF8" in refused(write(tmp_path / "a.arrow", pa.table({"user": broken, "cents": [1]})))


def test_a_file_has_columns_of_types_that_spark_has(tmp_path):
    kinds = [("a", pa.dictionary(pa.int8(), pa.large_string())), ("b", pa.uint8()), ("c", pa.list_view(pa.date64()))]
    path = write(tmp_path / "a.arrow", pa.schema(kinds).empty_table())
    assert ArrowSplit.schema_of(listed(path)) == pa.schema(
        [("a", pa.string()), ("b", pa.int16()), ("c", pa.list_(pa.date32()))]
    )


def job_over(tmp_path, source, sink) -> Job:
    job = Job("clicks", state=f"file://{tmp_path}/state")
    job.source("in", source).sink("out", sink)
    return job


def test_a_job_reads_files_of_both_formats_with_their_own_columns(tmp_path, spark):
    (tmp_path / "in").mkdir()
    write(tmp_path / "in" / "a 1%20.arrow")
    write(tmp_path / "in" / "b.arrows")
    (tmp_path / "in" / "c.feather.tmp").write_text("not yet")
    sink = collect()
    job_over(tmp_path, files(tmp_path / "in", "arrow"), sink).run(until="end", options=RunOptions(spark=spark))
    assert [(row["user"], row["cents"]) for row in sink.records] == [
        (row["user"], row["cents"]) for row in TABLE.to_pylist()
    ] * 2


def test_a_truncated_file_ends_the_run_and_nothing_is_committed(tmp_path, spark):
    (tmp_path / "in").mkdir()
    write(tmp_path / "in" / "a.arrow")
    path = write(tmp_path / "in" / "b.arrows")
    path.write_bytes(path.read_bytes()[:-8])
    job = job_over(tmp_path, files(tmp_path / "in"), discard())
    with pytest.raises(TidewheelError, match=r"b\.arrows is cut off"):
        job.run(until="caught-up", options=RunOptions(spark=spark))
    newest = StreamCheckpoints(open_store(job.state), "clicks").latest()
    assert newest is None or newest.event_count == 0
