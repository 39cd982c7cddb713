"""A line that is not a record is a dead letter with its text and place; without dead letters it stops the job."""

from __future__ import annotations

import gzip
import json

import pyarrow as pa
import pytest

from tidewheel import Job, RunOptions
from tidewheel._connectors.bad_lines import BAD_LINE, BadLine, parted, with_bad_lines
from tidewheel.errors import StepError, TidewheelError
from tidewheel.sinks import collect
from tidewheel.sources import files, iterable
from tidewheel.testing import MemoryRun

GOOD = ['{"user": "ada", "cents": 3}', '{"user": "bob"}', '{"user": "eve", "cents": 5, "more": [1]}']
BAD = ['{"user": "ada", "cents": 4', "no JSON at all", '{"user": "ada", "cents": "three"}']


def job(source, out, dead=None, **state):
    made = Job("lines", n_shards=4, **state)
    made.source("in", source).key_by("by", "user", value="cents").sink("out", out)
    if dead is not None:
        made.dead_letter("dead", dead)
    return made


def test_a_bad_line_is_a_dead_letter_with_its_text(spark, tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_text("\n".join([*GOOD, *BAD]) + "\n")
    (tmp_path / "in" / "b.json").write_text("\n".join(GOOD) + "\n")
    out, dead = collect(), collect()
    source = files(tmp_path / "in", "json", schema="user string, cents long")
    made = job(source, out, dead, state=f"file://{tmp_path}/state")
    made.run(until="end", parallelism=1, options=RunOptions(spark=spark, local=f"{tmp_path}/local"))
    assert sorted(json.loads(row["record"]) for row in dead.records) == sorted(BAD)
    assert {row["step"] for row in dead.records} == {"in"}
    places = [row["error"].partition(": ")[0] for row in dead.records]
    assert places == [f"line {line} of {tmp_path}/in/a.json" for line in (4, 5)] + [
        f"line 6 of {tmp_path}/in/a.json, column 'cents'"
    ]
    found = sorted((row["user"], row["cents"]) for row in out.records if row["cents"] is not None)
    assert found == [("ada", 3), ("ada", 3), ("eve", 5), ("eve", 5)]
    assert [row["user"] for row in out.records if row["cents"] is None] == ["bob", "bob"]


def test_a_bad_line_of_a_csv_file_is_one_too(spark, tmp_path):
    good, bad = ["ada,3", "bob,", '"eve, the first",5'], ["ada,three", "ada", "ada,4,5"]
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("\n".join(["user,cents", *good, *bad]) + "\n")
    out, dead = collect(), collect()
    source = files(tmp_path / "in", schema="user string, cents long", header=True)
    made = job(source, out, dead, state=f"file://{tmp_path}/state")
    made.run(until="end", parallelism=1, options=RunOptions(spark=spark, local=f"{tmp_path}/local"))
    assert sorted(json.loads(row["record"]) for row in dead.records) == sorted(bad)
    found = sorted((row["user"], row["cents"]) for row in out.records)
    assert found == [("ada", 3), ("bob", None), ("eve, the first", 5)]


@pytest.mark.parametrize("schema", ["user string, cents string", "user string, cents long"])
def test_names_of_columns_in_any_file_are_no_record(spark, tmp_path, schema):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("ada,3\n")
    # What is compressed is not looked at before the run starts, and neither is what comes afterwards.
    (tmp_path / "in" / "b.csv.gz").write_bytes(gzip.compress(b"User,cents\nbob,4\n"))
    out, dead = collect(), collect()
    made = job(files(tmp_path / "in", schema=schema), out, dead, state=f"file://{tmp_path}/state")
    made.run(until="end", parallelism=1, options=RunOptions(spark=spark, local=f"{tmp_path}/local"))
    assert sorted((row["user"], int(row["cents"])) for row in out.records) == [("ada", 3), ("bob", 4)]
    assert [json.loads(row["record"]) for row in dead.records] == ["User,cents"]
    assert f"line 1 of {tmp_path}/in/b.csv.gz: is the names of the columns, User,cents" in dead.records[0]["error"]
    assert "give header=True" in dead.records[0]["error"]


def test_a_csv_file_whose_first_line_lacks_a_column_stops_the_job(spark, tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("cents,user\n3,ada\n")
    (tmp_path / "in" / "b.csv").write_text("amount,user\n4,bob\n")
    source = files(tmp_path / "in", schema="user string, cents long", header=True)
    made = job(source, out := collect(), collect(), state=f"file://{tmp_path}/state")
    with pytest.raises(TidewheelError, match=r"b\.csv names the columns amount, user, and the source reads 'cents'"):
        made.run(until="end", parallelism=1, options=RunOptions(spark=spark, local=f"{tmp_path}/local"))
    assert out.records == []


def test_without_dead_letters_the_error_has_line_file_and_a_way_out():
    made = job(iterable([]), collect(), state="memory:bad-lines")
    bad = {"user": None, "cents": None, BAD_LINE: json.dumps(["/data/a.json", 7, "cents", "5 is too much", "no JSON"])}
    with MemoryRun(made) as run, pytest.raises(StepError) as failed:
        run.batch({"in": [{"user": "ada", "cents": 3, BAD_LINE: None}, bad]})
    assert str(failed.value).startswith(
        "step 'in', record 'no JSON': line 7 of /data/a.json, column 'cents': 5 is too much"
    )
    assert "job.dead_letter(name, sink)" in str(failed.value)


def test_records_do_not_have_the_column():
    columns = pa.RecordBatch.from_pylist([{"a": 1}, {"a": 2}])
    line = BadLine("s3://b/f", 3, None, "no JSON", "x\ny")
    records, lines = parted(with_bad_lines(columns, [line]))
    assert (records.to_pylist(), lines) == ([{"a": 1}, {"a": 2}], [line])
    assert parted(with_bad_lines(columns, [])) == (columns, [])
