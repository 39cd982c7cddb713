"""dataframe, rate, and what all sources have in common."""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading

import pytest

from tidewheel._values import ROW
from tidewheel.errors import ConfigError
from tidewheel.sources import dataframe, rate


def test_dataframe_calls_its_function_with_the_session():
    assert dataframe(lambda spark: (spark, "frame")).load("session") == ("session", "frame")


def test_dataframe_takes_a_function():
    with pytest.raises(ConfigError, match="not str"):
        dataframe("kafka")


def test_a_source_does_not_travel_so_its_function_may_hold_anything():
    held = threading.Lock()
    pickle.loads(pickle.dumps(dataframe(lambda spark: held)))


def test_rate_is_sparks(spark):
    frame = rate(10, partitions=2, ramp_up="1s").load(spark)
    assert frame.isStreaming
    assert frame.columns == ["timestamp", "value"]


def test_rate_needs_a_pace():
    with pytest.raises(ConfigError, match="at least one row"):
        rate(0)


def test_a_declared_shape_is_nothing_to_most_sources():
    source = rate(1)
    assert source.declared(ROW) is source


def test_sources_and_sinks_do_not_load_spark_until_they_are_used():
    code = "import sys, tidewheel.sources, tidewheel.sinks; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
