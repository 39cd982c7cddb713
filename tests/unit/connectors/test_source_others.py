"""dataframe, rate, and common behaviour of all sources."""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading

import pytest

from tidewheel._connectors.memory.rate import RateReader
from tidewheel._values import ROW
from tidewheel.errors import ConfigError
from tidewheel.sources import dataframe, inbox, mqtt, rate


def test_dataframe_calls_its_function_with_the_session():
    assert dataframe(lambda spark: (spark, "frame")).load("session") == ("session", "frame")


def test_dataframe_takes_a_function():
    with pytest.raises(ConfigError, match="not str"):
        dataframe("kafka")


def test_a_source_does_not_travel_so_its_function_may_hold_anything():
    held = threading.Lock()
    pickle.loads(pickle.dumps(dataframe(lambda spark: held)))


def rows(reader, start, end):
    splits = pickle.loads(pickle.dumps(reader.splits(start, end, 3)))
    return [row for split in splits for batch in split.read() for row in batch.to_pylist()]


def test_rate_numbers_rows_at_its_pace_and_repeats_them():
    now = [1000.0]
    reader = RateReader(10, 2, 0, clock=lambda: now[0])
    start = reader.start()
    assert reader.end(start) == start
    now[0] += 3.7
    end = reader.end(start)
    found = rows(reader, start, end)
    assert [row["value"] for row in found] == list(range(30))
    assert [row["timestamp"].timestamp() for row in found] == [1000 + number / 10 for number in range(30)]
    assert rows(reader, start, end) == found
    now[0] += 2
    assert [row["value"] for row in rows(reader, end, reader.end(end))] == list(range(30, 50))


def test_a_frozen_rate_ends_and_a_clock_set_back_gives_nothing():
    now = [1000.0]
    reader = RateReader(10, None, 0, clock=lambda: now[0])
    start = reader.start()
    now[0] -= 500
    assert reader.end(start) == start
    now[0] += 505
    reader.freeze()
    now[0] += 100
    assert reader.end(start)["seconds"] == 5


def test_rate_keeps_to_a_limit_in_whole_seconds():
    now = [1000.0]
    reader = RateReader(10, None, 0, clock=lambda: now[0])
    start = reader.start()
    now[0] += 60
    reader.limit = 25
    assert reader.amount(start, reader.end(start)) == 20
    reader.limit = 1
    assert reader.amount(start, reader.end(start)) == 10


def test_rate_needs_a_pace():
    with pytest.raises(ConfigError, match="at least one row"):
        rate(0)


def test_a_declared_shape_is_nothing_to_most_sources():
    source = rate(1)
    assert source.declared(ROW) is source


def test_sources_and_sinks_do_not_load_spark_until_they_are_used():
    code = "import sys, tidewheel.sources, tidewheel.sinks; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_relative_urls_of_buffers_and_inboxes_are_made_absolute(tmp_path, monkeypatch):
    # Tasks can have another working directory than the program that names the folder.
    monkeypatch.chdir(tmp_path)
    broker = mqtt("mqtt://host", "a/#", buffer="file:buffer", client_id="me")
    events = inbox("file:inbox", dead_letters="file:dead")
    found = [broker.bridging.buffer, events.url, events.dead_letters]
    assert [str(url) for url in found] == [f"file://{tmp_path}/{name}" for name in ("buffer", "inbox", "dead")]
