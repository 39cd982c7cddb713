"""The programs under examples/ that are about time do what they say."""

from __future__ import annotations

import runpy
from pathlib import Path

from tidewheel.testing import run_in_memory

EXAMPLES = Path(__file__).parents[2] / "examples"


def outputs(name):
    return run_in_memory(runpy.run_path(str(EXAMPLES / name))["job"]).outputs


def lines(records):
    return sorted(record["value"] for record in records)


def test_windows():
    found = outputs("windows.py")
    assert lines(found["out"]) == [
        "10:00 to 10:10: tea 5, mug 2, pot 2",
        "10:10 to 10:20: mug 4, tea 1",
        "10:30 to 10:40: tea 5",
    ]
    assert lines(found["late"]) == ["too late: pot 9"]


def test_sessions():
    found = outputs("sessions.py")
    assert lines(found["out"]) == [
        "09:00, 25 minutes: home > tea > cart",
        "09:05, 0 minutes: home",
        "10:20, 25 minutes: mugs > cart",
        "10:30, 0 minutes: home",
    ]
    assert found.get("late", []) == []


def test_joins():
    # The rate is the one at the time when order and payment are both known, or when it is clear that none comes.
    assert lines(outputs("joins.py")["out"]) == [
        "order 1: 30",
        "order 2: 100, not paid",
        "order 3: 120",
        "order 4: 160",
    ]
