"""Batches that a run offers itself: what it asks, what it records, and how it ends. Without Spark."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest

from tidewheel._checkpoint.manifest import SparkLog
from tidewheel._connectors.log_source import Log, Positions
from tidewheel._connectors.log_stream import LogReader
from tidewheel._connectors.stream_reader import DirectStream
from tidewheel._spark.checkpoint_folder import SparkFolder, source_offsets
from tidewheel._spark.own_query import OwnQuery
from tidewheel._spark.query_sources import QuerySources
from tidewheel._spark.source_lines import SourceLine, continued
from tidewheel.errors import ConfigError, ConnectorError
from waiting import SOON


class Growing(Log):
    """A log of one partition whose end is the next of some numbers each time it is asked, and stays at the last."""

    def __init__(self, ends: list[int]) -> None:
        self.ends, self.closed = ends, 0

    def start(self) -> Positions:
        return {"0": 5}

    def end(self, start: Positions) -> Positions:
        if not self.ends:
            raise ConnectorError("the server is gone")
        return {"0": self.ends.pop(0) if len(self.ends) > 1 else self.ends[0]}

    def read(self, partition: str, first: int, last: int) -> Iterator[pa.RecordBatch]:
        raise AssertionError("tasks read")

    def close(self) -> None:
        self.closed += 1


class Run:
    """A run over one log, which notes the batches that it is called with, and how they begin and end."""

    def __init__(self, path: Path, ends: list[int], log: SparkLog | None = None, on_batch=None) -> None:
        self.folder, self.log = SparkFolder(path), Growing(ends)
        self.folder.rebuild(log, (), continued(log, [SourceLine("in", "log", 0)], {}))
        self.batches: list[tuple[int, str | None, str]] = []
        self.called = threading.Semaphore(0)
        self.begun, self.cancelled = threading.Event(), threading.Event()
        self.on_batch = on_batch
        stream = DirectStream(LogReader(lambda: self.log, None), pa.schema([]))
        stream.begin()
        self.query = OwnQuery([stream], self.folder, self._on_batch, self.cancelled.set)

    def _on_batch(self, batch: int) -> None:
        self.captured, _ = self.folder.capture(batch, None)
        start, end = (self.captured.offsets.get(number) for number in (batch - 1, batch))
        self.batches.append((batch, start and source_offsets(start)[0], source_offsets(end)[0]))
        self.begun.set()
        if self.on_batch is not None:
            self.on_batch(self, batch)
        self.called.release()

    def take(self, number: int) -> list[tuple[int, str | None, str]]:
        """Wait for some batches, and stop."""
        for _ in range(number):
            assert self.called.acquire(timeout=SOON)
        self.query.stop()
        return self.batches


def test_a_batch_is_offered_when_there_is_something_new_and_begins_where_the_last_ended(tmp_path):
    batches = Run(tmp_path / "spark", [7, 7, 7, 9, 9, 12]).take(3)
    assert batches == [(0, None, '{"0": 7}'), (1, '{"0": 7}', '{"0": 9}'), (2, '{"0": 9}', '{"0": 12}')]


def test_the_first_batch_is_offered_though_it_is_empty_so_that_its_commit_says_where_the_job_begins(tmp_path):
    assert Run(tmp_path / "spark", [5, 5, 6]).take(2) == [(0, None, '{"0": 5}'), (1, '{"0": 5}', '{"0": 6}')]


def test_a_run_goes_on_from_the_commit_whoever_offered_its_batches(tmp_path):
    by_spark = SparkLog(
        "6a7e2d6c-0000-4c1e-8a6e-2d9f1f5c0001",
        {batch: f'v1\n{{"batchWatermarkMs":0}}\n{{"0": {end}}}' for batch, end in ((6, 20), (7, 30))},
        dict.fromkeys((6, 7), 'v1\n{"nextBatchWatermarkMs":0}'),
        {},
        (),
        continued(None, [SourceLine("in", "log", 0)], {}).sources,
        1,
    )
    first = Run(tmp_path / "first", [30, 31, 33], by_spark)
    assert first.take(2) == [(8, '{"0": 30}', '{"0": 31}'), (9, '{"0": 31}', '{"0": 33}')]
    second = Run(tmp_path / "second", [34], first.captured)
    assert second.take(1) == [(10, '{"0": 33}', '{"0": 34}')]


def test_sources_that_spark_asks_or_reads_are_refused_by_name():
    stream = DirectStream(LogReader(lambda: Growing([7]), None), pa.schema([]))

    def sources(readers: dict, why_not: str | None = None) -> QuerySources:
        return QuerySources(None, None, (), SimpleNamespace(readers=readers, why_not=why_not), stream)

    assert sources({"in": stream}).streams() == [stream, stream]
    with pytest.raises(ConfigError, match=r"'direct' is for .*; source 'files' is asked for what is new by Spark"):
        sources({"in": stream, "files": object()}).streams()
    with pytest.raises(ConfigError, match="source 'in': reader='spark' was chosen"):
        sources({}, "source 'in': reader='spark' was chosen").streams()


def test_only_the_offsets_of_the_last_two_batches_are_kept(tmp_path):
    run = Run(tmp_path / "spark", [*range(6, 16)])
    run.take(9)
    kept = sorted(int(file.name) for file in (tmp_path / "spark" / "offsets").iterdir())
    assert kept == [run.batches[-1][0] - 1, run.batches[-1][0]]


def test_a_source_that_cannot_be_asked_ends_it_with_its_own_error(tmp_path):
    run = Run(tmp_path / "spark", [])
    with pytest.raises(ConnectorError, match="the server is gone"):
        assert run.query.await_end(SOON)
    assert run.batches == []


def test_a_batch_that_fails_ends_it_with_its_own_error_and_is_the_last(tmp_path):
    def fail(run, batch):
        raise ValueError(f"batch {batch} is bad")

    run = Run(tmp_path / "spark", [6, 7], on_batch=fail)
    with pytest.raises(ValueError, match="batch 0 is bad"):
        run.query.await_end(SOON)
    assert len(run.batches) == 1
    assert run.log.closed


def test_a_stop_in_the_middle_of_a_batch_cancels_it_and_waits_for_its_end(tmp_path):
    run = Run(tmp_path / "spark", [6, 7], on_batch=lambda run, _: run.cancelled.wait(SOON))
    assert run.begun.wait(SOON)
    assert not run.query.await_end(0)
    run.query.stop()
    assert run.cancelled.is_set()
    assert len(run.batches) == 1
    assert run.query.await_end(0)


def test_it_tells_whether_it_waits_and_where_the_time_of_each_batch_went(tmp_path):
    run = Run(tmp_path / "spark", [6])
    assert run.called.acquire(timeout=SOON)
    while not run.query.is_waiting():
        assert not run.query.await_end(0.01)
    assert not run.cancelled.is_set()
    run.query.stop()
    assert set(run.query.durations()[0]) == {"latestOffset", "walCommit", "addBatch", "triggerExecution"}
