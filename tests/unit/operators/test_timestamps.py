"""Impossible timestamps, and timestamps too far in the future to be believed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tidewheel import Job, count, tumbling
from tidewheel.errors import StepError
from tidewheel.sinks import collect
from tidewheel.sources import iterable
from tidewheel.testing import Clock, MemoryRun

DAY = 86_400_000_000_000


class Daily:
    """Counts by key and day; tells what was counted, late, and rejected."""

    def __init__(self, name, time, *, dead_letter=True, assign=None, **options):
        self.out, self.late, self.dead, self.clock = collect(), collect(), collect(), Clock()
        self.job = Job(name, state=f"memory:timestamps-{name}", n_shards=4)
        timed = self.job.source("in", iterable([]), type=dict).assign_timestamps("time", time, **(assign or {}))
        on_time = timed.limit_out_of_orderness("bound", "0 s", **options)
        late = on_time.late
        late.sink("late", self.late)
        on_time.key_by("by", "k").window("w", tumbling(timedelta(days=1)), n=count()).sink("out", self.out)
        if dead_letter:
            self.job.dead_letter("dead", self.dead)

    def run(self, *batches):
        with MemoryRun(self.job, clock=self.clock) as run:
            for batch in batches:
                run.batch({"in": batch})
            run.flush()
            self.counts = run.run.head.counts
        return self

    def counted(self):
        return [(row["start"] // DAY * DAY, row["n"]) for row in self.out.records]


def row(at):
    return {"k": "a", "at": at}


GOOD, BAD = row(datetime(2026, 1, 1, tzinfo=UTC)), row(datetime(9999, 12, 31, tzinfo=UTC))
TIMES = {"column": "at", "function": lambda record: record["at"]}


@pytest.mark.parametrize("way", TIMES)
def test_a_year_that_does_not_fit_in_64_bits_is_that_records_error(way):
    daily = Daily(f"year-{way}", TIMES[way]).run([GOOD, BAD, GOOD])
    assert [row["n"] for row in daily.out.records] == [2]
    (dead,) = daily.dead.records
    assert dead["step"] == "time"
    assert "9999" in dead["record"]
    assert "does not fit in 64 bits" in dead["error"]


@pytest.mark.parametrize("way", TIMES)
def test_without_dead_letters_the_error_names_operator_and_record(way):
    with pytest.raises(StepError, match=r"step 'time', record .*9999.*does not fit in 64 bits"):
        Daily(f"year-fails-{way}", TIMES[way], dead_letter=False).run([GOOD, BAD])


def test_a_timestamp_outside_all_windows_is_an_error_of_its_record():
    daily = Daily("far", "at", assign={"unit": "ns"}, max_ahead=None).run(
        [row(DAY), row(4_100_000_000_000_000_000), row(DAY)]
    )
    assert daily.counted() == [(DAY, 2)]
    (dead,) = daily.dead.records
    assert (dead["step"], dead["key"]) == ("w", "a")
    assert "more than a century from 1970" in dead["error"]


def test_a_record_over_a_day_ahead_is_late_and_does_not_move_the_clock():
    now = Clock().now
    daily = Daily("ahead", "at")
    daily.run([row(now), row(now + 400 * DAY)], [row(now + 1)], [row(now + 2)])
    assert [record["at"] for record in daily.late.records] == [now + 400 * DAY]
    assert [row["n"] for row in daily.out.records] == [3]
    assert daily.counts["bound/ahead"] == 1
    assert "bound/late" not in daily.counts


def test_a_record_just_a_day_ahead_is_believed():
    now = Clock().now
    daily = Daily("a-day", "at").run([row(now + DAY)], [row(now + DAY + 1)])
    assert [record["at"] for record in daily.late.records] == [now + DAY + 1]


def test_how_far_ahead_is_for_the_program_to_say():
    now = Clock().now
    assert Daily("any", "at", max_ahead=None).run([row(now + 400 * DAY)]).late.records == []
    assert len(Daily("minute", "at", max_ahead=timedelta(minutes=1)).run([row(now + DAY)]).late.records) == 1


@pytest.mark.parametrize("way", TIMES)
def test_assign_timestamps_can_reject_timestamps_too_far_ahead(way):
    now = Clock().now
    daily = Daily(f"assign-{way}", TIMES[way], assign={"max_ahead": timedelta(hours=1)})
    daily.run([row(now), row(now + DAY // 2)])
    assert daily.late.records == []
    assert [row["n"] for row in daily.out.records] == [1]
    (dead,) = daily.dead.records
    assert "more than max_ahead, 3600000000000 ns, after the batch's time" in dead["error"]


def test_a_partition_with_only_future_records_does_not_set_the_time():
    now = Clock().now
    daily = Daily("partition", "at", partition="k")
    daily.run([row(now), {"k": "b", "at": now + 400 * DAY}], [row(now + 5)], [row(now + 3)])
    assert [record["at"] for record in daily.late.records] == [now + 400 * DAY, now + 3]
