"""Windows in a time zone: days of 23 and 25 hours, and clocks that never go back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewheel import sliding, tumbling
from tidewheel._time.local_clock import local_clock
from tidewheel._time.panes import Panes
from tidewheel.errors import GraphError

HOUR = 3600 * 10**9
ZONES = ["Europe/Berlin", "America/Sao_Paulo", "Pacific/Apia", "America/Havana", "Asia/Kolkata", "UTC"]
"""Sao Paulo changed at midnight, Apia skipped a day, and Kolkata is half an hour off."""
times = st.integers(int(datetime(2005, 1, 1).timestamp()), int(datetime(2027, 1, 1).timestamp())).map(
    lambda second: second * 10**9
)


def ns(text: str, zone: str = "UTC") -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()) * 10**9


@given(st.sampled_from(ZONES), times)
def test_the_local_time_is_the_time_on_clocks_except_in_a_repeated_hour(zone, time):
    shown = datetime.fromtimestamp(time // 10**9, ZoneInfo(zone))
    plain = int(shown.replace(tzinfo=UTC).timestamp()) * 10**9
    local = int(local_clock(zone).local(time))
    if shown.fold:
        assert plain < local <= plain + HOUR
    else:
        assert local == plain


@given(st.sampled_from(ZONES), times, times)
def test_the_local_time_never_goes_back_and_is_reached_at_a_known_time(zone, one, other):
    clock = local_clock(zone)
    earlier, later = sorted((one, other))
    assert clock.local(earlier) <= clock.local(later)
    assert (clock.local(one) >= other) == (one >= clock.reached(other))


@pytest.mark.parametrize(("day", "hours"), [("2026-03-28", 24), ("2026-03-29", 23), ("2026-10-25", 25)])
def test_a_day_in_berlin_begins_and_ends_at_midnight_there(day, hours):
    [(start, end)] = tumbling("1 day", timezone="Europe/Berlin").of(ns(f"{day} 12:00"))
    following = (datetime.fromisoformat(day) + timedelta(days=1)).isoformat()
    assert (start, end) == (ns(day, "Europe/Berlin"), ns(following, "Europe/Berlin"))
    assert end - start == hours * HOUR


def test_an_offset_is_a_time_of_day_in_the_zone():
    [(start, _)] = tumbling("1 day", offset="6 hours", timezone="Europe/Berlin").of(ns("2026-07-01 12:00"))
    assert start == ns("2026-07-01 06:00", "Europe/Berlin")


def test_a_boundary_that_clocks_skip_is_where_they_are_turned_forward():
    # On 29 March 2026, clocks in Berlin go from 02:00 to 03:00.
    [(start, _)] = tumbling("1 day", offset="150 min", timezone="Europe/Berlin").of(ns("2026-03-29 12:00"))
    assert start == ns("2026-03-29 01:00")


def test_a_week_can_begin_on_monday():
    [(start, end)] = tumbling("7 days", offset="4 days", timezone="Europe/Berlin").of(ns("2026-10-22 12:00"))
    assert (start, end) == (ns("2026-10-19", "Europe/Berlin"), ns("2026-10-26", "Europe/Berlin"))


panes_of = st.builds(
    lambda length, every, offset, zone: Panes(
        sliding(f"{length} days", f"{every} days", offset=f"{offset} min", timezone=zone), 0
    ),
    st.integers(1, 3),
    st.integers(1, 3),
    st.integers(0, 1500),
    st.sampled_from(ZONES),
)


@given(panes_of, st.lists(times, max_size=5), times, times)
def test_panes_agree_with_windows(panes, given_times, after, until):
    starts = panes.of(np.array(given_times, np.int64))
    positions, windows = panes.due(starts, after, until)
    begins, ends = panes.spans(windows)
    assert sorted(zip(positions.tolist(), begins.tolist(), ends.tolist(), strict=True)) == sorted(
        (at, start, end)
        for at, time in enumerate(given_times)
        for start, end in panes.windows.of(time)
        if after < end - 1 <= until
    )
    for time, following in zip(given_times, panes.next(starts, after).tolist(), strict=True):
        all_ends = [end - 1 for _, end in panes.windows.of(time)]
        if all_ends:
            assert following == min((end for end in all_ends if end > after), default=max(all_ends))


def test_windows_in_a_time_zone_have_whole_days():
    with pytest.raises(GraphError, match="whole days"):
        tumbling("1 hour", timezone="Europe/Berlin")


@pytest.mark.parametrize("zone", ["Mars/Olympus", "/etc/passwd", "Europe"])
def test_an_unknown_time_zone_is_refused(zone):
    with pytest.raises(GraphError, match="there is no time zone"):
        tumbling("1 day", timezone=zone)
