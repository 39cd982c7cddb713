"""State that Spark 4.3 has written, read with Spark's `statestore` reader. `checkpoints` has one folder for each operator."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from tidewheel._cli import app
from tidewheel._imports.migration import SparkState
from tidewheel._imports.spark_state import SparkOperator, operators, states, unexpired
from tidewheel._spark.session import session
from tidewheel.errors import StateError

CHECKPOINTS = Path(__file__).parent / "checkpoints"
MS = 1_000_000
EXPIRES, FIRES = 1795022605538 * MS, 1795029005538 * MS


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    return session("local[1]")


def checkpoint(name: str, folder: Path) -> str:
    """Copy a checkpoint; Spark stores the absolute path of a schema in it."""
    copied = shutil.copytree(CHECKPOINTS / name, folder / name)
    for file in copied.glob("state/*/_metadata/v2/*"):
        file.write_text(file.read_text().replace("file:/tmp/mig/w/cp-tws/", f"file:{copied}/"))
    return str(copied)


def states_of(spark: SparkSession, name: str) -> dict:
    (operator,) = operators(spark, str(CHECKPOINTS / name))
    return {old.key: old for old in states(spark, str(CHECKPOINTS / name), operator, 0, now=0)}


def test_variables_of_transform_with_state_are_values_lists_and_dicts(spark, tmp_path):
    values = {"total": {"n": 2, "sum": 4.0}, "recent": [1.0, 3.0], "kinds": {"k": 1, "l": 1}}
    expires = {"last": EXPIRES, "tm": {"k": EXPIRES, "l": EXPIRES}}
    found = states_of(spark, checkpoint("transform_with_state", tmp_path))
    assert found["a"] == SparkState("a", {**values, "last": "z", "tm": {"k": 1, "l": 1}}, (FIRES,), expires)
    assert found["b"].values["recent"] == [2.0]


def test_values_whose_ttl_has_expired_are_left_out():
    def cell(value: int, at: int) -> dict:
        return {"value": {"n": value}, "ttlExpirationMs": at}

    assert unexpired(cell(1, 8), 7) == (1, 8 * MS)
    assert unexpired(cell(1, 7), 7) == (None, 7 * MS)
    assert unexpired([cell(1, 7), cell(2, 8)], 7) == ([2], [8 * MS])
    assert unexpired([({"k": "a"}, cell(1, 7)), ({"k": "b"}, cell(2, 8))], 7) == ({"b": 2}, {"b": 8 * MS})
    assert unexpired([({"k": "a"}, cell(1, 7))], 7) == (None, {})


def test_the_timeout_of_a_group_is_a_timer(spark):
    found = states_of(spark, "apply_in_pandas_with_state")
    assert found["a"] == SparkState("a", {"n": 2}, (1795022903659 * MS,))
    assert found["a"].value == 2


def test_buffers_of_an_aggregation_have_distinct_names(spark):
    assert states_of(spark, "aggregation")["a"].values == {"sum": 4.0, "count": 2, "sum_2": 4.0, "count_2": 2}


def test_keys_that_drop_duplicates_has_seen_are_tuples(spark):
    found = states_of(spark, "drop_duplicates")
    assert found[("a", "k")].value is True
    assert set(found) == {("a", "k"), ("a", "l"), ("b", "k")}
    assert states_of(spark, "drop_duplicates_within_watermark")[("a", "k")].value == 1577840400000000


def test_an_aggregation_by_window_is_refused_with_the_way_on(spark):
    with pytest.raises(
        StateError, match=r"operator 0 \(stateStoreSave\) cannot be migrated: .*'window'.* --without-operator 0"
    ):
        states_of(spark, "windowed_aggregation")


def test_an_operator_of_another_kind_is_refused_with_the_way_on(spark):
    join = SparkOperator(2, "symmetricHashJoin", (), "wall", 1)
    with pytest.raises(
        StateError, match=r"operator 2 \(symmetricHashJoin\) cannot be migrated: .* --without-operator 2"
    ):
        next(states(spark, "nowhere", join, 0, 0))


PROGRAM = """
from tidewheel import Job, sinks, sources

job = Job("sums", state={state!r})
rows = job.source("in", sources.files({inputs!r}, format="parquet", schema="user string, x double"))
rows.key_by("by-user", "user", value="x").reduce("total", lambda a, b: a + b).sink("out", sinks.collect())
migrations = {{"total": lambda old: old.values["sum"]}}
"""


def dry_run(
    folder: Path, name: str, *options: str, program: str = PROGRAM, checkpoints: Path = CHECKPOINTS
) -> tuple[int, str]:
    path = folder / "sums.py"
    path.write_text(program.format(state=str(folder / "state"), inputs=str(folder)))
    command = ["migrate", str(checkpoints / name), "--program", str(path), "--dry-run", *options]
    ended = CliRunner().invoke(app, command)
    assert not (folder / "state").exists()
    return ended.exit_code, ended.output


def test_a_dry_run_shows_counts_and_samples_and_changes_nothing(tmp_path):
    status, told = dry_run(tmp_path, "aggregation")
    assert status == 0
    assert "  operator 0: stateStoreSave\n" in told
    assert "step total: 2 keys of operator 0 (stateStoreSave)" in told
    assert '"a": {"sum":4.0,"count":2,"sum_2":4.0,"count_2":2} -> 4.0' in told
    assert "source in: continues source 0 (files): 1 files read" in told


def test_a_dry_run_lists_the_parts_that_cannot_be_migrated(tmp_path):
    status, told = dry_run(tmp_path, "windowed_aggregation")
    assert status == 1
    assert "refused: operator 0 (stateStoreSave) cannot be migrated" in told


def test_a_source_of_the_query_that_the_program_would_read_again_is_refused(tmp_path):
    copied = shutil.copytree(CHECKPOINTS / "aggregation", tmp_path / "aggregation")
    offsets = copied / "offsets" / "0"
    (copied / "offsets" / ".0.crc").unlink(missing_ok=True)
    offsets.write_text(offsets.read_text() + '\n{"orders":{"0":7}}')
    program = PROGRAM.replace("migrations = {{", 'migrations = {{"in": FromSpark(source=0), ')
    program = program.replace("\n\njob", "\nfrom tidewheel.checkpoints import FromSpark\n\njob")
    status, told = dry_run(tmp_path, "aggregation", program=program, checkpoints=tmp_path)
    assert status == 1
    assert "refused: source 1 (kafka) is continued by no source of the program" in told
    status, told = dry_run(tmp_path, "aggregation", "--without-source", "1", program=program, checkpoints=tmp_path)
    assert status == 0, told
