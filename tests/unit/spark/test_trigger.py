"""What may be said about when a run takes its next batch; the command line says the same."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tidewheel._spark.options import RunOptions
from tidewheel._spark.trigger import check_trigger
from tidewheel.errors import ConfigError


@pytest.mark.parametrize(
    ("trigger", "meant"),
    [
        (5, "'5 seconds'"),
        ("5", "'5 seconds'"),
        ("0.5", "'0.5 seconds'"),
        ("available_now", "'available-now'"),
        ("availableNow", "'available-now'"),
        ("available now", "'available-now'"),
        ("Direct", "'direct'"),
    ],
)
def test_what_is_no_trigger_is_refused_with_the_one_that_was_meant(trigger, meant):
    with pytest.raises(ConfigError, match=rf"is not a trigger; use 'available-now', .*Did you mean {meant}\?"):
        RunOptions(trigger=trigger).check_trigger()


@pytest.mark.parametrize("trigger", ["5 bananas", "", "-1 s", True])
def test_what_is_like_no_trigger_is_refused_with_those_that_there_are(trigger):
    with pytest.raises(ConfigError, match=r"is not a trigger; use .* or an interval such as '5 seconds'$"):
        check_trigger(trigger)


@pytest.mark.parametrize(
    ("trigger", "milliseconds"),
    [("5 s", 5000), ("1.5 min", 90_000), ("1 hour", 3_600_000), (timedelta(milliseconds=250), 250)],
)
def test_spark_gets_an_interval_in_words_that_it_knows(trigger, milliseconds):
    options = RunOptions(trigger=trigger)
    options.check_trigger()
    assert options.spark_trigger() == {"processingTime": f"{milliseconds} milliseconds"}
