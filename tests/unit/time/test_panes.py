"""Panes agree with the windows themselves, timestamp by timestamp."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewheel import sliding, tumbling
from tidewheel._time.panes import FAR, Panes, far_times
from tidewheel.errors import GraphError

panes_of = st.builds(
    lambda length, every, offset, lateness: Panes(
        sliding(f"{length} ns", f"{every} ns", offset=f"{offset} ns"), lateness
    ),
    st.integers(1, 12),
    st.integers(1, 12),
    st.integers(0, 11),
    st.sampled_from([0, 5]),
)
epochs = st.integers(-50, 60) | st.sampled_from([-(2**63), 2**63 - 1])
times_of = st.lists(st.integers(-40, 40), max_size=8).map(lambda times: np.array(times, np.int64))


@given(panes_of, times_of, st.none() | epochs)
def test_a_timestamp_and_its_pane_share_windows_and_end_together(panes, times, epoch):
    starts = panes.of(times)
    for time, start, over in zip(times.tolist(), starts.tolist(), panes.over(starts, epoch).tolist(), strict=True):
        assert panes.windows.of(time) == panes.windows.of(start)
        assert over == all(epoch is not None and end - 1 + panes.lateness <= epoch for _, end in panes.windows.of(time))


@given(panes_of, times_of, st.none() | epochs, epochs)
def test_due_are_the_windows_that_end_between_two_epochs(panes, times, after, until):
    starts = panes.of(times)
    positions, windows = panes.due(starts, after, until)
    assert sorted(zip(positions.tolist(), windows.tolist(), strict=True)) == sorted(
        (at, start)
        for at, pane in enumerate(starts.tolist())
        for start, end in panes.windows.of(pane)
        if (after is None or end - 1 > after) and end - 1 <= until
    )


@given(panes_of, times_of, st.none() | epochs)
def test_next_is_the_first_window_end_after_an_epoch_or_the_pane_end(panes, times, after):
    starts = panes.of(times)
    for pane, time in zip(starts.tolist(), panes.next(starts, after).tolist(), strict=True):
        ends = [end - 1 for _, end in panes.windows.of(pane)]
        later = [end for end in ends if after is None or end > after]
        if ends:
            assert time == (min(later) if later else max(ends) + panes.lateness)


def test_timestamps_beyond_64_bits_are_refused():
    assert far_times(np.array([-FAR, 1 - FAR, 0, FAR - 1, FAR])).tolist() == [1, 0, 0, 0, 1]
    with pytest.raises(GraphError, match="must be at most"):
        Panes(tumbling("10 ns"), 2**60)
