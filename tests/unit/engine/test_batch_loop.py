"""The loop of a run: when a batch is due, and which positions it has."""

from __future__ import annotations

import threading
from typing import ClassVar

import pyarrow as pa
import pytest

from tidewheel._connectors.source import SourceReader
from tidewheel._engine.batch_loop import BatchLoop, Look, Trigger, decide, is_time, tick_of

NOW = 1000.0


@pytest.mark.parametrize(
    ("trigger", "look", "decision"),
    [
        (Trigger(), Look(NOW, new_data=True), "batch"),
        (Trigger(), Look(NOW), "wait"),
        (Trigger(), Look(NOW, unrecorded=True), "batch"),
        (Trigger(tick=1.0), Look(NOW, ticked=999), "batch"),
        (Trigger(tick=1.0), Look(NOW, ticked=1000), "wait"),
        (Trigger(tick=5.0), Look(NOW + 4.9, ticked=200), "wait"),
        (Trigger(ends=True), Look(NOW), "end"),
        (Trigger(ends=True), Look(NOW, unrecorded=True), "end"),
        (Trigger(ends=True), Look(NOW, new_data=True), "batch"),
    ],
)
def test_a_batch_is_due_with_new_data_a_tick_or_a_start_to_record(trigger, look, decision):
    assert decide(trigger, look) == decision


def test_a_clock_that_was_set_back_gives_no_tick_until_it_has_caught_up():
    trigger = Trigger(tick=1.0)
    assert decide(trigger, Look(NOW - 100, ticked=tick_of(trigger, NOW))) == "wait"
    assert is_time(Trigger(interval=5.0), NOW - 100, NOW) == 0.0


def test_sources_are_asked_once_an_interval_and_at_once_after_a_long_batch():
    trigger = Trigger(interval=5.0)
    assert is_time(trigger, NOW, None) == 0.0
    assert is_time(trigger, NOW + 2, NOW) == 3.0
    assert is_time(trigger, NOW + 30, NOW) == 0.0


class Numbers(SourceReader):
    """A source whose position is how many numbers were read; `there` are so many."""

    schema: ClassVar = pa.schema([("value", pa.int64())])

    def __init__(self, there: int, limit: int = 10, start: int = 0) -> None:
        self.there, self.most, self._start = there, limit, start
        self.frozen: int | None = None
        self.released: list[int] = []
        self.closed = False

    def start(self) -> int:
        return self._start

    def freeze(self) -> None:
        self.frozen = self.there

    def end(self, start: int) -> int:
        return min(start + self.most, self.there if self.frozen is None else self.frozen)

    def splits(self, start: int, end: int, tasks: int) -> list:
        return []

    def committed(self, position: int) -> None:
        self.released.append(position)

    def close(self) -> None:
        self.closed = True


def run(loop: BatchLoop) -> None:
    assert loop.await_end(60)


def test_a_held_back_source_is_not_read_and_is_polled_once_per_batch():
    class Asked(Numbers):
        asked = 0

        def end(self, start):
            self.asked += 1
            return super().end(start)

    ahead, last, batches, asked_about = Asked(20), Numbers(30), [], []

    def held_back(waiting):
        asked_about.append(set(waiting))
        return {"ahead"} if waiting == {"ahead", "last"} else ()

    run(
        BatchLoop(
            {"ahead": ahead, "last": last},
            {},
            Trigger(ends=True),
            lambda starts, ends, _: batches.append(ends),
            held_back=held_back,
        )
    )
    assert [(ends["ahead"], ends["last"]) for ends in batches] == [(0, 10), (0, 20), (0, 30), (10, 30), (20, 30)]
    assert asked_about[-2:] == [{"ahead"}, set()]
    assert ahead.asked == 3


def test_a_bounded_run_reads_all_existing_data_within_the_limits():
    seen = []
    one, other = Numbers(25), Numbers(5)

    def batch(starts, ends, asked):
        seen.append((dict(starts), dict(ends)))
        one.there = 100  # What comes later is left to the next run.

    run(BatchLoop({"one": one, "other": other}, {"other": 5}, Trigger(ends=True), batch))
    assert seen == [
        ({"one": 0, "other": 5}, {"one": 10, "other": 5}),
        ({"one": 10, "other": 5}, {"one": 20, "other": 5}),
        ({"one": 20, "other": 5}, {"one": 25, "other": 5}),
    ]
    assert one.released == [10, 20, 25]
    assert one.closed
    assert other.closed


class Fixed(Numbers):
    fixed_start = True


@pytest.mark.parametrize(("kind", "expected"), [(Numbers, [({"in": 7}, {"in": 7})]), (Fixed, [])])
def test_a_start_that_may_change_is_committed_without_data(kind, expected):
    batches, asked = [], []
    waiting = threading.Event()

    class Watched(kind):
        def end(self, start):
            asked.append(start)
            if len(asked) > 2:
                waiting.set()
            return super().end(start)

    loop = BatchLoop({"in": Watched(7, start=7)}, {}, Trigger(), lambda s, e, _: batches.append((dict(s), dict(e))))
    assert waiting.wait(60)
    loop.stop()
    assert batches == expected


def test_batches_have_a_limit_by_duration_only_where_one_is_wanted():
    class Limited(Numbers):
        def end(self, start):
            return min(super().end(start), self.there if self.limit is None else start + self.limit)

        def amount(self, start, end):
            return end - start

    def sizes(trigger):
        batches = []
        reader = Limited(5000, limit=10_000)
        run(BatchLoop({"in": reader}, {}, trigger, lambda s, e, _: batches.append(e["in"] - s["in"])))
        assert sum(batches) == 5000
        return batches

    assert sizes(Trigger(ends=True)) == [5000]
    first, *others = sizes(Trigger(ends=True, longest=60.0))
    assert (first, others) == (1000, [4000])


def test_an_error_of_a_batch_ends_the_loop_without_new_positions():
    reader = Numbers(5)

    def fail(starts, ends, asked):
        raise ValueError("no")

    loop = BatchLoop({"in": reader}, {}, Trigger(ends=True), fail)
    with pytest.raises(ValueError, match="no"):
        loop.await_end(60)
    assert reader.released == []
    assert reader.closed


def test_stopping_cancels_the_batch_that_runs():
    working, cancelled = threading.Event(), threading.Event()

    def batch(starts, ends, asked):
        working.set()
        assert cancelled.wait(60)
        raise ValueError("cancelled")

    loop = BatchLoop({"in": Numbers(5)}, {}, Trigger(), batch, cancelled.set)
    assert working.wait(60)
    loop.stop()
    with pytest.raises(ValueError, match="cancelled"):
        loop.await_end(1)


def test_ticks_make_batches_while_nothing_is_new():
    ticks, clock = [], iter(range(100, 10**9))
    done = threading.Event()

    def batch(starts, ends, asked):
        ticks.append(ends)
        if len(ticks) == 5:
            done.set()

    reader = Numbers(0)
    loop = BatchLoop({"in": reader}, {"in": 0}, Trigger(tick=3.0), batch, clock=lambda: float(next(clock)))
    assert done.wait(60)
    loop.stop()
    assert all(end == {"in": 0} for end in ticks)
