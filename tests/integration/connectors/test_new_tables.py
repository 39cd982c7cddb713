"""Tables of a lake that the sink creates or extends: what cannot be stored is not committed."""

from __future__ import annotations

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from tidewheel import Job, sinks
from tidewheel._engine.plan_sinks import sinks_of
from tidewheel.errors import Retry, StepError, TidewheelError
from tidewheel.sources import iterable
from tidewheel.testing import MemoryRun


class _Delta:
    def __init__(self, folder):
        self.url = str(folder / "table")

    def sink(self, **options):
        return sinks.delta(self.url, **options)

    def rows(self):
        return DeltaTable(self.url).to_pyarrow_table().to_pylist()


class _Iceberg:
    def __init__(self, folder):
        self.catalog = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/lake"}

    def sink(self, **options):
        return sinks.iceberg("shop.orders", catalog=self.catalog, **options)

    def rows(self):
        return load_catalog("default", **self.catalog).load_table("shop.orders").scan().to_arrow().to_pylist()


@pytest.fixture(params=[_Delta, _Iceberg], ids=["delta", "iceberg"])
def place(request, tmp_path):
    return request.param(tmp_path)


def _run(place, tmp_path, name="new", **options):
    """A run whose batches have one record in each of two tasks."""
    job = Job(name, state=str(tmp_path / "state"), n_shards=4)
    job.source("in", iterable([]), type=dict).sink("out", place.sink(**options))
    return MemoryRun(job, parallelism=2, partitions=2)


MODES = pytest.mark.parametrize("options", [{}, {"mode": "merge", "key": "n"}], ids=["append", "merge"])


def _refused(run, *records, text="sink 'out': .* incompatible types: .*returns="):
    committed = run.run.head.sequence
    with pytest.raises(StepError, match=text):
        run.batch({"in": list(records)})
    assert run.run.head.sequence == committed


@MODES
def test_tasks_that_disagree_about_a_new_table_fail_before_the_commit(place, tmp_path, options):
    with _run(place, tmp_path, **options) as run:
        _refused(run, {"n": 1, "s": 1}, {"n": 2, "s": "text"})
    with _run(place, tmp_path, **options) as run:
        run.batch({"in": [{"n": 1, "s": "a"}, {"n": 2, "s": "b"}]})
    assert sorted(row["n"] for row in place.rows()) == [1, 2]


@MODES
def test_tasks_that_disagree_about_a_new_column_fail_before_the_commit(place, tmp_path, options):
    with _run(place, tmp_path, evolve="add", **options) as run:
        run.batch({"in": [{"n": 1}, {"n": 2}]})
        _refused(run, {"n": 3, "s": 1}, {"n": 4, "s": "text"})
        run.batch({"in": [{"n": 3, "s": 1}, {"n": 4}]})
    assert sorted((row["n"], row["s"]) for row in place.rows())[2:] == [(3, 1), (4, None)]


def test_deletes_whose_keys_do_not_fit_a_new_table_fail_before_the_commit(place, tmp_path):
    with _run(place, tmp_path, mode="merge", key="n", delete="gone") as run:
        _refused(run, {"n": 1, "s": 1, "gone": False}, {"n": "text", "gone": True})


def test_a_table_that_cannot_be_created_fails_the_batch_before_its_commit(place, tmp_path):
    (tmp_path / "lake").write_text("a file where the folder of the table is to be")
    with _run(place, tmp_path) as run:
        (tmp_path / "table").write_text("a file where the folder of the table is to be")
        committed = run.run.head.sequence
        with pytest.raises(TidewheelError):
            run.batch({"in": [{"n": 1}]})
        assert run.run.head.sequence == committed


@pytest.mark.parametrize("value", [[], [None], {"a": None}, {}], ids=str)
def test_a_new_column_without_a_type_fails_before_the_commit(place, tmp_path, value):
    """A column of nothing could take no value later, and Parquet has no struct without fields."""
    text = "sink 'out': the type of the new column 't' is unknown: .*returns="
    with _run(place, tmp_path, evolve="add") as run:
        _refused(run, {"n": 1, "t": value}, text=text)
        run.batch({"in": [{"n": 1}]})
        _refused(run, {"n": 1, "t": value}, text=text)
        run.batch({"in": [{"n": 2, "t": {"a": 1} if isinstance(value, dict) else [1]}]})
        run.batch({"in": [{"n": 3, "t": value}]})
    assert len(place.rows()) == 3


def test_intervals_fail_before_the_commit(place, tmp_path):
    job = Job("intervals", state=str(tmp_path / "state"), n_shards=4)
    records = job.source("in", iterable([]), type=dict)
    interval = pa.array([(1, 2, 3)], pa.month_day_nano_interval())
    records.map_batches("intervals", lambda batch: pa.RecordBatch.from_arrays([interval], ["i"])).sink(
        "out", place.sink()
    )
    with MemoryRun(job) as run:
        _refused(run, {"n": 1}, text="the column 'i' of type month_day_nano_interval cannot be written")


@MODES
def test_names_that_differ_only_by_case_are_stored_or_fail_before_the_commit(place, tmp_path, options):
    """Iceberg distinguishes them, and the client of Delta Lake does not."""
    with _run(place, tmp_path, **options) as run:
        if isinstance(place, _Delta):
            _refused(run, {"n": 1, "N": 2}, text="sink 'out': .*Duplicate field name .*'N'")
            run.batch({"in": [{"n": 1}]})
        else:
            run.batch({"in": [{"n": 1, "N": 2}]})
            assert place.rows() == [{"n": 1, "N": 2}]


@MODES
def test_a_table_that_another_program_creates_first_is_checked(place, tmp_path, options):
    """The task has looked for the table, and found none."""
    with _run(place, tmp_path, **options) as run:
        sink = next(iter(sinks_of(run.plan).values()))
        prepare = sink.prepare_table

        def overtaken(publication):
            with _run(place, tmp_path, "other", **options) as other:
                other.batch({"in": [{"n": 1, "s": "text"}]})
            return prepare(publication)

        sink.prepare_table = overtaken
        committed = run.run.head.sequence
        with pytest.raises(Retry, match=r"another program has changed the column 's' of the table"):
            run.batch({"in": [{"n": 2, "s": 2}]})
        assert run.run.head.sequence == committed
        sink.prepare_table = prepare
        _refused(run, {"n": 2, "s": 2}, text="the column 's' has the type int64, but in the table it has")
        run.batch({"in": [{"n": 2, "s": "2"}]})
    assert len(place.rows()) == 2
