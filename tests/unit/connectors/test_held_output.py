"""The files sink with compact=: commits appear together, each row once, whatever is repeated, killed or overtaken."""

from __future__ import annotations

import contextlib
import json
import pickle
import random
import threading

import pyarrow as pa
import pytest
from pyarrow import dataset, parquet
from typer.testing import CliRunner

from support.internals import app, faults
from support.waiting import eventually
from tidewheel import Job, sinks
from tidewheel._connectors.files.places import LocalFolder
from tidewheel._storage import open_store
from tidewheel.errors import ConfigError, CorruptError, StateError, StorageError
from tidewheel.sources import iterable
from tidewheel.testing import MemoryRun
from tidewheel.testing.connectors import SinkConformance, SinkHarness


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "out"


@pytest.fixture
def harness(tmp_path, folder, harnessed):
    def made(**options):
        return harnessed(sinks.files(folder, **{"compact": "1 hour", **options}), str(tmp_path / "state"))

    return made


@pytest.fixture
def held(harness, monkeypatch):
    """A harness whose sink merges only when it is told to."""
    harness = harness()
    monkeypatch.setattr(harness.sink, "compact_if_due", lambda: None)
    return harness


@pytest.fixture(autouse=True)
def disarmed():
    yield
    faults.arm("")


def visible(folder):
    return sorted(path for path in folder.rglob("*") if path.is_file() and "_tidewheel" not in path.parts)


def numbers(folder):
    found = dataset.dataset(visible(folder), format="parquet").to_table() if visible(folder) else None
    return [] if found is None else found["n"].to_pylist()


def publish(harness, *sequences):
    for sequence in sequences:
        tokens = [harness.stage(sequence, [{"n": sequence * 10 + task}], task=task) for task in range(2)]
        harness.publish(sequence, *tokens)


def _later():
    """Merge nothing now."""


class _Merged(SinkHarness):
    """The folder after everything that is held was published."""

    def __init__(self, folder, format):
        self.folder, self.format = folder, format

    def sink(self):
        sink = sinks.files(self.folder, self.format, compact="1 hour")
        # A merge in a thread would still be at work when `contents` looks.
        sink.compact_if_due = _later
        return sink

    def contents(self):
        for own in self.folder.glob("_tidewheel/*~*"):
            sink = self.sink()
            sink.check(*own.name.replace("=2F", "/").split("~"))
            sink.compact()
        if self.format == "json":
            return [json.loads(line) for path in visible(self.folder) for line in path.read_text().splitlines()]
        return dataset.dataset(visible(self.folder)).to_table().to_pylist() if visible(self.folder) else []


class TestConformance(SinkConformance):
    @pytest.fixture(params=["parquet", "json"])
    def harness(self, request, folder):
        return _Merged(folder, request.param)

    test_markers_of_ended_runs_of_a_fleet_are_deleted = None


def test_commits_appear_together_in_one_file_in_their_order(held, folder):
    publish(held, 2, 3, 4)
    assert visible(folder) == []
    assert sinks.whole_files(folder) == []
    assert held.sink.compact() == (6, 1)
    assert numbers(folder) == [20, 21, 30, 31, 40, 41]
    assert sinks.whole_files(folder) == [path.name for path in visible(folder)]
    assert held.sink.newest("orders", "out") == 4
    left = sorted(path.name for path in (folder / "_tidewheel").rglob("*") if path.is_file())
    assert left == [f"merged-{1:020}", f"published-{4:020}"]
    assert held.sink.compact() == (0, 0)


def test_a_published_file_never_changes(held, folder):
    publish(held, 2, 3)
    held.sink.compact()
    before = {path: path.stat() for path in visible(folder)}
    publish(held, 4, 5)
    held.sink.compact()
    assert {path: path.stat() for path in visible(folder) if path in before} == before
    assert numbers(folder) == [20, 21, 30, 31, 40, 41, 50, 51]


def test_files_of_a_folder_are_merged_up_to_the_target_size(tmp_path, folder, harnessed, monkeypatch):
    harness = harnessed(sinks.files(folder, "json", partition_by="part", compact="1 hour"), str(tmp_path / "state"))
    monkeypatch.setattr(harness.sink, "compact_if_due", lambda: None)
    for sequence in range(2, 12):
        some = [{"n": sequence * 10 + n, "part": n % 2} for n in range(6)]
        harness.publish(sequence, harness.stage(sequence, some))
    harness.sink.compact(200)
    files = visible(folder)
    assert len(files) == 4
    for part in range(2):
        mine = [path for path in files if path.parent.name == f"part={part}"]
        assert all(150 < path.stat().st_size < 300 for path in mine[:-1])
        lines = [json.loads(line)["n"] for path in mine for line in path.read_text().splitlines()]
        assert lines == [sequence * 10 + n for sequence in range(2, 12) for n in range(6) if n % 2 == part]


def test_a_merge_that_was_killed_is_finished_by_the_next_start(held, folder, tmp_path, harnessed):
    publish(held, 2, 3)
    token = held.stage(4, [{"n": 40}])
    held.publish(4, token)
    faults.arm("held.merged=raise@1")
    with pytest.raises(faults.InjectedFault):
        held.sink.compact()
    faults.arm("")
    assert visible(folder) == []
    again = harnessed(sinks.files(folder, compact="1 hour"), str(tmp_path / "state"))
    again.publish(4, token)
    again.sink.stop("orders")
    assert numbers(folder) == [20, 21, 30, 31, 40]


def test_a_start_without_new_output_publishes_held_output(held, folder):
    publish(held, 2)
    later = pickle.loads(pickle.dumps(sinks.files(folder, compact="1 hour")))
    later.check("orders", "out")
    later.stop("orders")
    assert numbers(folder) == [20, 21]


def test_a_sink_without_compact_publishes_earlier_held_output(held, folder, tmp_path, harnessed):
    publish(held, 2, 3)
    plain = harnessed(sinks.files(folder), str(tmp_path / "state"))
    plain.sink.check("orders", "out")
    publish(plain, 4)
    assert sorted(numbers(folder)) == [20, 21, 30, 31, 40, 41]
    publish(held, 5)
    held.sink.compact()
    assert sorted(numbers(folder)) == [20, 21, 30, 31, 40, 41, 50, 51]


def test_another_driver_merges_between_the_files_and_the_record(held, folder, tmp_path, harnessed, monkeypatch):
    """Also several times, so that the record of the same number is there no longer."""
    publish(held, 2, 3)
    other = harnessed(sinks.files(folder, compact="1 hour"), str(tmp_path / "state"))
    monkeypatch.setattr(other.sink, "compact_if_due", lambda: None)
    sync = LocalFolder.sync

    def late(self, folders):
        sync(self, folders)
        if any(path.endswith("merging") for path in folders):
            monkeypatch.setattr(LocalFolder, "sync", sync)
            for sequence in (4, 5, 6):
                publish(other, sequence)
                other.sink.compact()

    monkeypatch.setattr(LocalFolder, "sync", late)
    assert held.sink.compact() == (0, 0)
    assert numbers(folder) == [20, 21, 30, 31, 40, 41, 50, 51, 60, 61]
    publish(other, 7)
    other.sink.compact()
    assert sorted(numbers(folder)) == [n * 10 + task for n in range(2, 8) for task in range(2)]
    assert list((folder / "_tidewheel/orders~out/merging").iterdir()) == []


def test_a_driver_that_was_overtaken_holds_nothing_again(held, folder):
    token = held.stage(2, [{"n": 1}])
    held.publish(2, token)
    held.publish(2, token)
    publish(held, 3)
    held.sink.compact()
    held.publish(2, token)
    held.sink.compact()
    assert numbers(folder) == [1, 30, 31]


def test_output_of_an_earlier_life_of_the_job_is_refused(held):
    publish(held, 5, 9)
    for sequence in (2, 9):
        with pytest.raises(StateError, match="orders"):
            held.publish(sequence, held.stage(sequence, [{"n": 1}], run="r2"))


def test_a_reader_that_lists_all_the_time_finds_each_row_once(harness, folder):
    harness = harness(compact="1 ms")
    wrong, ended = [], threading.Event()

    def read():
        while not ended.is_set():
            found = sorted(numbers(folder))
            last = max(found, default=11) // 10
            if found != [n * 10 + task for n in range(2, last + 1) for task in range(2)]:
                wrong.append(found)

    reader = threading.Thread(target=read)
    reader.start()
    publish(harness, *range(2, 30))
    harness.sink.stop("orders")
    ended.set()
    reader.join()
    assert wrong == []
    assert sorted(numbers(folder)) == [n * 10 + task for n in range(2, 30) for task in range(2)]
    assert len(visible(folder)) < 56


def test_held_output_appears_even_if_nothing_follows(harness, folder):
    harness = harness(compact="50 ms")
    publish(harness, 2)
    publish(harness, 3)
    eventually(lambda: len(numbers(folder)) == 4, "the held commits")
    harness.sink.stop("orders")


def test_random_repeats_crashes_and_merges_leave_each_row_once(folder, tmp_path, harnessed, monkeypatch):
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    drivers = [harnessed(sinks.files(folder, compact="1 hour"), str(tmp_path / "state")) for _ in range(2)]
    for driver in drivers:
        monkeypatch.setattr(driver.sink, "compact_if_due", lambda: None)
    tokens = {}
    for _ in range(60):
        driver = draw.choice(drivers)
        driver.sink.check("orders", "out")
        step = draw.random()
        if step < 0.5:
            sequence = len(tokens) + 2
            tokens[sequence] = driver.stage(sequence, [{"n": sequence}])
            driver.publish(sequence, tokens[sequence])
        elif step < 0.7 and tokens:
            sequence = draw.choice(list(tokens))
            driver.publish(sequence, tokens[sequence])
        elif step < 0.85:
            faults.arm("held.merged=raise@1")
            with contextlib.suppress(faults.InjectedFault):
                driver.sink.compact()
            faults.arm("")
        else:
            driver.sink.compact()
    drivers[0].sink.stop("orders")
    drivers[1].sink.check("orders", "out")
    drivers[1].sink.compact()
    assert sorted(numbers(folder)) == sorted(tokens)


def test_the_end_of_a_run_publishes(tmp_path, folder):
    job = Job("orders", state=(tmp_path / "state").as_uri())
    job.source("in", iterable([]), type=dict).sink("out", sinks.files(folder, compact="1 hour"))
    with MemoryRun(job) as run:
        for n in range(3):
            run.batch({"in": [{"n": n}]})
    assert sorted(numbers(folder)) == [0, 1, 2]


def test_reset_removes_held_output(held, folder):
    publish(held, 2)
    held.sink.compact()
    publish(held, 3)
    held.sink.remove("orders", "out")
    assert [path for path in folder.rglob("*") if path.is_file()] == []


def test_a_held_file_that_is_gone_or_was_cut_is_reported(held, folder):
    publish(held, 2)
    (first, second) = sorted((folder / "_tidewheel/orders~out/staged").iterdir())
    content = first.read_bytes()
    first.write_bytes(content[:-1])
    with pytest.raises(CorruptError, match="is not what the task wrote"):
        held.sink.compact()
    first.write_bytes(content)
    second.unlink()
    with pytest.raises(StorageError, match="output is lost"):
        held.sink.compact()
    assert visible(folder) == []


@pytest.mark.parametrize("final", ["../x", "_tidewheel/x", "other~out~00000000000000000002~0-0.parquet"])
def test_a_record_cannot_move_other_files(held, folder, final):
    publish(held, 2)
    record = folder / f"_tidewheel/orders~out/held-{2:020}"
    files = json.loads(record.read_text())
    files[0][1] = final
    record.write_text(json.dumps(files))
    with pytest.raises(CorruptError):
        held.sink.compact()


def test_other_formats_and_fleets_are_refused_and_restores_ask(held, folder):
    publish(held, 2)
    with pytest.raises(ConfigError, match="parquet files that it published, and it writes json now"):
        sinks.files(folder, "json", compact="1 hour").check("orders", "out")
    with pytest.raises(ConfigError, match="compact= does not work in a fleet"):
        held.sink.check("orders/3", "out")
    assert sinks.files(folder).retracts
    assert not held.sink.retracts


def test_the_command_refuses_a_folder_of_files(held, folder):
    publish(held, 2)
    said = CliRunner().invoke(app, ["compact", str(folder)])
    assert "is a folder of a files sink" in said.output + said.stderr


@pytest.mark.parametrize("format", ["parquet", "json"])
def test_commits_appear_together_in_a_store(tmp_path, harnessed, monkeypatch, format):
    url = f"memory:held-{format}-{random.randrange(10**9)}"
    harness = harnessed(sinks.files(url, format, compact="1 hour"), str(tmp_path / "state"))
    monkeypatch.setattr(harness.sink, "compact_if_due", lambda: None)
    publish(harness, 2, 3)
    assert sinks.whole_files(url) == []
    assert harness.sink.compact() == (4, 1)
    (path,) = sinks.whole_files(url)
    content = open_store(url).read(path)
    found = (
        [json.loads(line)["n"] for line in content.splitlines()]
        if format == "json"
        else parquet.read_table(pa.BufferReader(content))["n"].to_pylist()
    )
    assert found == [20, 21, 30, 31]
    assert [entry.path for entry in open_store(url).list() if "staged" in entry.path or "merging" in entry.path] == []
