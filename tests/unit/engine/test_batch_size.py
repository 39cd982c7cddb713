"""The batch size for a target duration, on simulated machines of any speed."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tidewheel._engine.batch_size import FIRST, Done, next_amount

RATES = st.floats(1.0, 1e7)
"""Records a second."""
FIXED = st.floats(0.001, 5.0)
"""Seconds that a batch takes whatever it has."""
TARGETS = st.floats(0.1, 60.0)


def batches(fixed: float, rate: float, target: float, count: int = 60) -> list[Done]:
    """Return the batches of a machine with an endless backlog."""
    done: list[Done] = []
    for _ in range(count):
        amount = next_amount(done, target)
        done.append(Done(amount, fixed + amount / rate))
    return done


@settings(deadline=None)
@given(FIXED, RATES, TARGETS)
def test_batches_take_at_most_the_target_or_a_few_times_the_fixed_part(fixed, rate, target):
    two_records = fixed + 2 / rate
    assert all(
        done.seconds <= max(1.05 * target, 4 * fixed, two_records) for done in batches(fixed, rate, target)[-30:]
    )


@settings(deadline=None)
@given(FIXED, RATES, TARGETS)
def test_no_limit_keeps_a_job_behind(fixed, rate, target):
    # At least two fifths of the speed that endlessly long batches would have, however short the target is.
    last = batches(fixed, rate, target)[-30:]
    assert sum(done.amount for done in last) >= 0.4 * rate * sum(done.seconds for done in last) or rate * fixed < 4


@settings(deadline=None)
@given(st.lists(st.builds(Done, st.integers(0, 10**9), st.just(0.0) | st.floats(1e-6, 1e4)), max_size=10), TARGETS)
def test_a_batch_is_never_empty(recent, target):
    assert next_amount(recent, target) >= 1


@settings(deadline=None)
@given(st.builds(Done, st.integers(1, 10**6), st.floats(0.001, 100)), TARGETS, st.floats(1.0, 10.0))
def test_a_longer_target_never_gives_a_smaller_batch(done, target, factor):
    assert next_amount([done], target) <= next_amount([done], target * factor)


def test_a_job_that_was_quiet_takes_a_burst_in_few_batches():
    quiet = [Done(10, 0.05)] * 6
    done = list(quiet)
    for _ in range(6):
        amount = next_amount(done, 2.0)
        done.append(Done(amount, 0.05 + amount / 500_000))
    assert 1.8 <= done[-1].seconds <= 2.1


def test_a_batch_without_data_does_not_change_the_estimated_speed():
    assert next_amount([Done(0, 5.0)], 2.0) == FIRST
    assert next_amount([Done(100, 1.0), Done(0, 5.0)], 2.0) == 200
