"""What a program tells of who reads its sources, before Spark is there."""

from __future__ import annotations

import pytest

from tidewheel import Job
from tidewheel._operators.readers import readers
from tidewheel.errors import ConfigError
from tidewheel.sinks import discard
from tidewheel.sources import dataframe, files, iterable, kafka, rate

CLICKS = "user string, cents long"


def told(**sources) -> dict[str, str]:
    job = Job("clicks", state="memory:clicks")
    for name, source in sources.items():
        job.source(name, source).sink(f"{name}-out", discard())
    return readers(job.graph)


@pytest.mark.parametrize("format", ["parquet", "json"])
def test_tasks_read_what_arrow_reads_as_spark_does(tmp_path, format):
    assert told(clicks=files(tmp_path, format, schema=CLICKS), more=iterable([1])) == {
        "clicks": "arrow",
        "more": "arrow",
    }


def test_logs_are_read_by_tasks():
    assert told(k=kafka("localhost:9092", "clicks")) == {"k": "arrow"}


def test_the_reason_for_spark_is_told(tmp_path):
    def why(**arguments) -> str:
        return told(clicks=files(tmp_path, **{"format": "json", "schema": CLICKS, **arguments}))["clicks"]

    assert why(mode="DROPMALFORMED") == "spark, because the option mode is Spark's own"
    assert why(reader="spark") == "spark, because the program asks for Spark's reader"
    nested = (
        "spark, because the JSON column 'tags' is neither text, an int, a long, a double, a boolean, a time nor a day"
    )
    assert why(schema="user string, tags array<string>") == nested
    assert why(format="avro") == "spark, because avro files are Spark's to read"
    assert why(format=None) == "not known yet"
    (tmp_path / "day=7").mkdir()
    assert why() == "spark, because the folder day=7 is a column"


def test_what_is_not_known_yet_is_told_as_that(tmp_path):
    later = files(tmp_path / "later", schema=CLICKS)
    now = {"format": "parquet", "schema": CLICKS}
    assert told(later=later, now=files(tmp_path, **now)) == {
        "later": "not known yet",
        "now": "arrow",
    }
    assert told(later=later, now=files(tmp_path, **now, reader="spark")) == {
        "later": "not known yet",
        "now": "spark, because the program asks for Spark's reader",
    }


def test_a_program_that_asks_for_sparks_reader_gets_it_whatever_the_files_will_be(tmp_path):
    later = files(tmp_path / "later", schema=CLICKS, reader="spark")
    later.check_program()
    assert told(clicks=later)["clicks"] == "spark, because the program asks for Spark's reader"


def test_arrow_files_that_only_spark_may_read_are_refused_before_they_are_there(tmp_path):
    with pytest.raises(
        ConfigError, match='Spark has no reader for Arrow files, tasks read them; leave reader="spark" out'
    ):
        files(tmp_path / "later", "arrow", reader="spark").check_program()


def test_a_dataframe_is_read_by_spark_and_the_other_sources_by_tasks(tmp_path):
    both = told(clicks=files(tmp_path, "parquet", schema=CLICKS), frame=dataframe(lambda spark: None), pace=rate(1))
    assert both == {"clicks": "arrow", "frame": "spark, because it is a DataFrame", "pace": "arrow"}


def test_the_environment_chooses_for_all_sources(tmp_path, monkeypatch):
    sources = {"clicks": files(tmp_path, "parquet", schema=CLICKS), "more": iterable([1])}
    monkeypatch.setenv("TIDEWHEEL_READER", "spark")
    assert set(told(**sources).values()) == {"spark, because TIDEWHEEL_READER=spark is set"}
    monkeypatch.setenv("TIDEWHEEL_READER", "arrow")
    assert set(told(**sources).values()) == {"arrow"}
    with pytest.raises(ConfigError, match="only Spark can read source 'frame': it is a DataFrame"):
        told(**sources, frame=dataframe(lambda spark: None))
    monkeypatch.setenv("TIDEWHEEL_READER", "rows")
    with pytest.raises(ConfigError, match="TIDEWHEEL_READER is auto, arrow or spark, not 'rows'"):
        told(**sources)
