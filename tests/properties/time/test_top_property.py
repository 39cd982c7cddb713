"""The highest results of each window against a model that has all messages at hand."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from properties.time.test_windows_property import expected
from support.time_model import driven, modelled, scripts
from tidewheel import sliding, sum_, tumbling


@pytest.mark.parametrize("early", [None, "batch"])
@pytest.mark.parametrize("windows", [tumbling("10 ns"), sliding("10 ns", "4 ns")], ids=str)
@settings(max_examples=25, deadline=None)
@given(script=scripts(), n=st.integers(1, 3), modulus=st.integers(1, 4))
def test_top_emits_the_highest_results_of_each_window_once(early, windows, script, n, modulus):
    def program(streams, lates, out):
        sums = streams[0].window("w", windows, total=sum_("number"), early=early)
        # Many results are equal.
        sums.top("top", n, by=lambda row: row.total % modulus).sink("out", out)

    outputs, _ = driven(script, program, 2)
    model = modelled(script)
    rows = [(start, key, sum(numbers)) for (key, start, _), numbers in expected(windows, model.events()).items()]
    want = []
    for start in {start for start, _, _ in rows}:
        ranked = sorted((-(total % modulus), key, total) for at, key, total in rows if at == start)[:n]
        want += [(start, rank, key, total) for rank, (_, key, total) in enumerate(ranked, 1)]
    got = [(row["start"], row["rank"], row["key"], row["total"]) for batch in outputs for row in batch]
    assert sorted(got) == sorted(want)
    for number, batch in enumerate(outputs):
        for row in batch:
            at = model.batch_of(row["end"] - 1)
            assert (len(outputs) - 1 if at is None else at) == number
