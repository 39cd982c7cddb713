"""Fault points do nothing unless armed, and then exactly the requested action at the requested time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from support.internals import faults
from tidewheel.errors import TidewheelError

POINT = faults.declare("test.point", "a test has passed it")


@pytest.fixture(autouse=True)
def disarmed():
    yield
    faults.arm("")


def test_a_point_that_is_not_armed_does_nothing():
    faults.point(POINT)
    faults.arm("another.point=raise")
    faults.point(POINT)


def test_a_declared_point_is_listed_with_its_meaning():
    assert faults.POINTS[POINT] == "a test has passed it"


def test_the_points_of_the_engine_are_declared_once_each_with_a_text():
    import tidewheel._engine.claim
    import tidewheel._engine.run
    import tidewheel._engine.task  # noqa: F401

    assert {"start.claimed", "commit.before", "commit.created", "publish.done", "task.started"} <= set(faults.POINTS)
    assert all(faults.POINTS.values())


def test_raise_raises_once():
    faults.arm(f"{POINT}=raise")
    with pytest.raises(faults.InjectedFault, match=r"test\.point"):
        faults.point(POINT)
    faults.point(POINT)


def test_a_hit_has_its_number():
    faults.arm(f"{POINT}=raise@3")
    faults.point(POINT)
    faults.point(POINT)
    with pytest.raises(faults.InjectedFault):
        faults.point(POINT)


def test_arming_again_restarts_the_count():
    faults.arm(f"{POINT}=raise@2")
    faults.point(POINT)
    faults.arm(f"{POINT}=raise@2")
    faults.point(POINT)
    with pytest.raises(faults.InjectedFault):
        faults.point(POINT)


def test_several_points_are_armed_together():
    faults.arm(f"{POINT}=delay:0;other.point=raise")
    faults.point(POINT)
    with pytest.raises(faults.InjectedFault):
        faults.point("other.point")


def test_an_unknown_action_is_refused():
    faults.arm(f"{POINT}=explode")
    with pytest.raises(TidewheelError, match="unknown action 'explode'"):
        faults.point(POINT)


def test_kill_takes_the_process_group_of_the_job():
    program = "from tidewheel._core import faults; faults.remember_group(); faults.point('x'); print('survived')"
    ended = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "TIDEWHEEL_FAULTS": "x=kill"},
        start_new_session=True,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == -signal.SIGKILL
    assert ended.stdout == ""
