"""CSV files that tasks read themselves: the values that Spark would give, or Spark's own reader."""

from __future__ import annotations

import datetime
import decimal
import gzip
import itertools

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tidewheel import Job
from tidewheel._connectors.direct import ReadBySpark
from tidewheel._connectors.files import csv_split
from tidewheel._connectors.files.csv_split import CsvForm, CsvSplit
from tidewheel._connectors.files.direct import readable
from tidewheel._connectors.schema import arrow_schema, spark_schema
from tidewheel.errors import StorageError
from tidewheel.sinks import collect
from tidewheel.sources import files

SIGNS = [
    "a",
    "Z",
    "é",
    "0",
    "1",
    "7",
    ".",
    "-",
    "+",
    "e",
    "x",
    "\\",
    '"',
    '""',
    " ",
    "\t",
    ",",
    ";",
    "\r",
    "\n",
    "\r\n",
]
"""What CSV readers disagree about, and a few signs between."""
WORDS = [
    "",
    '""',
    "0x1F",
    "NaN",
    "nan",
    "Inf",
    "inf",
    "-Inf",
    "null",
    "NULL",
    "true",
    "TRUE",
    "1.",
    ".5",
    "1e400",
    "-0",
    "007",
]
WORDS += [
    "1e5",
    "2020-02-29",
    "2020-2-9",
    "1582-10-10",
    "12.345",
    "9" * 25,
    " 1",
    "1 ",
    '"1"',
    '" 1"',
    '"a,b"',
    "#a",
    "1d",
    "2020-02-29T10:00:00Z",
    "2020-02-30T10:00:00Z",
    "2020-02-29 10:00:00.123456+01:00",
    "2020-02-29T10:00:00.1234567Z",
    "2020-02-29T10:00:00",
    "2020-02-29T10:00",
    "2020-02-29T24:00:00",
    "2020-02-29T10:00:00 Europe/Paris",
    "1582-10-10T00:00:00Z",
]
HOSTILE = st.one_of(st.sampled_from(WORDS), st.lists(st.sampled_from(SIGNS), max_size=5).map("".join))
TYPES = ["string", "bigint", "int", "smallint", "tinyint", "double", "float", "boolean", "date", "decimal(12,2)"]
TYPES += ["timestamp", "timestamp_ntz"]
PLAIN = {
    "string": st.text(st.characters(codec="utf-8", exclude_characters='\0\r\n,"'), min_size=1, max_size=6),
    "bigint": st.integers(-(2**63), 2**63 - 1).map(str),
    "int": st.integers(-(2**31), 2**31 - 1).map(str),
    "smallint": st.integers(-(2**15), 2**15 - 1).map(str),
    "tinyint": st.integers(-(2**7), 2**7 - 1).map(str),
    "double": st.floats(allow_nan=False, allow_infinity=False).map(repr),
    "float": st.floats(allow_nan=False, allow_infinity=False, width=32).map(repr),
    "boolean": st.sampled_from(["true", "false", "True", "FALSE"]),
    "date": st.dates().map(str),
    "decimal(12,2)": st.decimals(-(10**9), 10**9, places=2).map(str),
    # A year of the zones between which they are shown must have its place, too.
    "timestamp": st.datetimes(datetime.datetime(2, 1, 1), datetime.datetime(9998, 1, 1)).flatmap(
        lambda time: st.sampled_from([f"{time.isoformat()}Z", f"{time.isoformat(' ')}-07:30"])
    ),
    "timestamp_ntz": st.datetimes().map(str),
}
_folders = itertools.count()
# An example is many files and one job of Spark's, so a failing file is found by itself, and nothing is made smaller.
by_many_files = settings(
    max_examples=8,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


def columns_of(types: list[str]) -> str:
    return ", ".join(f"c{number} {kind}" for number, kind in enumerate(types))


@st.composite
def hostile_files(draw) -> tuple[list[str], bool, list[str]]:
    """Types of columns, whether there is a line of names, and the texts of files that no one writer would write."""
    types = draw(st.lists(st.sampled_from(TYPES), min_size=2, max_size=3))
    lines = st.lists(HOSTILE, min_size=2, max_size=3).map(",".join)
    text = st.tuples(st.lists(lines, min_size=1, max_size=3).map("\n".join), st.sampled_from(["", "\n"])).map("".join)
    return types, draw(st.booleans()), draw(st.lists(text, min_size=20, max_size=40))


@st.composite
def plain_files(draw) -> tuple[list[str], list[str]]:
    types = draw(st.lists(st.sampled_from(TYPES), min_size=2, max_size=5))
    # A space beside a number is for Spark to judge, so where there are numbers a text has none at its edge.
    fields = [st.just("") | PLAIN[kind].map(str.strip) for kind in types]
    # A line of nothing but separators is a record; one of nothing at all is none.
    lines = st.lists(st.tuples(*fields).map(",".join), max_size=4).map("\n".join)
    return types, draw(st.lists(lines, min_size=1, max_size=10))


def written(tmp_path, texts: list[str]):
    folder = tmp_path / f"in-{next(_folders)}"
    folder.mkdir()
    for number, text in enumerate(texts):
        (folder / f"{number}.csv").write_bytes(text.encode())
    return folder


def split(path, schema, header: bool = False) -> CsvSplit:
    columns = arrow_schema(schema)
    return CsvSplit(str(path), path.stat().st_size, columns, columns.names, CsvForm(header, ","))


def direct(path, schema, header: bool = False) -> list[tuple]:
    batches = split(path, schema, header).read()
    return [tuple(map(_plain, row.values())) for batch in batches for row in batch.to_pylist()]


def _plain(value):
    """Return an instant as its microseconds since 1970: Spark's rows have it in the zone of the machine."""
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        return (value - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)) // datetime.timedelta(microseconds=1)
    return value


def by_spark(spark, schema, folder, header: bool) -> dict[str, list[tuple]]:
    columns = [f"unix_micros({each.name})" if each.dataType.typeName() == "timestamp" else each.name for each in schema]
    frame = spark.read.schema(schema).csv(str(folder), header=header).selectExpr(*columns, "input_file_name() as file")
    rows: dict[str, list[tuple]] = {}
    for row in frame.collect():
        rows.setdefault(row["file"].rpartition("/")[2], []).append(tuple(row)[:-1])
    return rows


@by_many_files
@given(drawn=hostile_files())
def test_what_tasks_take_of_a_hostile_csv_file_is_what_spark_reads(spark, tmp_path, drawn):
    types, header, texts = drawn
    schema = spark_schema(columns_of(types))
    folder = written(tmp_path, texts)
    rows = by_spark(spark, schema, folder, header)
    for path in folder.iterdir():
        try:
            found = direct(path, schema, header)
        except ReadBySpark:
            continue
        assert found == rows.get(path.name, []), path.read_bytes()


@by_many_files
@given(drawn=plain_files())
def test_tasks_read_plain_csv_files_and_give_what_spark_reads(spark, tmp_path, drawn):
    types, texts = drawn
    schema = spark_schema(columns_of(types))
    folder = written(tmp_path, texts)
    rows = by_spark(spark, schema, folder, header=False)
    for path in folder.iterdir():
        assert direct(path, schema) == rows.get(path.name, []), path.read_bytes()


SCHEMA = pa.schema([("a", pa.string()), ("b", pa.int64())])


def read(path, text: str | bytes, columns=SCHEMA, names=("a", "b"), header=False, separator=",") -> list[tuple]:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    found = CsvSplit(str(path), 1, columns, names, CsvForm(header, separator)).read()
    return [tuple(row.values()) for batch in found for row in batch.to_pylist()]


@pytest.mark.parametrize(
    "text",
    [
        "x\n",
        "x,1,2\n",
        "x,one\n",
        "x, 1\n",
        "x,0x10\n",
        '"x""y",1\n',
        '"x\\"y",1\n',
        '"x\ny",1\n',
        'x"y,1\n',
        "x\ry,1\n",
        "x\0,1\n",
        "\ufeffx,1\n",
        b"\xff,1\n",
    ],
)
def test_a_line_that_the_two_may_read_differently_is_left_to_spark(tmp_path, text):
    with pytest.raises(ReadBySpark, match=r"a\.csv"):
        read(tmp_path / "a.csv", text)


@pytest.mark.parametrize("name", ["a.csv.snappy", "a.csv.zst", "a.csv.bz2"])
def test_a_compression_that_spark_knows_is_left_to_it(tmp_path, name):
    with pytest.raises(ReadBySpark, match="compressed"):
        read(tmp_path / name, "x,1\n")


def test_quoted_values_names_in_the_first_line_and_other_separators(tmp_path):
    path = tmp_path / "a.csv"
    assert read(path, 'a,b\r\n"x,y",1\r\nz,"2"\r\n', header=True) == [("x,y", 1), ("z", 2)]
    assert read(path, "x\t1\n y \t2\n".replace(" y ", "y"), separator="\t") == [("x", 1), ("y", 2)]
    assert read(path, "a,b\n", header=True) == []
    with pytest.raises(ReadBySpark, match="begins with an empty line"):
        read(path, "\na,b\nx,1\n", header=True)
    with pytest.raises(ReadBySpark, match="carriage return"):
        read(path, "a,b\rx,1\n", header=True)
    assert read(path, '"A",b\nx,1\n', header=True) == [("x", 1)]
    for first in ("b,a", "a", "a,b,c", "a, b"):
        with pytest.raises(ReadBySpark, match="may name other columns"):
            read(path, f"{first}\nx,1\n", header=True)


def test_values_are_those_of_their_place_and_unread_columns_are_not_looked_at(tmp_path):
    found = read(tmp_path / "a.csv", "x,one,1\ny,two,2\n", names=("a", "other", "b"))
    assert found == [("x", 1), ("y", 2)]


@pytest.mark.parametrize("suffix", ["csv", "csv.gz"])
def test_a_file_of_many_blocks_gives_all_its_lines_in_order(tmp_path, monkeypatch, suffix):
    monkeypatch.setattr(csv_split, "_BLOCK", 1000)
    text = "".join(f"u{number},{number}\n" for number in range(5000)).encode()
    path = tmp_path / f"a.{suffix}"
    found = read(path, gzip.compress(text) if suffix.endswith("gz") else text)
    assert found == [(f"u{number}", number) for number in range(5000)]


def test_a_file_that_is_gone_is_named(tmp_path):
    with pytest.raises(StorageError, match=r"b\.csv is gone"):
        list(CsvSplit(f"{tmp_path}/b.csv", 1, SCHEMA, ("a", "b"), CsvForm(False, ",")).read())


def test_options_that_only_spark_knows_are_named():
    assert readable("csv", SCHEMA, {"header": True, "sep": ";", "maxFilesPerTrigger": 1}) is None
    assert readable("csv", SCHEMA, {"nullValue": "-"}) == "the option nullValue is Spark's own"
    assert readable("csv", SCHEMA, {"sep": "::"}) == "the option sep is Spark's own"
    assert "'tags' is neither text" in str(readable("csv", pa.schema([("tags", pa.list_(pa.string()))]), {}))


def test_a_job_reads_good_files_itself_and_leaves_a_bad_line_to_spark_to_reject(tmp_path, spark):
    (tmp_path / "in").mkdir()
    schema = "user string, day date, cents long, price decimal(12,2)"
    sink, dead, told = collect(), collect(), []

    def run() -> None:
        job = Job("clicks", state=f"file://{tmp_path}/state")
        job.source("in", files(tmp_path / "in", schema=schema, header=True)).sink("out", sink)
        job.dead_letter("dead", dead)
        job.run(trigger="available-now", spark=spark, on_readers=told.append)

    (tmp_path / "in" / "a.csv").write_text("user,day,cents,price\nada,2020-01-01,1,1.50\n")
    run()
    good = {"user": "ada", "day": datetime.date(2020, 1, 1), "cents": 1, "price": decimal.Decimal("1.50")}
    assert sink.records == [good]
    assert told == [{"in": "arrow"}]
    (tmp_path / "in" / "b.csv").write_text("user,day,cents,price\nada,2020-01-01,1,1.50\nbob,no day\n")
    run()
    assert sink.records == [good, good]
    assert [row["record"] for row in dead.records] == ['"bob,no day"']
    assert told[1] == {"in": "arrow"}
    assert "b.csv" in told[2]["in"]
