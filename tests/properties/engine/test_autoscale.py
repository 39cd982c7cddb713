"""The rule that chooses the number of tasks, against a plain model of a job under load."""

from __future__ import annotations

from math import ceil, inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewheel._engine.autoscale import AutoScale, Limits, Load, Scale, next_scale
from tidewheel._engine.report import Report

loads = st.builds(
    Load,
    work=st.floats(0, 1000),
    longest=st.floats(0, 1000),
    elapsed=st.floats(0, 100),
    tasks=st.integers(1, 64),
    waited=st.floats(0, 1e5),
)


@given(
    st.integers(1, 64),
    st.tuples(st.integers(1, 64), st.integers(1, 64)).map(lambda two: Limits(min(two), max(two))),
    st.lists(loads, max_size=60),
)
def test_the_number_of_tasks_stays_within_its_limits(tasks, limits, batches):
    scale = Scale(tasks)
    for load in batches:
        before, scale = scale, next_scale(scale, load, limits)
        if scale.above == scale.below == 0:
            assert limits.least <= scale.tasks <= limits.most
        if limits.least <= before.tasks <= limits.most:
            assert before.tasks // 2 <= scale.tasks <= 2 * before.tasks


SHARDS = 64


class Model:
    """A job that takes all waiting rows, or `most` of them, in batches one after the other.

    A batch takes some seconds whatever it has, and some per row, which its tasks share.
    """

    def __init__(self, overhead: float, cost: float, most: float = inf, noise: float = 0.0, pattern: str = "") -> None:
        self.overhead, self.cost, self.most = overhead, cost, most
        self.noise, self.pattern, self.batches = noise, pattern or "=", 0
        self.waiting = 0.0
        self.arrivals: list[tuple[float, float]] = []
        self.now = 0.0

    def batch(self, rate: float, tasks: int) -> Load:
        """Run a batch while so many rows arrive in a second."""
        begin = self.now
        rows = min(self.waiting, self.most)
        kind = self.pattern[self.batches % len(self.pattern)]
        self.batches += 1
        work = rows * self.cost * (1 + {"+": self.noise, "-": -self.noise, "=": 0.0}[kind])
        # Whole shards: the tasks with one shard more work longer.
        longest = work * ceil(SHARDS / tasks) / SHARDS
        elapsed = self.overhead + longest
        self.now += elapsed
        self.waiting += rate * elapsed - rows
        # The oldest row that is left came when the rows before it had: the rest of them arrived since.
        waited = self.waiting / rate if rate else 0.0
        return Load(work, longest, elapsed, tasks, waited if waited > elapsed else self.now - begin)


def settled(model: Model, rate: float, scale: Scale, limits: Limits, batches: int = 1500) -> tuple[Scale, list[int]]:
    """Run under a constant load; return the scale at the end, and the number of tasks of each batch."""
    trace = []
    for _ in range(batches):
        scale = next_scale(scale, model.batch(rate, scale.tasks), limits)
        trace.append(scale.tasks)
    return scale, trace


needs = st.floats(0.05, 27.0)
"""How many tasks a load keeps busy. With 64 shards on at most 48 tasks, some task has two shards, so 32 are as good as 48."""


@given(needs, st.integers(1, 32), st.floats(0.02, 1.0), st.text("+-=", min_size=1, max_size=7))
def test_a_constant_load_gets_the_tasks_that_it_needs_and_keeps_them(need, first, overhead, pattern):
    limits, cost = Limits(1, 48), 1e-4
    model = Model(overhead, cost, noise=0.1, pattern=pattern)
    scale, trace = settled(model, need / cost, Scale(first), limits)
    assert len(set(trace[-500:])) == 1, f"it flaps: {trace[-50:]}"
    assert scale.tasks > need, "so many keep up"
    # Some tasks have a shard more than others, up to half more work than the average.
    assert scale.tasks <= max(ceil(1.5 * need * 1.1 / 0.4), 2), "not many more than it needs"
    assert model.waiting / (need / cost) < 60, "nothing piles up"


@given(needs, st.floats(0.02, 0.2), st.floats(1.0, 5.0))
def test_a_backlog_is_drained_and_the_tasks_for_it_go(need, overhead, seconds_of_work):
    """Batches are limited, and there is an hour of data: the job gets more tasks, drains it and has few again.

    A batch takes several times as long as an empty one: with smaller batches, no number of tasks drains a backlog soon.
    """
    limits, cost = Limits(1, 64), 1e-4
    rate = need / cost
    model = Model(overhead, cost, most=max(rate * seconds_of_work, 1.0))
    model.waiting = 60 * rate
    _, trace = settled(model, rate, Scale(max(1, ceil(need))), limits, batches=2000)
    assert model.waiting <= rate * 10 * seconds_of_work
    assert len(set(trace[-500:])) == 1, f"it flaps: {trace[-50:]}"


def test_the_number_follows_a_load_that_rises_and_falls():
    model, limits, scale = Model(0.1, 1e-4), Limits(1, 16), Scale(1)
    reached = []
    for rate in (2_000, 60_000, 2_000):
        scale, _ = settled(model, rate, scale, limits, batches=400)
        reached.append(scale.tasks)
    assert reached[0] == reached[2] == 1
    assert 7 < reached[1] < 16


@pytest.mark.parametrize("tasks", [1, 2])
def test_a_batch_that_is_too_small_for_its_tasks_gets_no_more(tasks):
    scale = Scale(2)
    for _ in range(10):
        scale = next_scale(scale, Load(work=1.9, longest=1.9 / tasks, elapsed=1.0, tasks=tasks), Limits(1, 8))
    assert (scale.tasks > 2) is (tasks == 2)


def test_more_tasks_are_no_help_for_one_key_with_most_messages():
    scale = Scale(2)
    for _ in range(50):
        scale = next_scale(scale, Load(work=1.0, longest=0.95, elapsed=1.0, tasks=scale.tasks), Limits(1, 32))
    assert scale.tasks <= 3


def test_more_tasks_are_no_help_for_data_that_waits_while_tasks_are_idle():
    """A sink or a store is slow: the batch takes long, and its tasks work for a short part of it."""
    scale = Scale(4)
    for _ in range(20):
        scale = next_scale(scale, Load(work=0.5, longest=0.2, elapsed=20.0, tasks=4, waited=60.0), Limits(1, 8))
    assert scale.tasks == 4


def test_hosts_that_join_later_get_tasks():
    """A cluster's workers may register after the run has begun."""
    cores, seconds = [2], iter(range(100))
    auto = AutoScale(2, lambda: Limits(1, cores[0]), patience=10.0, clock=lambda: float(next(seconds)))
    reached = []
    for cores[0] in (2, 6, 3):
        for _ in range(8):
            auto.note([Report(0, task, took=0.95) for task in range(auto.tasks)], auto.tasks, waited=0.0)
        reached.append(auto.tasks)
    assert reached == [2, 6, 3]
