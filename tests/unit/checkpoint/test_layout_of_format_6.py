"""Layouts that manifests of format 6 had as text become descriptions that print the same text."""

import pytest

from tidewheel._checkpoint.format_6 import layout_of
from tidewheel._state.layout import (
    IDS,
    JOINED_WINDOWS,
    NUMBERS,
    PANES,
    SESSION_MAPS,
    SESSION_ROWS,
    SESSIONS,
    WINDOWS,
    Accumulator,
    StateLayout,
)
from tidewheel._time.windows import Fixed

COUNT, SUM = Accumulator("count", "n"), Accumulator("sum", "n")
SLIDING = Fixed(60, 10, -5)
TEXTS = {
    "": StateLayout(),
    "window": StateLayout("window"),
    "interval join of tagged values": StateLayout("interval join of tagged values"),
    "states that expire by event time": StateLayout("states that expire by event time"),
    "sessions": StateLayout(SESSIONS),
    "count:n, sum:n": StateLayout(NUMBERS, numbers=(COUNT, SUM)),
    "rows:": StateLayout(NUMBERS, numbers=(Accumulator("rows"),)),
    "count:a, b@2, max:a@b": StateLayout(NUMBERS, numbers=(Accumulator("count", "a, b", 2), Accumulator("max", "a@b"))),
    "windows of 60 ns every 10 ns from -5": StateLayout(WINDOWS, SLIDING),
    "panes of windows of 60 ns every 10 ns from -5: count:n": StateLayout(PANES, SLIDING, (COUNT,)),
    "rows of sessions of count:n, sum:n": StateLayout(SESSION_ROWS, numbers=(COUNT, SUM)),
    "sessions of count:n": StateLayout(SESSION_MAPS, numbers=(COUNT,)),
    "both sides of windows of 60 ns every 10 ns from -5, as tagged values": StateLayout(JOINED_WINDOWS, SLIDING),
    "ids until 10 ns after their messages": StateLayout(IDS, after=10),
}


@pytest.mark.parametrize(("text", "layout"), TEXTS.items())
def test_a_text_becomes_the_layout_that_prints_it(text, layout):
    assert layout_of(text) == layout
    assert str(layout) == text


@pytest.mark.parametrize(
    "text", ["panes of windows of 1 ns every 01 ns from 0: count:n", "rows of sessions of what", "{"]
)
def test_a_layout_text_that_is_not_understood_stays_unchanged(text):
    assert layout_of(text) == StateLayout(text)
    assert str(layout_of(text)) == text
    assert layout_of(text).describe() == text
