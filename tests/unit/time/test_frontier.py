"""The rules of the frontier: least of the inputs that are not idle, never back, none until each has one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidewheel._time.frontier import Frontier, Input, advanced, merged

A, B = Input("a", 10), Input("b", None)
times = st.none() | st.integers(-50, 50)


def test_none_until_each_input_has_an_epoch():
    assert merged({"a": Frontier(5, 0), "b": Frontier(None, 0)}, [A, B], 0, None) is None
    assert merged({"a": Frontier(5, 0), "b": Frontier(3, 0)}, [A, B], 0, None) == 3


def test_an_input_that_was_never_seen_is_active_from_the_first_commit_on():
    assert advanced({}, [A], [], 7) == {"a": Frontier(None, 7)}
    assert advanced({"a": Frontier(None, 7)}, [A], [], 9) == {"a": Frontier(None, 7)}


def test_an_idle_input_holds_nothing_back_and_one_without_a_limit_always_does():
    frontiers = {"a": Frontier(1, 0), "b": Frontier(9, 0)}
    assert merged(frontiers, [A, B], 10, None) == 1
    assert merged(frontiers, [A, B], 11, None) == 9
    assert merged({"a": Frontier(9, 0), "b": Frontier(1, 0)}, [A, B], 99, None) == 1


def test_an_input_that_is_silent_for_long_goes_on_as_the_clock_does():
    silent = Input("a", None, advance_after=10)
    frontiers = {"a": Frontier(5, 100)}
    assert [merged(frontiers, [silent], now, None) for now in (100, 110, 111, 150)] == [5, 5, 6, 45]
    # Data brings it back to its own time, and the job's time does not go back.
    again = advanced(frontiers, [silent], [{"a": 7}], 150)
    assert merged(again, [silent], 150, 45) == 45
    assert merged({"a": Frontier(None, 0)}, [silent], 150, None) is None
    assert merged({"a": Frontier(2**63 - 1, 0)}, [silent], 150, None) == 2**63 - 1


def test_when_all_are_idle_the_latest_counts():
    both = [A, Input("b", 10)]
    assert merged({"a": Frontier(1, 0), "b": Frontier(9, 0)}, both, 99, None) == 9
    assert merged({"a": Frontier(None, 0), "b": Frontier(None, 0)}, both, 99, 4) == 4


def test_an_input_that_has_ended_holds_nothing_back():
    assert merged({"a": Frontier(2**63 - 1, 0), "b": Frontier(4, 0)}, [A, B], 0, None) == 4


def test_partitions_count_each_for_itself_and_stand_for_their_operator():
    frontiers = advanced({"a": Frontier(None, 0)}, [A], [{"a/0": 5}, {"a/1": 3, "a/0": 4}], 8)
    assert frontiers == {"a/0": Frontier(5, 8), "a/1": Frontier(3, 8)}
    assert merged(frontiers, [A], 8, None) == 3
    assert merged({"a/0": Frontier(5, 0), "a/1": Frontier(9, 8)}, [A], 11, None) == 9


def test_an_input_that_the_program_no_longer_has_is_forgotten():
    assert advanced({"gone": Frontier(1, 0), "gone/2": Frontier(1, 0)}, [], [], 1) == {}


steps = st.lists(
    st.tuples(st.lists(st.dictionaries(st.sampled_from(["a", "b", "c/0", "c/1"]), times)), st.integers(0, 20))
)


@given(steps, st.none() | st.integers(0, 15))
def test_frontiers_and_their_merger_never_go_back_and_the_merger_is_never_above_an_active_input(given_steps, idle):
    inputs = [Input("a", idle), Input("b", None), Input("c", idle)]
    frontiers: dict[str, Frontier] = {}
    epoch, now = None, 0
    for seen, passed in given_steps:
        now += passed
        after = advanced(frontiers, inputs, seen, now)
        for name, frontier in frontiers.items():
            if name in after and frontier.time is not None:
                assert after[name].time is not None
                assert after[name].time >= frontier.time
        frontiers = after
        new = merged(frontiers, inputs, now, epoch)
        assert epoch is None or (new is not None and new >= epoch)
        if new != epoch:
            b = frontiers["b"]
            # b is never idle, so nothing moves without it.
            assert b.time is not None
            assert new is not None
            assert new <= b.time
        epoch = new
