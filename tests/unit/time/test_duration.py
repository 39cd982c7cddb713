"""Durations as a user may write them."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tidewheel import Job
from tidewheel._time.duration import nanoseconds
from tidewheel.errors import GraphError

SECOND = 10**9


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("250 ms", SECOND // 4),
        ("90 s", 90 * SECOND),
        ("90s", 90 * SECOND),
        (" 1.5 min ", 90 * SECOND),
        ("1 hour", 3600 * SECOND),
        ("0.1 seconds", SECOND // 10),
        ("7 days", 7 * 86400 * SECOND),
        ("2 weeks", 14 * 86400 * SECOND),
    ],
)
def test_text_with_a_unit_is_a_duration(text, expected):
    assert nanoseconds(text, "the bound") == expected


@pytest.mark.parametrize("text", ["", "7", "days", "-1 s", "1 month", "1 h 30 min", "1e3 s"])
def test_any_other_text_is_refused_with_examples(text):
    with pytest.raises(GraphError, match=r"the bound cannot be read from .*write it as '250 ms', '90 s'"):
        nanoseconds(text, "the bound")


def test_a_job_keeps_checkpoints_by_number_or_by_age():
    assert (Job("a").keep, Job("a").keep_age) == (10, None)
    replayed = Job("a", keep=5, keep_for_replay="1 day")
    assert (replayed.keep, replayed.keep_age) == (5, 86400 * SECOND)
    assert Job("a", keep="2 days", keep_for_replay="1 day").keep_age == 2 * 86400 * SECOND
    for week in ("7 days", timedelta(days=7)):
        assert (Job("a", keep=week).keep, Job("a", keep=week).keep_age) == (1, 7 * 86400 * SECOND)


@pytest.mark.parametrize("keep", [0, "0 s", timedelta(0), "soon"])
def test_a_job_that_would_keep_nothing_is_refused(keep):
    with pytest.raises(GraphError, match="keep"):
        Job("a", keep=keep)
