"""Readers work also where Spark says neither where a batch begins nor how much it may take."""

from __future__ import annotations

from tidewheel._connectors.spark.ticks import TickReader
from tidewheel._connectors.stream_reader import ReadAllAvailable


def test_without_a_start_a_batch_takes_all_there_is():
    reader = TickReader(1.0, clock=lambda: 100.0)
    assert reader.latestOffset() == {"tick": 100}
    assert reader.latestOffset({"tick": 7}, ReadAllAvailable()) == {"tick": 100}
