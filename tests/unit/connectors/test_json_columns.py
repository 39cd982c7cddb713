"""A declared column that no record of a JSON file has is reported before Spark starts: all its values would be null."""

from __future__ import annotations

import gzip

import pytest

from tidewheel import Job
from tidewheel.sinks import discard
from tidewheel.sources import files

CENTS = b'{"user": "ada", "cents": 3}\n'


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "1.json").write_bytes(CENTS * 3)
    (tmp_path / "2.json").write_bytes(b'{"user": "ada", "cent": 3}\n')
    return tmp_path


def test_a_misspelt_column_is_reported_with_the_nearest_name(folder):
    source = files(folder, schema="user string, cent long")
    source.check()
    assert source.warnings() == [
        f"none of the first 3 records of {folder}/1.json has a column 'cent', which the source declares: it is null. "
        "They have user, cents; did you mean 'cents'?"
    ]


def test_a_column_that_any_record_has_is_not_reported(folder):
    (folder / "1.json").write_bytes(CENTS + b'{"cent": 1}\nno record\n\n')
    assert files(folder, schema="user string, cent long, cents long").warnings() == []


def test_files_without_records_are_skipped_for_the_next_one(folder):
    (folder / "0.json").write_bytes(b"")
    (folder / "00.json").write_bytes(b"[1]\nno record")
    (folder / "1.json").unlink()
    assert files(folder, schema="user string, cent long").warnings() == []
    [warning] = files(folder, schema="user string, amount long").warnings()
    assert warning.startswith(f"the first record of {folder}/2.json has no column 'amount'")
    assert "did you mean" not in warning


def test_compressed_files_are_looked_at(tmp_path):
    (tmp_path / "1.json.gz").write_bytes(gzip.compress(CENTS))
    assert len(files(tmp_path, schema="cent long").warnings()) == 1


def test_columns_that_records_do_not_show_are_not_reported(folder):
    assert files(folder, schema="user string, cent long", multiLine=True).warnings() == []


def test_other_formats_have_columns_by_name_or_position(tmp_path):
    (tmp_path / "1.csv").write_text("ada,3\n")
    assert files(tmp_path, schema="user string, cent long").warnings() == []


def test_a_run_reports_it_before_spark_starts(folder, monkeypatch, caplog):
    def no_spark(*arguments):
        raise RuntimeError("Spark would start now")

    monkeypatch.setattr("tidewheel._spark.driver.session", no_spark)
    job = Job("misspelt", state="memory:misspelt")
    job.source("in", files(folder, schema="user string, cent long")).sink("out", discard())
    with pytest.raises(RuntimeError, match="Spark would start now"):
        job.run(until="end")
    assert "job 'misspelt': source 'in': none of the first 3 records" in caplog.text
