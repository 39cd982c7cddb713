"""The files sink: each record once, with repeated, overtaken and leftover publications."""

from __future__ import annotations

import datetime
import errno
import json
import os
import pickle

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import dataset, parquet

from support.internals import faults
from tidewheel import Job, sinks
from tidewheel._connectors.files.formats import CheckedFile
from tidewheel._engine.plan_sinks import PUBLISHING
from tidewheel.errors import ConfigError, CorruptError, StateError, StepError, StorageError
from tidewheel.sources import iterable
from tidewheel.testing import MemoryRun


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "out"


@pytest.fixture
def harness(tmp_path, folder, harnessed):
    return harnessed(sinks.files(folder), str(tmp_path / "state"))


@pytest.fixture
def disarmed():
    yield
    faults.arm("")


def visible(folder):
    return sorted(
        str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file() and "_tidewheel" not in path.parts
    )


def rows(folder):
    return dataset.dataset(folder, format="parquet").to_table().to_pylist()


def hidden(folder):
    return sorted(path.name for path in (folder / "_tidewheel").rglob("*") if path.is_file())


def test_output_is_invisible_until_it_is_published(harness, folder):
    token = harness.stage(2, [{"n": 1}], [{"n": 2}])
    assert visible(folder) == []
    harness.publish(2, token)
    assert rows(folder) == [{"n": 1}, {"n": 2}]


def test_a_file_is_named_by_job_sink_sequence_and_task(harness, folder):
    harness.publish(7, harness.stage(7, [{"n": 1}], task=3))
    assert visible(folder) == ["orders~out~00000000000000000007~3-0.parquet"]


def test_batches_without_rows_make_no_file(harness, folder):
    token = harness.stage(2, pa.RecordBatch.from_pylist([], pa.schema([("n", pa.int64())])))
    assert token is None
    harness.publish(2)
    assert visible(folder) == []


def test_publishing_again_changes_nothing(harness, folder):
    token = harness.stage(2, [{"n": 1}])
    harness.publish(2, token)
    before = {path: (folder / path).stat() for path in visible(folder)}
    harness.publish(2, token)
    assert {path: (folder / path).stat() for path in visible(folder)} == before


def test_publishing_continues_after_a_crash(harness, folder):
    tokens = [harness.stage(2, [{"n": task}], task=task) for task in range(3)]
    staged = sorted((folder / "_tidewheel/orders~out/staged").iterdir())
    os.rename(staged[0], folder / "orders~out~00000000000000000002~0-0.parquet")
    harness.publish(2, *tokens)
    assert sorted(row["n"] for row in rows(folder)) == [0, 1, 2]


def test_a_driver_that_was_overtaken_disturbs_nothing(harness, folder):
    old = harness.stage(2, [{"n": 1}])
    harness.publish(2, old)
    harness.publish(3, harness.stage(3, [{"n": 2}]))
    waiting = harness.stage(4, [{"n": 3}])
    harness.publish(2, old)
    harness.publish(4, waiting)
    assert sorted(row["n"] for row in rows(folder)) == [1, 2, 3]


def test_a_reader_may_remove_published_files(harness, folder):
    token = harness.stage(2, [{"n": 1}])
    harness.publish(2, token)
    for path in visible(folder):
        (folder / path).unlink()
    harness.publish(2, token)
    assert visible(folder) == []


def test_a_late_writer_does_not_lower_the_marker(harness, folder):
    late = harness.stage(2, [{"n": 1}])
    harness.publish(2, late)
    harness.publish(9, harness.stage(9, [{"n": 2}]))
    marker = folder / "_tidewheel/orders~out/published-00000000000000000002"
    marker.touch()
    waiting = harness.stage(5, [{"n": 3}])
    with pytest.raises(StateError):
        harness.publish(5, waiting)


def test_output_of_a_former_job_of_this_name_is_not_claimed(harness, folder):
    harness.publish(9, harness.stage(9, [{"n": 1}]))
    token = harness.stage(2, [{"n": 2}], run="r2")
    with pytest.raises(StateError, match=r"up to sequence 9, and the job's state is only at 2"):
        harness.publish(2, token)
    # Without the output of the earlier life it is published.
    for path in [*folder.glob("orders~out~*"), *(folder / "_tidewheel/orders~out").glob("published-*")]:
        path.unlink()
    harness.publish(2, token)
    assert rows(folder) == [{"n": 2}]


def test_the_next_publication_removes_files_of_failed_attempts(harness, folder):
    harness.stage(2, [{"n": "failed"}])
    harness.publish(2, harness.stage(2, [{"n": "good"}]))
    harness.stage(3, [{"n": "fenced"}], run="r0")
    harness.publish(4, harness.stage(4, [{"n": "next"}]))
    assert hidden(folder) == ["published-00000000000000000004"]
    assert sorted(row["n"] for row in rows(folder)) == ["good", "next"]


def test_lost_output_is_an_error_that_names_the_file(harness, folder):
    token = harness.stage(2, [{"n": 1}])
    for path in (folder / "_tidewheel/orders~out/staged").iterdir():
        path.unlink()
    with pytest.raises(StorageError, match=r"output is lost.*orders~out~0+2~0-0\.parquet"):
        harness.publish(2, token)


def test_a_staged_file_that_was_cut_short_is_not_published(harness, folder):
    token = harness.stage(2, [{"n": 1}])
    for path in (folder / "_tidewheel/orders~out/staged").iterdir():
        os.truncate(path, 5)
    with pytest.raises(CorruptError, match="5 are there"):
        harness.publish(2, token)
    assert visible(folder) == []


def test_sinks_and_jobs_share_a_folder(tmp_path, folder, harnessed):
    harnesses = [
        harnessed(sinks.files(folder), str(tmp_path / "state"), job=job, name=name)
        for job, name in (("a", "b-c"), ("a-b", "c"), ("a", "x"))
    ]
    for number, each in enumerate(harnesses):
        each.publish(2, each.stage(2, [{"n": number}]))
    assert sorted(row["n"] for row in rows(folder)) == [0, 1, 2]


def test_retract_removes_the_output_of_a_range_of_sequences(tmp_path, harness, folder, harnessed):
    other = harnessed(sinks.files(folder), str(tmp_path / "state"), name="other")
    other.publish(9, other.stage(9, [{"n": 90}]))
    for sequence in (2, 3, 4, 6):
        harness.publish(sequence, harness.stage(sequence, [{"n": sequence}]))
    for _ in range(2):
        harness.sink.retract("orders", "out", after=2, before=5)
        assert sorted(row["n"] for row in rows(folder)) == [2, 6, 90]


def test_a_million_small_batches_do_not_make_a_row_group_each(harness, folder):
    harness.publish(2, harness.stage(2, *([{"n": n}] for n in range(1000))))
    assert parquet.ParquetFile(folder / visible(folder)[0]).num_row_groups == 1


def test_only_columns_whose_values_repeat_have_a_dictionary(harness, folder):
    rows = [{"n": n, "name": f"name {n % 700}", "some": [n % 3], "mostly": None if n % 9 else n} for n in range(20_000)]
    harness.publish(2, harness.stage(2, rows))
    (path,) = visible(folder)
    file = parquet.ParquetFile(folder / path)
    group = file.metadata.row_group(0)
    columns = {group.column(n).path_in_schema: group.column(n).has_dictionary_page for n in range(4)}
    assert columns == {"n": False, "name": True, "some.list.element": True, "mostly": True}
    assert file.read().to_pylist() == rows


def test_columns_of_all_types_are_written_in_large_batches(harness, folder):
    count = 5_000
    kinds = {
        "decimal": pa.decimal128(30, 2),
        "text": pa.string_view(),
        "bytes": pa.binary_view(),
        "id": pa.uuid(),
        "no": pa.null(),
        "time": pa.time64("us"),
        "yes": pa.bool_(),
        "half": pa.float16(),
        "word": pa.dictionary(pa.int8(), pa.string()),
    }
    values = {
        "decimal": range(count),
        "text": [f"{n}" for n in range(count)],
        "bytes": [b"x"] * count,
        "no": [None] * count,
        "id": [n.to_bytes(16) for n in range(count)],
        "time": range(count),
        "yes": [True] * count,
        "half": [1.0] * count,
        "word": ["a"] * count,
    }
    columns = {
        name: pa.array(values[name]).cast(kind) if name == "decimal" else pa.array(values[name], kind)
        for name, kind in kinds.items()
    }
    harness.publish(2, harness.stage(2, pa.RecordBatch.from_pydict(columns)))
    (path,) = visible(folder)
    assert parquet.read_table(folder / path)["text"].to_pylist() == values["text"]


def test_columns_that_change_their_type_go_to_separate_files(harness, folder):
    harness.publish(2, harness.stage(2, [{"n": 1}], [{"n": None}], [{"n": 2.5}], [{"n": 2}]))
    tables = [parquet.read_table(folder / path) for path in visible(folder)]
    assert sorted(table.num_rows for table in tables) == [1, 1, 2]


def test_json_lines(tmp_path, folder, harnessed):
    harness = harnessed(sinks.files(folder, format="json"), str(tmp_path / "state"))
    moment = datetime.datetime(2025, 1, 31, 12, tzinfo=datetime.UTC)
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array(["ü", None]),
            pa.array([moment, None]),
            pa.array([[1, 2], []]),
            pa.array([[("a", 1)], []], pa.map_(pa.string(), pa.int64())),
        ],
        ["text", "at", "a list", "map"],
    )
    harness.publish(2, harness.stage(2, batch))
    lines = (folder / visible(folder)[0]).read_text().splitlines()
    assert [json.loads(line) for line in lines] == [
        {"text": "ü", "at": "2025-01-31T12:00:00Z", "a list": [1, 2], "map": {"a": 1}},
        {"text": None, "at": None, "a list": [], "map": {}},
    ]


def test_partition_by_makes_folders_that_readers_know(tmp_path, folder, harnessed):
    harness = harnessed(sinks.files(folder, partition_by=["day", "who"]), str(tmp_path / "state"))
    day = datetime.date(2025, 1, 31)
    given = [{"day": day, "who": who, "n": n} for n, who in enumerate(["a/b", None, "c d", "a/b"])]
    harness.publish(2, harness.stage(2, given))
    assert {path.rpartition("/")[0] for path in visible(folder)} == {
        "day=2025-01-31/who=a%2Fb",
        "day=2025-01-31/who=__HIVE_DEFAULT_PARTITION__",
        "day=2025-01-31/who=c d",
    }
    read = dataset.dataset(folder, format="parquet", partitioning="hive").to_table().to_pylist()
    assert sorted((row["n"], row["who"]) for row in read if row["who"]) == [(0, "a/b"), (2, "c d"), (3, "a/b")]
    harness.sink.retract("orders", "out", after=1, before=3)
    assert visible(folder) == []


def test_more_partitions_than_open_files(tmp_path, folder, harnessed):
    harness = harnessed(sinks.files(folder, partition_by="p"), str(tmp_path / "state"))
    batches = [[{"p": n, "n": n + 1000 * turn} for n in range(100)] for turn in range(2)]
    harness.publish(2, harness.stage(2, *batches))
    read = dataset.dataset(folder, format="parquet", partitioning="hive").to_table().to_pylist()
    assert sorted(row["n"] for row in read) == sorted(row["n"] for batch in batches for row in batch)
    assert all(row["n"] % 1000 == row["p"] for row in read)


def test_partition_by_a_column_that_is_not_there(tmp_path, folder, harnessed):
    harness = harnessed(sinks.files(folder, partition_by="day"), str(tmp_path / "state"))
    with pytest.raises(StepError, match=r"sink 'out'.*no column day.*the records have n"):
        harness.stage(2, [{"n": 1}])


def test_partition_by_every_column(tmp_path, folder, harnessed):
    harness = harnessed(sinks.files(folder, partition_by="n"), str(tmp_path / "state"))
    with pytest.raises(StepError, match="no other column is left"):
        harness.stage(2, [{"n": 1}])


def test_a_full_disk_names_the_path_and_what_to_do(harness, folder, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(CheckedFile, "write", full)
    with pytest.raises(StorageError, match=r"out/_tidewheel/orders~out/staged.*disk is full: make room"):
        harness.stage(2, [{"n": 1}])


def test_a_folder_that_cannot_be_made_is_refused_at_the_start(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"file/_tidewheel.*Not a directory"):
        sinks.files(tmp_path / "file").start("orders")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"path": "ftp://host/out"}, "unknown scheme 'ftp'"),
        ({"path": "s3://bucket/out?secret_access_key=x"}, "would show in logs"),
        ({"path": "out", "format": "csv"}, "parquet or json"),
        ({"path": "out", "compression": "lzw"}, "zstd"),
    ],
)
def test_settings_that_cannot_work_are_refused(arguments, text):
    with pytest.raises(ConfigError, match=text):
        sinks.files(**arguments)


def test_a_relative_path_means_the_same_in_every_task(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sink = pickle.loads(pickle.dumps(sinks.files("out")))
    monkeypatch.chdir("/")
    assert sink.path == str(tmp_path / "out")


def test_a_file_url_is_a_folder(tmp_path):
    assert sinks.files(f"file://{tmp_path}/a%20b").path == f"{tmp_path}/a b"


@settings(max_examples=40, deadline=None)
@given(
    tasks=st.lists(st.integers(0, 3), min_size=1, max_size=5),
    steps=st.lists(st.tuples(st.integers(0, 1), st.booleans()), max_size=12),
)
def test_any_interleaving_of_publishes_with_repeats_leaves_each_row_once(harnessed, tmp_path_factory, tasks, steps):
    """Two drivers, of which either may be paused: each publishes committed sequences in order, and repeats at will."""
    base = tmp_path_factory.mktemp("interleaved")
    harness = harnessed(sinks.files(base / "out"), str(base / "state"))
    committed: list[list[bytes | None]] = []
    position = [0, 0]
    for driver, advances in [*steps, *[(0, True)] * len(tasks)]:
        # A run goes on to the next sequence only when the one before it is published.
        if len(committed) == max(position) and len(committed) < len(tasks):
            sequence = len(committed) + 1
            for task in range(tasks[sequence - 1]):
                harness.stage(sequence, [{"at": "a failed attempt"}], task=task)
            committed.append(
                [
                    harness.stage(sequence, [{"at": f"{sequence}.{task}"}], task=task)
                    for task in range(tasks[sequence - 1])
                ]
            )
        at = min(position[driver], len(committed) - 1)
        harness.publish(at + 1, *committed[at])
        position[driver] = max(position[driver], at + advances)
    found = [row["at"] for path in visible(base / "out") for row in parquet.read_table(base / "out" / path).to_pylist()]
    assert sorted(found) == [f"{s}.{task}" for s, count in enumerate(tasks, 1) for task in range(count)]


def test_another_format_in_the_same_folder_is_refused_with_a_way_out(harness, folder):
    harness.publish(2, harness.stage(2, [{"n": 1}]))
    sinks.files(folder).check("orders", "out")
    sinks.files(folder, "json").check("orders", "other")
    sinks.files(folder, "json").check("other", "out")
    told = r"sink 'out': .*/out has parquet files .*writes json now.*another folder.*format='parquet'.*reset"
    with pytest.raises(ConfigError, match=told):
        sinks.files(folder, "json").check("orders", "out")


def test_a_format_other_than_that_of_the_fleets_other_runs_is_refused(tmp_path, folder, harnessed):
    harness = harnessed(sinks.files(folder), str(tmp_path / "state"), job="orders/1")
    sinks.files(folder, "json").check("orders/2", "out")
    harness.publish(2, harness.stage(2, [{"n": 1}]))
    for run in ("orders/1", "orders/2"):
        sinks.files(folder).check(run, "out")
        with pytest.raises(ConfigError, match=r"has parquet files .*writes json now"):
            sinks.files(folder, "json").check(run, "out")
    sinks.files(folder).forget("orders", "out", [1])
    with pytest.raises(ConfigError, match=r"has parquet files .*writes json now"):
        sinks.files(folder, "json").check("orders/2", "out")
    sinks.files(folder, "json").check("orders/2", "other")
    sinks.files(folder, "json").check("orders-2/2", "out")


def test_another_format_than_that_of_output_which_a_crash_left_is_refused(tmp_path, folder, disarmed):
    def run(format, *numbers):
        job = Job("orders", state=f"file:{tmp_path}/state")
        job.source("in", iterable([])).sink("out", sinks.files(folder, format))
        with MemoryRun(job) as run:
            for n in numbers:
                run.batch({"in": [{"n": n}]})

    faults.arm(f"{PUBLISHING}=raise")
    with pytest.raises(faults.InjectedFault):
        run("json", 1)
    faults.arm("")
    assert visible(folder) == []
    with pytest.raises(ConfigError, match=r"has json files .*writes parquet now"):
        run("parquet", 2)
    run("json", 2)
    assert {path.rpartition(".")[2] for path in visible(folder)} == {"json"}
