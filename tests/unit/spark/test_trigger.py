"""What may be said about when a run takes its next batch; the command line says the same."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tidewheel._engine.batch_loop import Trigger
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
    ("options", "ticks", "trigger"),
    [
        ({"trigger": "5 s"}, False, Trigger(5.0)),
        ({"trigger": timedelta(milliseconds=250)}, True, Trigger(0.25, 1.0)),
        ({}, False, Trigger()),
        ({"tick": 0.5}, True, Trigger(0.0, 0.5)),
        ({"trigger": "available-now"}, True, Trigger(ends=True)),
        ({"bounded": True}, False, Trigger(ends=True)),
    ],
)
def test_the_loop_gets_the_interval_the_tick_and_whether_to_end(options, ticks, trigger):
    options = RunOptions(**options)
    options.check_trigger()
    assert options.loop_trigger(ticks=ticks) == trigger


def test_the_trigger_direct_is_what_every_run_does_and_warns():
    options = RunOptions(trigger="direct")
    with pytest.warns(DeprecationWarning, match="leave the trigger out"):
        options.check_trigger()
    assert options.loop_trigger(ticks=False) == Trigger()
