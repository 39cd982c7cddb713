"""union: several streams as one, all with timestamps or none."""

from __future__ import annotations

import pytest

from tidewheel import Job
from tidewheel.errors import GraphError
from tidewheel.sources import iterable


def streams():
    job = Job("union", state="memory:union")
    return (job.source(name, iterable([]), type=dict) for name in ("a", "b"))


@pytest.mark.parametrize("first", [True, False])
def test_a_union_of_streams_with_and_without_timestamps_is_refused(first):
    timed, plain = streams()
    timed = timed.assign_timestamps("at", "i", unit="ns").filter("some", bool)
    one, other = (timed, plain) if first else (plain, timed)
    with pytest.raises(GraphError, match=r"'u' \(union\): some .* have timestamps and others do not \(number [01],"):
        one.union("u", other)


def test_streams_that_all_have_timestamps_or_none_are_fine():
    a, b = streams()
    a.union("plain", b)
    a.assign_timestamps("at", "i", unit="ns").union("timed", b.assign_timestamps("bt", "i", unit="ns"))


def test_the_output_of_a_logic_may_join_either_kind_of_stream():
    a, b = streams()
    logic = a.key_by("k", "i").stateful_op("op", lambda message, state, output: None)
    logic.union("u", b.assign_timestamps("bt", "i", unit="ns").key_by("kb", "i"))
