"""ticks: the clock as a source."""

from __future__ import annotations

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from tidewheel._connectors.spark.ticks import TickReader, ticks
from tidewheel.errors import ConfigError


class Clock:
    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def rows(reader, start, end):
    return [
        row["tick"]
        for part in reader.partitions(start, end)
        for batch in reader.read(part)
        for row in batch.to_pylist()
    ]


def test_a_tick_when_an_interval_has_passed():
    clock = Clock(100.0)
    reader = TickReader(5, clock)
    first = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    assert rows(reader, reader.initialOffset(), first) == [20]
    clock.now = 104.9
    assert reader.latestOffset(first, ReadAllAvailable()) == first
    assert rows(reader, first, first) == []
    clock.now = 105
    assert rows(reader, first, reader.latestOffset(first, ReadAllAvailable())) == [21]


def test_a_long_pause_gives_one_row():
    clock = Clock(100.0)
    reader = TickReader(1, clock)
    first = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    clock.now += 600_000
    assert rows(reader, first, reader.latestOffset(first, ReadAllAvailable())) == [600_100]


def test_a_clock_that_is_set_back_gives_none():
    clock = Clock(100.0)
    reader = TickReader(1, clock)
    clock.now = 50
    assert reader.latestOffset({"tick": 100}, ReadAllAvailable()) == {"tick": 100}


def test_all_there_is_now_ends_though_the_clock_goes_on():
    clock = Clock(100.0)
    reader = TickReader(1, clock)
    reader.prepareForTriggerAvailableNow()
    clock.now = 200
    end = reader.latestOffset({"tick": 0}, ReadAllAvailable())
    assert end == {"tick": 100}
    assert reader.latestOffset(end, ReadAllAvailable()) == end


def test_the_first_batch_has_the_same_tick_when_it_runs_again():
    end = {"tick": 100}
    assert rows(TickReader(1, Clock(500)), TickReader(1, Clock(500)).initialOffset(), end) == [100]


def test_one_batch_on_spark_when_all_there_is_is_read(reading):
    batches = reading.run(ticks(3600))
    assert [len(batch) for batch in batches] == [1]


def test_an_interval_of_nothing_is_refused():
    with pytest.raises(ConfigError, match="above 0"):
        ticks(0)
