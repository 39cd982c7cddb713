"""files: the formats, columns, folders and options that it accepts, and those that it refuses before it reads anything."""

from __future__ import annotations

import dataclasses
import json

import pyarrow as pa
import pytest
from pyarrow import parquet

from tidewheel import Job
from tidewheel._values import shape_of
from tidewheel.errors import ConfigError
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


def columns(source) -> dict[str, str]:
    return {field.name: str(field.type) for field in source.open().schema}


def test_the_declared_type_is_the_schema(folder):
    assert columns(files(folder, "json").declared(shape_of(Click))) == {"user": "string", "amount": "int64"}


def test_a_schema_that_is_given_wins_over_the_declared_type(folder):
    assert columns(files(folder, "json", schema="amount int").declared(shape_of(Click))) == {"amount": "int32"}


def test_a_schema_of_spark_is_taken(folder):
    from pyspark.sql.types import LongType, StructField, StructType

    assert columns(files(folder, "json", schema=StructType([StructField("n", LongType())]))) == {"n": "int64"}


def test_ddl_with_types_inside_of_types(folder):
    schema = "a array<struct<b: decimal(5,2), c: map<string, date>>> NOT NULL COMMENT 'x', `d e` timestamp"
    found = files(folder, "json", schema=schema).open().schema
    assert found.field("a").type == pa.list_(
        pa.field("element", pa.struct([("b", pa.decimal128(5, 2)), ("c", pa.map_(pa.string(), pa.date32()))]))
    )
    assert not found.field("a").nullable
    assert found.field("d e").type == pa.timestamp("us", "UTC")


def test_parquet_files_have_their_own_columns(folder):
    parquet.write_table(pa.table({"n": [1, 2]}), folder / "a.parquet")
    assert columns(files(folder)) == {"n": "int64"}


def test_text_is_one_column(folder):
    assert columns(files(folder, "text")) == {"value": "string"}
    with pytest.raises(ConfigError, match="text files have one column"):
        files(folder, "text", schema="n long").open()


def test_a_csv_column_that_no_text_can_be_is_refused(folder):
    with pytest.raises(ConfigError, match="the CSV column 'raw' is declared as binary"):
        files(folder, "csv", schema="user string, raw binary").check()


def test_an_option_that_is_neither_ours_nor_sparks_is_refused(folder):
    with pytest.raises(ConfigError, match=r"no option 'max_files_per_batch': did you mean max_files_per_trigger\?"):
        files(folder, max_files_per_batch=1)
    with pytest.raises(ConfigError, match=r"no option 'name_of_the_owner': there are format, schema, .*maxFileAge"):
        files(folder, name_of_the_owner="ada")


@pytest.mark.parametrize(
    ("given", "meant"),
    [("fromat", "format"), ("shema", "schema"), ("haeder", "header"), ("maxFilesPerTriger", "maxFilesPerTrigger")],
)
def test_a_misspelt_option_is_refused_with_the_one_that_was_meant(folder, given, meant):
    with pytest.raises(ConfigError, match=rf"no option '{given}': did you mean {meant}\?"):
        files(folder, **{given: "1"})


def test_a_missing_folder_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=rf"there is no folder {tmp_path}/nowhere"):
        files(tmp_path / "nowhere", "json", schema="n long").open()


def test_a_file_in_place_of_a_folder_is_refused(folder):
    write_json(folder / "a.json", {"n": 1})
    with pytest.raises(ConfigError, match="is a file"):
        files(folder / "a.json", "json", schema="n long").open()


def test_nothing_to_learn_the_columns_from(folder):
    with pytest.raises(ConfigError, match=r"no parquet file .* yet"):
        files(folder, "parquet").open()
    with pytest.raises(ConfigError, match=r"json files .* do not tell their columns"):
        files(folder, "json").open()


@pytest.mark.parametrize("schema", ["user strng", "", 7])
def test_a_schema_that_is_none(folder, schema):
    with pytest.raises(ConfigError, match="schema"):
        files(folder, "json", schema=schema).open()


def test_an_unknown_format_is_refused_with_the_known_ones(folder):
    with pytest.raises(ConfigError, match=r"there is no format 'klingon'\. There are arrow, avro.*sources\.dataframe"):
        files(folder, "klingon", schema="n long").open()


@pytest.mark.parametrize(
    ("format", "meant"), [("jsn", "json"), ("JSONL", "json"), ("parket", "parquet"), ("tsv", "csv")]
)
def test_a_misspelt_format_is_refused_with_the_one_that_was_meant(folder, format, meant):
    with pytest.raises(ConfigError, match=f'there is no format {format!r}; did you mean format="{meant}"'):
        files(folder, format, schema="n long")


# The format by the names of the files.


def checked(source):
    source.check()
    return source.resolved.format


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
def test_the_format_follows_from_the_names_of_the_files(folder, name, format):
    (folder / name).touch()
    (folder / "_SUCCESS").touch()
    (folder / ".a.csv.crc").touch()
    schema = None if format in ("parquet", "text") else "n long"
    assert checked(files(folder, schema=schema)) == format


def test_the_format_follows_from_partition_files_and_the_glob(folder):
    (folder / "day=1").mkdir()
    (folder / "day=1" / "a.orc").touch()
    (folder / "other").mkdir()
    (folder / "other" / "b.csv").touch()
    (folder / "c.avro").touch()
    assert checked(files(folder, pathGlobFilter="*.orc")) == "orc"
    assert checked(files(f"{folder}/*.avro")) == "avro"
    with pytest.raises(ConfigError, match=r"several formats: avro \(c.avro\), csv \(b.csv\), orc \(a.orc\)"):
        checked(files(folder, recursiveFileLookup=True))


def test_files_of_another_format_than_given_are_refused(folder):
    write_json(folder / "a.json", {"n": 1})
    with pytest.raises(ConfigError, match=rf"reads parquet files in {folder}, and a.json is json by its name"):
        files(folder, "parquet").check()


def test_a_mismatch_is_refused_before_spark_starts(folder, monkeypatch):
    def no_spark(*arguments):
        raise AssertionError("Spark was started")

    monkeypatch.setattr("tidewheel._spark.driver.session", no_spark)
    write_json(folder / "a.json", {"n": 1})
    job = Job("mismatch", state="memory:mismatch")
    job.source("in", files(folder, "parquet", schema="n long")).sink("out", discard())
    with pytest.raises(ConfigError, match=r"a.json is json by its name"):
        job.run(until="end")


@pytest.mark.parametrize(
    ("name", "format"),
    [
        ("a.json", "text"),
        ("a.txt", "json"),
        ("a.tsv", "csv"),
        ("a.log", "json"),
    ],
)
def test_a_format_that_is_given_reads_files_that_may_be_of_it(folder, name, format):
    (folder / name).touch()
    assert checked(files(folder, format, schema="value string")) == format


@pytest.mark.parametrize("name", ["a.json", "a.csv"])
def test_files_without_known_columns_are_refused_before_spark_starts(folder, name):
    (folder / name).touch()
    with pytest.raises(ConfigError, match=r"do not tell their columns; give schema='user string, .* a dataclass"):
        files(folder).check()


def test_a_folder_without_a_recognisable_format_needs_one(folder):
    source = files(folder)
    with pytest.raises(ConfigError, match=r"is still empty, .* give format="):
        source.check()
    (folder / "clicks").touch()
    with pytest.raises(ConfigError, match=r"the format of clicks in .* does not follow from its name; give format="):
        source.check()


def test_a_first_line_of_column_names_is_no_record(tmp_path):
    (tmp_path / "a.csv").write_text("user,country\nada,GB\n")

    def check(**options):
        files(tmp_path, schema="user string, country string", **options).check()

    with pytest.raises(ConfigError, match=r"a\.csv is the names of the columns, user,country.*header=True"):
        check()
    check(header=True)
    check(header=False)
    (tmp_path / "a.csv").write_text("ada,GB\n")
    check()
    (tmp_path / "c.csv").write_text('"User","Country"\nada,GB\n')
    with pytest.raises(ConfigError, match=r"c\.csv is the names of the columns"):
        check()
