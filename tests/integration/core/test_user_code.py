"""A failing function's error shows the user's own frames, also in its causes, and none of the framework."""

from __future__ import annotations

import json
import traceback
from pathlib import Path

import pytest

from tidewheel import Job, RunOptions, StatefulLogic, sinks, sources
from tidewheel.errors import StepError, UserTraceback
from tidewheel.testing import StepTester, run_in_memory

HERE = Path(__file__).name


def helper(record):
    return record["user"]


def step(record):
    return helper(record)


def place(function):
    return f"{HERE}:{function.__code__.co_firstlineno + 1} in {function.__name__}"


PLACE = f"({place(helper)}, called at {place(step)})"


def failing_job(function=step):
    job = Job("failing")
    job.source("in", sources.iterable([{"n": 1}]), type=dict).map("name", function).sink("out", sinks.collect())
    return job


def check_traceback(text):
    assert text.startswith("Traceback (most recent call last):")
    assert "in step\n    return helper(record)" in text
    assert 'in helper\n    return record["user"]' in text
    assert text.endswith("KeyError: 'user'")
    assert "tidewheel/_" not in text


def check_error(error):
    assert str(error) == f"step 'name', record {{'n': 1}}: KeyError: 'user' {PLACE}"
    assert isinstance(error.__cause__, UserTraceback)
    check_traceback(str(error.__cause__).strip())


def test_an_error_in_memory_names_user_frames_and_has_the_cause():
    with pytest.raises(StepError) as raised:
        run_in_memory(failing_job())
    check_error(raised.value)


def test_an_error_on_spark_names_user_frames_and_has_the_cause(spark, tmp_path):
    job = failing_job()
    job.state = f"file://{tmp_path}/state"
    with pytest.raises(StepError) as raised:
        job.run(until="caught-up", options=RunOptions(spark=spark))
    check_error(raised.value)


def test_an_error_of_the_step_tester_has_the_users_error_as_cause():
    tester = StepTester(lambda s: s.map("name", step))
    with pytest.raises(StepError) as raised:
        tester.send("ada", {"n": 1})
    assert str(raised.value).endswith(f"KeyError: 'user' {PLACE}")
    assert isinstance(raised.value.__cause__, KeyError)
    check_traceback("".join(traceback.format_exception(raised.value.__cause__)).rstrip())


def test_a_cause_that_the_user_chained_is_in_the_traceback():
    def wrapped(record):
        try:
            return helper(record)
        except KeyError as error:
            raise ValueError("no user") from error

    with pytest.raises(StepError, match=rf"ValueError: no user \({HERE}:\d+ in wrapped\)") as raised:
        run_in_memory(failing_job(wrapped))
    text = str(raised.value.__cause__)
    assert "KeyError: 'user'\n\nThe above exception was the direct cause" in text
    assert text.endswith("ValueError: no user")


def test_frames_of_packages_are_in_the_traceback_not_in_the_message():
    with pytest.raises(StepError, match=rf"JSONDecodeError: .* \({HERE}:\d+ in <lambda>\)$") as raised:
        run_in_memory(failing_job(lambda record: json.loads("{")))
    assert "json/decoder.py" in str(raised.value.__cause__)


def test_an_error_without_code_of_the_user_has_no_frames():
    with pytest.raises(StepError, match=r"record .*: TypeError: int.*'dict'$") as raised:
        run_in_memory(failing_job(int))
    assert raised.value.__cause__ is None


class OnTime(StatefulLogic):
    def on_data(self, message, state, output):
        output.set_timer(message.time, "soon")
        return 1

    def on_timer(self, timer, state, output):
        return helper({})


def test_a_timer_that_fails_names_the_users_frames():
    tester = StepTester(lambda s: s.stateful_op("op", OnTime()))
    tester.send("ada", 1, time=5)
    with pytest.raises(StepError, match=rf"timer 'soon' at 5: KeyError: 'user' \({HERE}:\d+ in helper, called at"):
        tester.epoch(6)
