"""The rules of the frontier: the minimum of all inputs that are not idle, never back, none until each has one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidewheel._time.frontier import FORGOTTEN_AFTER, Asked, Frontier, Input, advanced, merged

A, B = Input("a", 10), Input("b", None)
times = st.none() | st.integers(-50, 50)


def test_none_until_each_input_has_an_epoch():
    assert merged({"a": Frontier(5), "b": Frontier(None)}, [A, B], None) is None
    assert merged({"a": Frontier(5), "b": Frontier(3)}, [A, B], None) == 3


def test_an_input_that_was_never_seen_is_silent_from_the_second_batch_on():
    first = advanced({}, [A], [], Asked(7))
    assert first == {"a": Frontier(None)}
    assert advanced(first, [A], [], Asked(2)) == {"a": Frontier(None, 2)}


def test_an_idle_input_holds_nothing_back_unless_it_has_no_limit():
    frontiers = {"a": Frontier(1, 10), "b": Frontier(9)}
    assert merged(frontiers, [A, B], None) == 1
    assert merged({**frontiers, "a": Frontier(1, 11)}, [A, B], None) == 9
    assert merged({"a": Frontier(9), "b": Frontier(1, 99)}, [A, B], None) == 1


def test_an_input_is_silent_while_it_is_asked_and_has_nothing():
    silent = advanced({"a": Frontier(5)}, [A], [], Asked(waited=4))
    assert silent == {"a": Frontier(5, 4)}
    assert advanced(silent, [A], [], Asked(waited=3)) == {"a": Frontier(5, 7)}
    assert advanced(silent, [A], [{"a": 6}], Asked(waited=3)) == {"a": Frontier(6)}


def test_an_input_whose_source_is_held_back_is_not_silent():
    """Otherwise it would become idle, and its messages late, while the run does not read them."""
    assert advanced({"a": Frontier(5)}, [A], [], Asked(waited=99), {"a"}) == {"a": Frontier(5)}
    assert advanced({"a/0": Frontier(5, 4)}, [A], [], Asked(waited=99), {"a"}) == {"a/0": Frontier(5, 4)}


def test_the_first_batch_of_a_run_makes_no_input_more_silent():
    assert advanced({"a": Frontier(5, 4)}, [A], [], Asked()) == {"a": Frontier(5, 4)}


def test_a_batch_that_takes_long_makes_no_input_idle():
    long = Asked(worked=1000)
    assert advanced({"a": Frontier(5)}, [A], [], long) == {"a": Frontier(5, 0)}
    assert advanced({"a": Frontier(5, 0)}, [A], [], long) == {"a": Frontier(5, 10)}
    assert not A.is_idle(Frontier(5, 10))


def test_an_input_without_data_in_a_busy_job_becomes_idle():
    frontiers = {"a": Frontier(5)}
    for _ in range(5):
        frontiers = advanced(frontiers, [A], [], Asked(worked=3))
    assert A.is_idle(frontiers["a"])


def test_a_long_silent_input_follows_the_clock():
    silent = Input("a", None, advance_after=10)
    assert [merged({"a": Frontier(5, long)}, [silent], None) for long in (None, 10, 11, 50)] == [5, 5, 6, 45]
    # Data brings it back to its own time, and the job's time does not go back.
    again = advanced({"a": Frontier(5, 50)}, [silent], [{"a": 7}], Asked(50))
    assert merged(again, [silent], 45) == 45
    assert merged({"a": Frontier(None, 150)}, [silent], None) is None
    assert merged({"a": Frontier(2**63 - 1, 150)}, [silent], None) == 2**63 - 1


def test_when_all_are_idle_the_latest_counts():
    both = [A, Input("b", 10)]
    assert merged({"a": Frontier(1, 99), "b": Frontier(9, 99)}, both, None) == 9
    assert merged({"a": Frontier(None, 99), "b": Frontier(None, 99)}, both, 4) == 4


def test_an_input_that_has_ended_holds_nothing_back():
    assert merged({"a": Frontier(2**63 - 1), "b": Frontier(4)}, [A, B], None) == 4


def test_partitions_count_separately_and_represent_their_step():
    frontiers = advanced({"a": Frontier(None)}, [A], [{"a/0": 5}, {"a/1": 3, "a/0": 4}], Asked(8))
    assert frontiers == {"a/0": Frontier(5), "a/1": Frontier(3)}
    assert merged(frontiers, [A], None) == 3
    assert merged({"a/0": Frontier(5, 11), "a/1": Frontier(9, 3)}, [A], None) == 9


def test_an_input_that_the_program_no_longer_has_is_forgotten():
    assert advanced({"gone": Frontier(1), "gone/2": Frontier(1)}, [], [], Asked()) == {}


asked = st.builds(Asked, st.integers(0, 20), st.integers(0, 20))
seen = st.lists(st.dictionaries(st.sampled_from(["a", "b", "c/0", "c/1"]), times))


@given(st.lists(st.tuples(seen, asked)), st.none() | st.integers(0, 15))
def test_frontiers_never_go_back_and_stay_below_every_active_input(given_steps, idle):
    inputs = [Input("a", idle), Input("b", None), Input("c", idle)]
    frontiers: dict[str, Frontier] = {}
    epoch = None
    for parts, how_long in given_steps:
        after = advanced(frontiers, inputs, parts, how_long)
        for name, frontier in frontiers.items():
            if name in after and frontier.time is not None:
                assert after[name].time is not None
                assert after[name].time >= frontier.time
        frontiers = after
        new = merged(frontiers, inputs, epoch)
        assert epoch is None or (new is not None and new >= epoch)
        if new != epoch:
            b = frontiers["b"]
            # b is never idle, so nothing moves without it.
            assert b.time is not None
            assert new is not None
            assert new <= b.time
        epoch = new


@given(st.lists(st.tuples(seen, asked), min_size=1), st.integers(1, 15))
def test_an_input_is_idle_only_if_asked_for_longer_than_its_limit(given_steps, idle):
    inputs = [Input("a", idle)]
    frontiers: dict[str, Frontier] = {}
    asked_for = 0
    for number, (parts, how_long) in enumerate(given_steps):
        frontiers = advanced(frontiers, inputs, parts, how_long)
        gave = any("a" in part for part in parts) or number == 0
        asked_for = 0 if gave else asked_for + how_long.waited + how_long.worked
        if inputs[0].is_idle(frontiers["a"]):
            assert asked_for > idle


def test_a_partition_idle_for_a_day_is_forgotten_unless_it_is_furthest():
    inputs = [Input("clock", idle_after=5)]
    frontiers = {"clock/0": Frontier(10), "clock/1": Frontier(30), "clock/2": Frontier(20)}
    day = Asked(waited=FORGOTTEN_AFTER)
    first = advanced(frontiers, inputs, [{"clock/2": 21}], day)
    assert set(first) == set(frontiers), "silent for a day, and not yet idle for one"
    second = advanced(first, inputs, [{"clock/2": 22}], day)
    assert set(second) == {"clock/1", "clock/2"}
    assert merged(second, inputs, 21) == 22
    third = advanced(second, inputs, [{"clock/0": 23, "clock/2": 40}], day)
    assert third["clock/0"] == Frontier(23), "it begins anew"
    assert set(third) == {"clock/0", "clock/2"}


def test_a_partition_that_is_never_idle_is_never_forgotten():
    inputs = [Input("clock", idle_after=None)]
    frontiers = {"clock/0": Frontier(10), "clock/1": Frontier(30)}
    for _ in range(3):
        frontiers = advanced(frontiers, inputs, [{"clock/1": 31}], Asked(waited=FORGOTTEN_AFTER))
    assert set(frontiers) == {"clock/0", "clock/1"}


def test_partitions_that_an_operator_has_no_more_are_forgotten():
    whole = Input("a", None, whole=True)
    frontiers = advanced({"a/1": Frontier(5), "a/2": Frontier(8)}, [whole], [{"a": 9}], None)
    assert frontiers == {"a": Frontier(9)}
    assert merged(frontiers, [whole], 5) == 9
