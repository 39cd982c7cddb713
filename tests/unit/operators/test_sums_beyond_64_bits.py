"""A sum that exceeds 64 bits in a window or session is rejected, and the job continues."""

from __future__ import annotations

import itertools

import pytest

from tidewheel import Job, count, session, sliding, sum_, tumbling
from tidewheel.errors import StepError
from tidewheel.sinks import collect
from tidewheel.testing import MemoryRun

_fresh = itertools.count()
HUGE = 2**62


class Program:
    """A program with windows of sums, with or without dead letters, that goes on from one start to the next."""

    def __init__(self, windows, *, dead_letters: bool = True, lateness: str | None = None) -> None:
        self.windows, self.lateness, self.dead_letters = windows, lateness, dead_letters
        self.state, self.out, self.dead = f"memory:sums-{next(_fresh)}", collect(), collect()

    def job(self) -> Job:
        job = Job("sums", state=self.state, n_shards=2)
        source = job.source("in", lambda spark: None).assign_timestamps("time", "at", unit="ns")
        on_time = source.limit_out_of_orderness("bound", "5 ns")
        taken = on_time if self.lateness is None else on_time.union("all", on_time.late)
        if self.lateness is None:
            on_time.late.sink("late", collect())
        options = {} if self.lateness is None else {"allowed_lateness": self.lateness}
        sums = taken.key_by("by", "user").window("w", self.windows, total=sum_("n"), rows=count(), **options)
        sums.sink("out", self.out)
        if self.dead_letters:
            job.dead_letter("dead", self.dead)
        return job

    def run(self, *batches, flush: bool = True) -> list[tuple]:
        with MemoryRun(self.job(), take_over=True) as run:
            for batch in batches:
                run.batch({"in": [{"user": user, "at": at, "n": n} for user, at, n in batch]})
            if flush:
                run.flush()
        return sorted((r["user"], r["start"], r["total"], r["rows"]) for r in self.out.records)

    @property
    def errors(self) -> list[tuple]:
        return [(r["step"], r["key"], "exceeds 64 bits" in r["error"]) for r in self.dead.records]


def test_a_message_that_joins_two_sessions_with_large_sums_is_put_aside():
    program = Program(session("4 ns"))
    found = program.run([("a", 10, HUGE), ("a", 16, HUGE), ("b", 10, 1)], [("a", 13, 1), ("b", 13, 2)], [("a", 30, 5)])
    assert found == [("a", 10, HUGE, 1), ("a", 16, HUGE, 1), ("a", 30, 5, 1), ("b", 10, 3, 2)]
    assert program.errors == [("w", "a", True)]


def test_a_session_whose_sum_would_grow_too_large_stays_as_it_was():
    program = Program(session("4 ns"))
    found = program.run([("a", 10, HUGE)], [("a", 11, HUGE), ("b", 11, 1)])
    assert found == [("a", 10, HUGE, 1), ("b", 11, 1, 1)]
    assert program.errors == [("w", "a", True)]


def test_late_messages_of_one_moment_with_large_sums_are_put_aside():
    program = Program(session("4 ns"), lateness="100 ns")
    found = program.run(
        [("a", 10, 1), ("b", 50, 1)], [("b", 60, 1)], [("a", 11, HUGE), ("a", 11, HUGE), ("a", 11, HUGE)]
    )
    assert ("a", 10, 1, 1) in found
    assert ("a", 10, HUGE + 1, 2) in found
    assert program.errors == [("w", "a", True)] * 2


@pytest.mark.parametrize("lateness", [None, "100 ns"])
def test_a_sliding_window_whose_panes_sum_to_too_much_is_put_aside(lateness):
    program = Program(sliding("10 ns", "5 ns"), lateness=lateness)
    found = program.run([("a", 1, HUGE), ("b", 1, 1)], [("a", 6, HUGE), ("b", 6, 1)], [("b", 40, 1)])
    assert found == [
        ("a", -5, HUGE, 1),
        ("a", 5, HUGE, 1),
        ("b", -5, 1, 1),
        ("b", 0, 2, 2),
        ("b", 5, 1, 1),
        ("b", 35, 1, 1),
        ("b", 40, 1, 1),
    ]
    assert program.errors == [("w", "a", True)]
    assert program.dead.records[0]["record"] == '{"start": 0, "end": 10}'


def test_a_correction_of_a_sliding_window_that_overflows_is_set_aside():
    program = Program(sliding("10 ns", "5 ns"), lateness="100 ns")
    found = program.run([("a", 1, HUGE)], [("b", 40, 1)], [("b", 41, 1)], [("a", 6, HUGE)])
    assert ("a", 5, HUGE, 1) in found
    assert program.errors == [("w", "a", True)]


@pytest.mark.parametrize(
    ("windows", "batches"),
    [
        (session("4 ns"), [[("a", 10, HUGE)], [("a", 11, HUGE)]]),
        (sliding("10 ns", "5 ns"), [[("a", 1, HUGE)], [("a", 6, HUGE)], [("b", 40, 1)]]),
    ],
    ids=["session", "sliding"],
)
def test_without_dead_letters_the_job_stops_until_it_has_them(windows, batches):
    program = Program(windows, dead_letters=False)
    with pytest.raises(StepError, match=r"(?s)step 'w', key 'a'.*exceeds 64 bits.*dead_letter"):
        program.run(*batches)
    program.dead_letters = True
    program.run(batches[-1])
    assert ("w", "a", True) in program.errors


@pytest.mark.parametrize("windows", [session("4 ns"), sliding("10 ns", "5 ns"), tumbling("20 ns")], ids=str)
def test_a_function_whose_sum_leaves_64_bits_costs_no_other_key(windows):
    job, out, dead = Job("sums", state=f"memory:sums-{next(_fresh)}", n_shards=2), collect(), collect()
    timed = job.source("in", lambda spark: None).assign_timestamps("time", "at", unit="ns")
    on_time = timed.limit_out_of_orderness("bound", "9 ns")
    on_time.late.sink("late", collect())
    options = {"merge": lambda a, b: a + b} if windows == session("4 ns") else {}
    sums = on_time.key_by("by", "user").window("w", windows, lambda total, row: total + 4 * row.n, default=0, **options)
    sums.sink("out", out)
    job.dead_letter("dead", dead)
    with MemoryRun(job) as run:
        run.batch({"in": [{"user": "a", "at": 10, "n": HUGE}, {"user": "b", "at": 10, "n": 1}]})
        run.batch({"in": [{"user": "a", "at": 12, "n": HUGE}, {"user": "b", "at": 12, "n": 1}]})
        run.batch({"in": [{"user": "a", "at": 13, "n": 5}, {"user": "b", "at": 13, "n": 1}]})
        run.flush()
    assert dead.records
    assert {r["key"] for r in dead.records} == {"a"}
    assert {r["value"] for r in out.records if r["user"] == "b"} == {12}
