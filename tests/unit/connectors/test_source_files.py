"""files: what Spark reads, what is refused, and files in the order of their names."""

from __future__ import annotations

import dataclasses
import gzip
import json
import os

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from tidewheel import Job
from tidewheel._connectors.bad_lines import BAD_LINE
from tidewheel._connectors.files.ordered import Position, next_file
from tidewheel._connectors.files.ordered_stream import OrderedReader
from tidewheel._values import shape_of
from tidewheel.errors import ConfigError, StateError, TidewheelError
from tidewheel.sinks import discard
from tidewheel.sources import files


@dataclasses.dataclass
class Click:
    user: str
    amount: int


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "in"
    path.mkdir()
    return path


def write_json(path, *records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records))


def test_json_with_a_schema_and_a_bound_on_the_batch(reading, folder):
    for number in range(3):
        write_json(folder / f"{number}.json", {"user": "ada", "amount": number})
        os.utime(folder / f"{number}.json", (number, number))
    batches = reading.run(files(folder, "json", schema="user string, amount long", max_files_per_trigger=1))
    assert [[row["amount"] for row in batch] for batch in batches] == [[0], [1], [2]]


def test_the_declared_type_is_the_schema(spark, folder):
    source = files(folder, "json").declared(shape_of(Click))
    assert source.load(spark).drop(BAD_LINE).schema.simpleString() == "struct<user:string,amount:bigint>"


def test_a_schema_that_is_given_wins_over_the_declared_type(spark, folder):
    source = files(folder, "json", schema="amount int").declared(shape_of(Click))
    assert source.load(spark).drop(BAD_LINE).schema.simpleString() == "struct<amount:int>"


@pytest.mark.parametrize("ordered", [False, True])
def test_parquet_files_tell_their_columns(spark, folder, ordered):
    parquet.write_table(pa.table({"n": [1, 2]}), folder / "a.parquet")
    assert files(folder, ordered=ordered).load(spark).schema.simpleString() == "struct<n:bigint>"


@pytest.mark.parametrize("ordered", [False, True])
def test_text_is_one_column(spark, folder, ordered):
    assert files(folder, "text", ordered=ordered).load(spark).schema.simpleString() == "struct<value:string>"


def test_an_option_that_is_neither_ours_nor_sparks_is_refused(folder):
    with pytest.raises(ConfigError, match=r"no option 'max_files_per_batch': did you mean max_files_per_trigger\?"):
        files(folder, max_files_per_batch=1)
    with pytest.raises(
        ConfigError, match=r"no option 'name_of_the_owner': there are format, schema, .*like maxFileAge"
    ):
        files(folder, name_of_the_owner="ada")


@pytest.mark.parametrize(
    ("given", "meant"),
    [("fromat", "format"), ("shema", "schema"), ("haeder", "header"), ("maxFilesPerTriger", "maxFilesPerTrigger")],
)
def test_a_misspelt_option_is_refused_with_the_one_that_was_meant(folder, given, meant):
    with pytest.raises(ConfigError, match=rf"no option '{given}': did you mean {meant}\?"):
        files(folder, **{given: "1"})


@pytest.mark.parametrize("name", ["HEADER", "pathGlobFilter", "rowTag", "ofAnotherFormat"])
def test_options_of_spark_and_of_other_formats_are_taken(folder, name):
    assert files(folder, "json", **{name: "1"}).options == {name: "1"}


@pytest.mark.parametrize("name", ["cleanSource", "cleansource"])
def test_clean_source_is_refused(folder, name):
    with pytest.raises(ConfigError, match="a batch that runs again would lack them"):
        files(folder, "json", **{name: "delete"})


def test_a_missing_folder_is_refused(spark, tmp_path):
    with pytest.raises(ConfigError, match=rf"there is no folder {tmp_path}/nowhere"):
        files(tmp_path / "nowhere", "json", schema="n long").load(spark)


def test_a_file_in_place_of_a_folder_is_refused(spark, folder):
    write_json(folder / "a.json", {"n": 1})
    with pytest.raises(ConfigError, match="is a file"):
        files(folder / "a.json", "json", schema="n long").load(spark)


def test_nothing_to_learn_the_columns_from(spark, folder):
    with pytest.raises(ConfigError, match=r"no parquet file .* yet"):
        files(folder, "parquet").load(spark)
    with pytest.raises(ConfigError, match=r"json files .* do not tell their columns"):
        files(folder, "json").load(spark)


@pytest.mark.parametrize("schema", ["user strng", "", 7])
def test_a_schema_that_is_none(spark, folder, schema):
    with pytest.raises(ConfigError, match="schema"):
        files(folder, "json", schema=schema).load(spark)


def test_a_format_that_spark_does_not_find_is_told_with_those_that_there_are(spark, folder):
    with pytest.raises(ConfigError, match=r"Spark has no reader for the format 'klingon'\. There are arrow, avro"):
        files(folder, "klingon", schema="n long").load(spark)


@pytest.mark.parametrize(
    ("format", "meant"), [("jsn", "json"), ("JSONL", "json"), ("parket", "parquet"), ("tsv", "csv")]
)
def test_a_misspelt_format_is_refused_with_the_one_that_was_meant(folder, format, meant):
    source = files(folder, format, schema="n long")
    for check in (source.check, source.check_program, files(folder / "later", format, schema="n long").check_program):
        with pytest.raises(ConfigError, match=f'there is no format {format!r}; did you mean format="{meant}"'):
            check()


def test_files_of_lines_are_refused_for_a_format_that_nobody_knows(folder):
    (folder / "1.json").touch()
    with pytest.raises(ConfigError, match=r'reads klingon files .* 1\.json is json by its name; give format="json"'):
        files(folder, "klingon", schema="n long").check()
    files(folder, "org.example.Klingon", schema="n long").check()


# The format by the names of the files.


def checked(source):
    source.check()
    return source.resolved.format


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize(
    ("name", "format"),
    [
        ("a.parquet", "parquet"),
        ("part-0.snappy.parquet", "parquet"),
        ("a.json", "json"),
        ("a.jsonl.gz", "json"),
        ("a.NDJSON", "json"),
        ("a.csv.zst", "csv"),
        ("a.txt", "text"),
    ],
)
def test_the_format_follows_from_the_names_of_the_files(folder, name, format, ordered):
    (folder / name).touch()
    (folder / "_SUCCESS").touch()
    (folder / ".a.csv.crc").touch()
    schema = None if format in ("parquet", "text") else "n long"
    assert checked(files(folder, schema=schema, ordered=ordered)) == format


def test_the_format_follows_from_files_in_partitions_and_from_those_that_spark_reads_alone(folder):
    (folder / "day=1").mkdir()
    (folder / "day=1" / "a.orc").touch()
    (folder / "other").mkdir()
    (folder / "other" / "b.csv").touch()
    (folder / "c.avro").touch()
    assert checked(files(folder, pathGlobFilter="*.orc")) == "orc"
    assert checked(files(f"{folder}/*.avro")) == "avro"
    with pytest.raises(ConfigError, match=r"several formats: avro \(c.avro\), csv \(b.csv\), orc \(a.orc\)"):
        checked(files(folder, recursiveFileLookup=True))


@pytest.mark.parametrize("ordered", [False, True])
def test_files_of_another_format_than_the_one_given_are_refused_with_both_named(folder, ordered):
    write_json(folder / "a.json", {"n": 1})
    with pytest.raises(ConfigError, match=rf"reads parquet files in {folder}, and a.json is json by its name"):
        files(folder, "parquet", ordered=ordered).check()


def test_a_mismatch_is_refused_before_spark_starts(folder, monkeypatch):
    def no_spark(*arguments):
        raise AssertionError("Spark was started")

    monkeypatch.setattr("tidewheel._spark.driver.session", no_spark)
    write_json(folder / "a.json", {"n": 1})
    job = Job("mismatch", state="memory:mismatch")
    job.source("in", files(folder, "parquet", schema="n long")).sink("out", discard())
    with pytest.raises(ConfigError, match=r"a.json is json by its name"):
        job.run(bounded=True)


@pytest.mark.parametrize(
    ("name", "format"),
    [
        ("a.json", "text"),
        ("a.txt", "json"),
        ("a.tsv", "csv"),
        ("a.log", "json"),
        ("a.json", "xml"),
        ("a.json", "JSON"),
        ("a.parquet", "delta"),
    ],
)
def test_a_format_that_is_given_reads_files_that_may_be_of_it(folder, name, format):
    (folder / name).touch()
    assert checked(files(folder, format, schema="value string")) == format


@pytest.mark.parametrize("name", ["a.json", "a.csv"])
def test_files_that_do_not_tell_their_columns_are_refused_before_spark_starts(folder, name):
    (folder / name).touch()
    with pytest.raises(ConfigError, match=r"do not tell their columns; give schema='user string, .* a dataclass"):
        files(folder).check()


@pytest.mark.parametrize("ordered", [False, True])
def test_a_folder_that_tells_no_format_needs_one(folder, ordered):
    source = files(folder, ordered=ordered)
    with pytest.raises(ConfigError, match=r"is empty yet, .* give format="):
        source.check()
    (folder / "clicks").touch()
    with pytest.raises(ConfigError, match=r"the name of clicks in .* tells no format; give format="):
        source.check()
    with pytest.raises(ConfigError, match=r"s3://bucket/in .*; give format="):
        files("s3://bucket/in").check()


# In the order of names.


def test_ordered_reads_one_file_per_batch_by_name_not_by_age(reading, folder):
    for age, name in enumerate(["b", "a"]):
        write_json(folder / f"{name}.json", *({"at": f"{name}{line}"} for line in range(3)))
        os.utime(folder / f"{name}.json", (age, age))
    write_json(folder / "_hidden.json", {"at": "no"})
    source = files(folder, "json", schema="at string", ordered=True)
    expected = [[{"at": f"{name}{line}"} for line in range(3)] for name in "ab"]
    assert reading.run(source) == expected
    reading.forget_commit(1)
    del reading.batches[1]
    write_json(folder / "c.json", {"at": "c0"})
    assert reading.run(source) == [expected[1], [{"at": "c0"}]]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"format": "orc"}, "ordered=True reads arrow, parquet, json, csv, text"),
        ({"format": "json", "max_files_per_trigger": 5}, "one file per batch"),
        ({"format": "json", "multiLine": True}, "does not know the option multiLine"),
        ({"format": "csv", "quote": "'"}, "header, sep"),
        ({"path": "s3://bucket/in"}, "local folders"),
    ],
)
def test_what_ordered_cannot_promise_is_refused(folder, arguments, text):
    with pytest.raises(ConfigError, match=text):
        files(**{"path": folder, **arguments}, ordered=True)


def test_ordered_with_a_missing_folder(spark, tmp_path):
    with pytest.raises(ConfigError, match=r"nowhere.*No such file"):
        files(tmp_path / "nowhere", "text", ordered=True).load(spark)


def read(folder, name, form, schema, **options):
    reader = OrderedReader(str(folder), form, schema, **options)
    parts = reader.partitions({"file": "", "read": 0}, {"file": name, "read": 1})
    return [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]


SCHEMA = pa.schema([("n", pa.int64()), ("s", pa.string())])


def test_ordered_parquet_takes_the_columns_it_has(folder):
    parquet.write_table(pa.table({"other": [1], "n": pa.array([7], pa.int32())}), folder / "a")
    assert read(folder, "a", "parquet", SCHEMA) == [{"n": 7, "s": None}]


@pytest.mark.parametrize("form", ["json", "csv"])
@pytest.mark.parametrize("ending", ["", ".gz"])
def test_ordered_lines_of_any_length(folder, form, ending):
    rows = [
        {"n": n, "s": "x" * size} for n, size in enumerate([1, 2**20 - 30, 3 * 2**20, 2, 2**21, 2**20 + 1, 5 * 2**20])
    ]
    lines = [json.dumps(row) if form == "json" else f"{row['n']},{row['s']}" for row in rows]
    text = "\n".join(lines).encode()
    (folder / f"a{ending}").write_bytes(gzip.compress(text, 1) if ending else text)
    assert read(folder, f"a{ending}", form, SCHEMA) == rows


@pytest.mark.parametrize(("header", "text"), [(True, "s;n\nx;1\n"), (False, "1;x\n")])
def test_ordered_csv(folder, header, text):
    (folder / "a").write_text(text)
    assert read(folder, "a", "csv", SCHEMA, header=header, separator=";") == [{"n": 1, "s": "x"}]


def test_ordered_csv_refuses_a_first_line_that_is_not_what_the_program_says(folder):
    (folder / "a").write_text("n,t\n1,x\n")
    with pytest.raises(
        TidewheelError, match=r"/a names the columns n, t, and the source reads 's', which is not among"
    ):
        read(folder, "a", "csv", SCHEMA, header=True)
    texts = pa.schema([("n", pa.string()), ("s", pa.string())])
    (folder / "a").write_text("N,s\n1,x\n")
    with pytest.raises(TidewheelError, match=r"/a is the names of the columns, N,s.*header=True"):
        read(folder, "a", "csv", texts)
    assert len(read(folder, "a", "csv", texts, header=False)) == 2


def test_ordered_text(folder):
    (folder / "a").write_bytes("ä\r\n\nlast".encode())
    lines = read(folder, "a", "text", pa.schema([("value", pa.string())]))
    assert [line["value"] for line in lines] == ["ä", "", "last"]


@pytest.mark.parametrize("form", ["json", "csv", "text"])
def test_ordered_empty_files(folder, form):
    (folder / "a").write_text("")
    assert read(folder, "a", form, SCHEMA) == []


@pytest.mark.parametrize(("form", "content"), [("json", "{nonsense\n"), ("parquet", "x"), ("csv", "a,b,c,d\n")])
def test_a_file_that_cannot_be_read_is_named(folder, form, content):
    (folder / "a").write_text(content)
    with pytest.raises(Exception, match=rf"{folder}/a cannot be read as {form}"):
        read(folder, "a", form, SCHEMA)


def test_a_file_that_is_gone_is_named(folder):
    with pytest.raises(Exception, match=rf"{folder}/a is gone"):
        read(folder, "a", "json", SCHEMA)


@given(st.lists(st.sets(st.text("abc", min_size=1, max_size=3), min_size=1), min_size=1, max_size=5))
def test_every_file_is_read_once_in_order_or_its_lateness_noticed(arrivals):
    there: set[str] = set()
    at, seen = Position(), []
    for names in arrivals:
        late = {name for name in names - there if name <= at.file}
        there |= names
        if late:
            with pytest.raises(StateError, match="too late"):
                next_file(list(there), at)
            return
        while (following := next_file(list(there), at)) != at:
            at = following
            seen.append(at.file)
        assert seen == sorted(there)


def test_files_that_were_read_may_be_removed():
    assert next_file(["c"], Position("b", 2)) == Position("c", 3)


def test_nothing_behind_the_last_one_is_read_when_all_there_is_is_read():
    assert next_file(["a", "b"], Position("a", 1), last="a") == Position("a", 1)


@pytest.mark.parametrize("ordered", [False, True])
def test_a_first_line_of_column_names_is_not_taken_for_a_record(tmp_path, ordered):
    (tmp_path / "a.csv").write_text("user,country\nada,GB\n")

    def check(**options):
        files(tmp_path, schema="user string, country string", ordered=ordered, **options).check()

    with pytest.raises(ConfigError, match=r"a\.csv is the names of the columns, user,country.*header=True"):
        check()
    check(header=True)
    check(header=False)
    (tmp_path / "a.csv").write_text("ada,GB\n")
    check()
    (tmp_path / "c.csv").write_text('"User","Country"\nada,GB\n')
    with pytest.raises(ConfigError, match=r"c\.csv is the names of the columns"):
        check()
