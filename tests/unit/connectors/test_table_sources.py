"""The rows of a reference table come from files, queries, Delta tables, DataFrames and functions."""

from __future__ import annotations

import os
import shutil
import sqlite3

import deltalake
import pandas as pd
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from tidewheel import Job, tables
from tidewheel.errors import ConfigError, GraphError, StepError, TidewheelError

ROWS = [{"sku": "milk", "cents": 90}, {"sku": "tea", "cents": 300}]
TABLE = pa.Table.from_pylist(ROWS)


def loaded(source):
    return Job("shop").table("prices", source, key="sku").source.load(None).to_pylist()


def test_a_parquet_file_and_a_folder_of_them(tmp_path):
    (tmp_path / "day=1").mkdir()
    pq.write_table(TABLE.slice(0, 1), tmp_path / "day=1" / "a.parquet")
    pq.write_table(TABLE.slice(1), tmp_path / "b.parquet")
    assert loaded(tmp_path / "b.parquet") == ROWS[1:]
    assert sorted(loaded(str(tmp_path)), key=lambda row: row["sku"]) == ROWS


def test_a_csv_file_with_inferred_and_declared_types(tmp_path):
    path = tmp_path / "prices.csv"
    pa_csv.write_csv(pa.table({"sku": ["007", "008"], "cents": [90, None]}), path)
    assert loaded(path) == [{"sku": 7, "cents": 90}, {"sku": 8, "cents": None}]
    assert loaded(tables.files(path, schema="sku string"))[0] == {"sku": "007", "cents": 90}


def test_a_missing_file_and_one_of_another_format_are_named(tmp_path):
    with pytest.raises(TidewheelError, match=r"there is no file at .*nothing\.parquet"):
        loaded(tmp_path / "nothing.parquet")
    (tmp_path / "prices.xlsx").write_bytes(b"")
    with pytest.raises(ConfigError, match=r"the format of .*prices\.xlsx does not follow from its name"):
        loaded(tmp_path / "prices.xlsx")
    (tmp_path / "bad.parquet").write_bytes(b"this is no Parquet")
    with pytest.raises(StepError, match=r"bad\.parquet cannot be read as a parquet file"):
        loaded(tmp_path / "bad.parquet")
    with pytest.raises(ConfigError, match="not 'xml'"):
        tables.files("prices/", "xml")


def test_files_that_changed_have_another_fingerprint(tmp_path):
    path = tmp_path / "prices.parquet"
    pq.write_table(TABLE, path)
    source = tables.files(path)
    before = source.fingerprint()
    assert source.fingerprint() == before
    pq.write_table(TABLE.slice(1), path)
    os.utime(path, (1, 1))
    assert source.fingerprint() != before


def test_a_query_of_any_database_driver(tmp_path):
    with sqlite3.connect(tmp_path / "shop.db") as database:
        database.execute("CREATE TABLE prices (sku TEXT, cents INT)")
        database.executemany("INSERT INTO prices VALUES (:sku, :cents)", ROWS)

    def query(text):
        return tables.sql(text, lambda: sqlite3.connect(tmp_path / "shop.db"))

    assert loaded(query("SELECT sku, cents FROM prices ORDER BY sku")) == ROWS
    assert loaded(query("SELECT sku, cents FROM prices WHERE cents > 1000")) == []
    with pytest.raises(ConfigError, match="the query returns no rows"):
        loaded(query("CREATE TABLE other (n INT)"))
    with pytest.raises(ConfigError, match="the column 'mixed' do not fit into a column"):
        loaded(query("SELECT sku, CASE sku WHEN 'tea' THEN 'x' ELSE 1 END AS mixed FROM prices ORDER BY sku"))


def test_a_connection_is_a_function_or_a_url_whose_password_is_not_shown():
    assert "secret" not in tables.sql("SELECT 1", "postgresql://me:secret@db/shop").describe()
    with pytest.raises(ConfigError, match="such as postgresql"):
        tables.sql("SELECT 1", "mysql://db/shop")


def test_a_delta_table_and_its_versions(tmp_path):
    deltalake.write_deltalake(str(tmp_path), TABLE)
    source = tables.delta(str(tmp_path))
    assert sorted(loaded(source), key=lambda row: row["sku"]) == ROWS
    assert sorted(loaded(str(tmp_path)), key=lambda row: row["sku"]) == ROWS
    before = source.fingerprint()
    deltalake.write_deltalake(str(tmp_path), TABLE.slice(1), mode="overwrite")
    assert source.fingerprint() != before
    assert loaded(source) == ROWS[1:]
    with pytest.raises(TidewheelError, match="there is no Delta table at"):
        loaded(tables.delta(str(tmp_path / "none")))


def test_a_delta_table_that_was_written_anew_has_changed(tmp_path):
    source = tables.delta(str(tmp_path / "table"))
    fingerprints = set()
    for rows in (TABLE, TABLE.slice(1)):
        deltalake.write_deltalake(str(tmp_path / "table"), rows)
        fingerprints.add(source.fingerprint())
        shutil.rmtree(tmp_path / "table")
    assert len(fingerprints) == 2


@pytest.mark.parametrize("rows", [ROWS, TABLE, TABLE.to_batches()[0], pd.DataFrame(ROWS)])
def test_dataframes_arrow_tables_lists_and_functions_give_tables(rows):
    assert loaded(rows) == ROWS
    assert loaded(lambda: rows) == ROWS


def test_a_value_other_than_rows_is_refused():
    for rows, said in (
        ({"sku": 1}, "not dict"),
        (7, "not int"),
        ([], "columns of an empty list are unknown"),
        ([{"a": 1}, 7], "fit"),
    ):
        with pytest.raises(ConfigError, match=said):
            loaded(lambda rows=rows: rows)


def test_a_function_of_the_session_needs_spark():
    with pytest.raises(ConfigError, match="takes a Spark session, and a run in memory has none"):
        loaded(lambda spark: spark.table("prices"))


def test_columns_with_the_same_name_are_refused():
    twice = pa.Table.from_arrays([pa.array(["a"]), pa.array([1]), pa.array([2])], ["sku", "n", "n"])
    table = Job("shop").table("prices", twice, key="sku")
    with pytest.raises(ConfigError, match="the column 'n' comes twice"):
        table.checked(table.source.load(None))


def test_names_keys_and_refresh_are_checked():
    job = Job("shop")
    for options, said in (
        ({"name": "a b"}, "'a b' does not fit"),
        ({"key": []}, "key= is the name of a column"),
        ({"refresh": "often"}, "often"),
    ):
        with pytest.raises((GraphError, ConfigError), match=said):
            job.table(**{"name": "prices", "source": ROWS, "key": "sku", **options})
