"""Compaction of Delta and Iceberg tables: fewer files, the same rows, also for those who write and read meanwhile."""

from __future__ import annotations

import threading
from collections import Counter

import pytest
from deltalake import DeltaTable
from pyiceberg.table import Table
from typer.testing import CliRunner

from support.waiting import eventually
from tidewheel import sinks
from tidewheel._cli import app
from tidewheel._connectors.files import compaction
from tidewheel._connectors.iceberg.catalog import TableName
from tidewheel._core import faults
from tidewheel.errors import ConfigError, ConnectorUnavailable, GraphError

NAME = "shop.orders"


class _Delta:
    def __init__(self, folder):
        self.url = str(folder / "table")

    def sink(self, **options):
        return sinks.delta(self.url, **options)

    def numbers(self):
        return DeltaTable(self.url).to_pyarrow_table()["n"].to_pylist()

    def files(self):
        return len(DeltaTable(self.url).file_uris())

    @property
    def command(self):
        return ["compact", self.url]


class _Iceberg:
    def __init__(self, folder):
        self.catalog = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/lake"}

    def sink(self, **options):
        return sinks.iceberg(NAME, catalog=self.catalog, **options)

    def table(self):
        return TableName.of(NAME, self.catalog).load("the test")

    def numbers(self):
        return self.table().scan().to_arrow()["n"].to_pylist()

    def files(self):
        return len(self.table().inspect.files())

    @property
    def command(self):
        given = [part for name, value in self.catalog.items() for part in ("--property", f"{name}={value}")]
        return ["compact", NAME, *given]


@pytest.fixture(params=[_Delta, _Iceberg], ids=["delta", "iceberg"])
def place(request, tmp_path):
    return request.param(tmp_path)


@pytest.fixture
def filled(place, tmp_path, harnessed):
    """A table with eight small files in two partitions, and the sink that wrote them."""
    harness = harnessed(place.sink(partition_by="part"), str(tmp_path / "state"))
    for sequence in range(2, 6):
        harness.publish(sequence, harness.stage(sequence, _rows(sequence)))
    return harness


def _rows(sequence):
    return [{"n": sequence * 10 + part, "part": part} for part in range(2)]


def _numbers(last):
    return sorted(sequence * 10 + part for sequence in range(2, last + 1) for part in range(2))


def test_small_files_become_one_in_each_partition_and_no_row_changes(place, filled):
    assert place.files() == 8
    assert filled.sink.compact() == (8, 2)
    assert (place.files(), sorted(place.numbers())) == (2, _numbers(5))
    assert filled.sink.compact() == (0, 0)
    filled.publish(6, filled.stage(6, _rows(6)))
    assert (place.files(), sorted(place.numbers())) == (4, _numbers(6))


def test_the_command_reports_its_changes(place, filled):
    shown = [CliRunner().invoke(app, place.command, catch_exceptions=False).output for _ in range(2)]
    assert shown == ["replaced 8 files by 2\n", "there are no small files to replace\n"]
    assert sorted(place.numbers()) == _numbers(5)


def test_a_batch_published_again_after_a_compaction_is_not_doubled(place, filled):
    token = filled.stage(6, _rows(6))
    filled.publish(6, token)
    filled.sink.compact()
    filled.publish(6, token)
    filled.sink._table = None
    filled.publish(6, token)
    assert sorted(place.numbers()) == _numbers(6)


def test_a_batch_between_the_rewriting_and_its_commit_stays(tmp_path, harnessed, monkeypatch):
    place = _Iceberg(tmp_path)
    harness = harnessed(place.sink(), str(tmp_path / "state"))
    for sequence in (2, 3):
        harness.publish(sequence, harness.stage(sequence, _rows(sequence)))
    commit = Table._do_commit

    def late(self, **arguments):
        monkeypatch.setattr(Table, "_do_commit", commit)
        harness.publish(4, harness.stage(4, _rows(4)))
        commit(self, **arguments)

    monkeypatch.setattr(Table, "_do_commit", late)
    assert harness.sink.compact() == (2, 1)
    assert (place.files(), sorted(place.numbers())) == (2, _numbers(4))


def test_a_job_that_compacts_all_the_time_loses_and_doubles_nothing(place, tmp_path, harnessed):
    """A reader looks all the while, and finds whole batches, each once."""
    harness = harnessed(place.sink(compact="1 ms"), str(tmp_path / "state"))
    harness.publish(2, harness.stage(2, _rows(2)))
    wrong, looks, ended = [], [], threading.Event()

    def read():
        while not ended.is_set():
            counts = Counter(number // 10 for number in place.numbers())
            looks.append(len(counts))
            if set(counts.values()) != {2} or sorted(counts) != list(range(2, 2 + len(counts))):
                wrong.append(counts)

    reader = threading.Thread(target=read)
    reader.start()
    for sequence in range(3, 10):
        harness.publish(sequence, harness.stage(sequence, _rows(sequence)))
    harness.sink.stop("orders")
    ended.set()
    reader.join()
    assert (wrong, sorted(place.numbers())) == ([], _numbers(9))
    assert looks
    assert place.sink().compacted_at() is not None
    assert place.files() < 8


def test_a_job_that_starts_often_compacts_at_the_interval(place, filled, monkeypatch):
    filled.sink.compact()
    sink = place.sink(compact="1 hour")
    done = []
    monkeypatch.setattr(sink, "compact", lambda: done.append(1) or (0, 0))
    sink.compact_if_due()
    sink.stop("orders")
    assert done == []
    sink.compact_every = 1e-9
    monkeypatch.setattr(sink, "compact", lambda: done.append(1) or compaction.Compaction(0, 0))
    sink.compact_if_due()
    sink.stop("orders")
    assert done == [1]


def test_a_compaction_that_fails_does_not_disturb_the_job(place, tmp_path, harnessed, monkeypatch, caplog):
    harness = harnessed(place.sink(compact="1 ms"), str(tmp_path / "state"))

    def fails(target_bytes=0):
        raise ConnectorUnavailable("the store is away")

    monkeypatch.setattr(harness.sink, "compact", fails)
    for sequence in (2, 3):
        harness.publish(sequence, harness.stage(sequence, _rows(sequence)))
        eventually(lambda: "was not compacted: the store is away" in caplog.text, "the warning")
    harness.sink.stop("orders")
    assert sorted(place.numbers()) == _numbers(3)


def test_a_compaction_killed_before_its_commit_leaves_the_table_as_it_was(tmp_path, harnessed):
    place = _Iceberg(tmp_path)
    harness = harnessed(place.sink(), str(tmp_path / "state"))
    for sequence in (2, 3):
        harness.publish(sequence, harness.stage(sequence, _rows(sequence)))
    faults.arm("iceberg.rewritten=raise@1")
    try:
        with pytest.raises(faults.InjectedFault):
            harness.sink.compact()
    finally:
        faults.arm("")
    assert (place.files(), sorted(place.numbers())) == (2, _numbers(3))
    assert harness.sink.compact() == (2, 1)
    assert sorted(place.numbers()) == _numbers(3)


def test_files_that_another_writer_replaced_are_not_brought_back(tmp_path, harnessed, monkeypatch):
    place = _Iceberg(tmp_path)
    harness = harnessed(place.sink(), str(tmp_path / "state"))
    for sequence in (2, 3):
        harness.publish(sequence, harness.stage(sequence, _rows(sequence)))
    commit = Table._do_commit

    def late(self, **arguments):
        monkeypatch.setattr(Table, "_do_commit", commit)
        place.table().delete("n = 20")
        commit(self, **arguments)

    monkeypatch.setattr(Table, "_do_commit", late)
    with pytest.raises(ConnectorUnavailable, match="changed 10 times while files were replaced"):
        harness.sink.compact()
    assert sorted(place.numbers()) == [21, 30, 31]


def test_sinks_without_compaction_are_refused(place, tmp_path):
    with pytest.raises(ConfigError, match=r"there is no (Delta|Iceberg) table"):
        place.sink().compact()
    with pytest.raises(GraphError, match="compact of a sink"):
        place.sink(compact=3600)
    wrong = CliRunner().invoke(app, ["compact", NAME, "--property", "uri"])
    assert "--property is NAME=VALUE" in wrong.output + wrong.stderr
