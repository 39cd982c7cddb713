"""match: sequences of messages of a key."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

from tidewheel import Job, Pattern, sources
from tidewheel.errors import GraphError, StepError
from tidewheel.sinks import collect
from tidewheel.testing import run_in_memory

_fresh = itertools.count()


def of(kind):
    return lambda event, matched: event.kind == kind


def ran(pattern, kinds, batch=100, within="10 ns", delay="5 ns", dead=False, **options):
    """Return the matches as texts of the kinds, in order; each kind comes with its time, or one after the other."""
    job = Job("match", state=f"memory:match-{next(_fresh)}")
    timed = job.source("in", lambda spark: None).event_time("at", unit="ns", max_delay=delay, name="clock")
    matches = timed.union("all", timed.late).key_by("by", "key").match("m", pattern, within=within, **options)
    matches.map("seen", seen).sink("out", collect())
    matches.late.sink("late", collect())
    if dead:
        job.dead_letter("dead", collect())
    rows = [{"key": "k", "kind": kind, "at": at} for at, kind in kinds]
    return run_in_memory(job, [{"in": rows[at : at + batch]} for at in range(0, len(rows), batch)]).outputs


def seen(match):
    steps = " ".join(f"{name}:{','.join(str(each.at) for each in values)}" for name, values in match.values.items())
    return f"{match.start}-{match.end} {steps}{'' if match.complete else ' incomplete'}"


def found(*arguments, **options):
    return [row["value"] for row in ran(*arguments, **options)["out"]]


AB = Pattern("a", of("a")).then("b", of("b"))


@pytest.mark.parametrize("batch", [1, 2, 100])
def test_a_followed_by_b(batch):
    events = [(1, "a"), (2, "x"), (3, "b"), (4, "b"), (5, "a"), (9, "b")]
    assert found(AB, events, batch=batch) == ["1-3 a:1 b:3", "5-9 a:5 b:9"]


def test_messages_are_matched_in_the_order_of_their_times():
    assert found(AB, [(4, "b"), (2, "a"), (6, "a"), (5, "b")]) == ["2-4 a:2 b:4"]


def test_a_late_message_is_in_the_late_stream():
    out = ran(AB, [(30, "a"), (31, "x"), (2, "b")], batch=1, delay="0 ns")
    assert [row["at"] for row in out["late"]] == [2]


def test_the_last_message_comes_within_the_time():
    assert found(AB, [(1, "a"), (11, "b")]) == ["1-11 a:1 b:11"]
    assert found(AB, [(1, "a"), (12, "b")]) == []


@pytest.mark.parametrize("batch", [1, 100])
def test_incomplete_matches_are_emitted_at_the_time_limit(batch):
    out = found(AB, [(1, "a"), (3, "b"), (4, "a"), (15, "b"), (40, "a")], batch=batch, incomplete=True)
    assert out == ["1-3 a:1 b:3", "4-4 a:4 b: incomplete", "40-40 a:40 b: incomplete"]


def test_without_ends_a_match():
    pattern = Pattern("a", of("a")).then("b", of("b"), without=of("c"))
    assert found(pattern, [(1, "a"), (2, "c"), (3, "b"), (4, "a"), (5, "b")]) == ["4-5 a:4 b:5"]


def test_a_repeated_step():
    pattern = Pattern("a", of("a"), times=2).then("b", of("b"))
    assert found(pattern, [(1, "a"), (2, "b"), (3, "a"), (4, "b")]) == ["1-4 a:1,3 b:4"]
    range_ = Pattern("a", of("a"), times=(1, 2)).then("b", of("b"))
    assert found(range_, [(1, "a"), (2, "a"), (3, "a"), (4, "b")], overlap=False) == ["1-4 a:1,2 b:4"]
    last = Pattern("a", of("a"), times=3)
    assert found(last, [(n, "a") for n in range(1, 7)], overlap=False) == ["1-3 a:1,2,3", "4-6 a:4,5,6"]


def test_a_condition_on_earlier_matches():
    pattern = Pattern("a", of("a")).then("b", lambda event, matched: event.at >= 2 * matched["a"][0].at)
    assert found(pattern, [(3, "a"), (5, "b"), (7, "b")]) == ["3-7 a:3 b:7"]


def test_matches_overlap_unless_the_program_forbids_it():
    events = [(1, "a"), (2, "a"), (3, "b"), (4, "b")]
    assert found(AB, events) == ["1-3 a:1 b:3", "2-3 a:2 b:3"]
    assert found(AB, events, overlap=False) == ["1-3 a:1 b:3"]


def test_a_condition_that_fails_rejects_its_message_alone():
    def condition(event, matched):
        return 1 / (event.at - 2) and event.kind == "b"

    out = ran(Pattern("a", of("a")).then("b", condition), [(1, "a"), (2, "b"), (3, "b")], dead=True)
    assert [row["value"] for row in out["out"]] == ["1-3 a:1 b:3"]
    assert "ZeroDivisionError" in out["dead"][0]["error"]


def test_a_condition_that_fails_stops_a_job_without_dead_letters():
    with pytest.raises(StepError, match="division by zero"):
        ran(Pattern("a", lambda event, matched: 1 / 0), [(1, "a")])


@dataclass
class Event:
    at: datetime
    kind: str


def test_times_are_datetimes_and_values_keep_their_class():
    job = Job("match", state=f"memory:match-{next(_fresh)}")
    first = datetime(2026, 1, 1, tzinfo=UTC)
    events = [Event(first, "a"), Event(first + timedelta(hours=1), "b")]
    timed = job.source("in", sources.iterable(events), type=Event).event_time("at", max_delay="0 s")
    matches, kept = timed.key_by("by", lambda event: 0).match("m", AB, within="2 hours"), []
    matches.inspect("look", kept.append).map("n", lambda match: len(match.values)).sink("out", collect())
    run_in_memory(job)
    assert [(match.start, match.end, match.values["b"]) for match in kept] == [(first, events[1].at, [events[1]])]


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda s: Pattern("a", of("a")).then("a", of("b")), "a name of its own"),
        (lambda s: Pattern("a", of("a"), times=0), "from 1 on"),
        (lambda s: Pattern("a", of("a"), times=(3, 2)), "from 1 on"),
        (lambda s: s.match("m", Pattern("a", of("a"), times=(1, 2)), within="1 s"), "write times=1"),
        (lambda s: s.match("m", Pattern("a", lambda event: True), within="1 s"), "called with value and matched"),
        (lambda s: s.match("m", "a", within="1 s"), "takes a Pattern"),
        (lambda s: s.match("m", AB, within="0 s"), "within="),
    ],
)
def test_a_pattern_that_cannot_match_is_refused(make, text):
    timed = Job("j").source("in", sources.iterable([{"k": 1, "at": 1}])).event_time("at", unit="ns", max_delay="0 s")
    with pytest.raises(GraphError, match=text):
        make(timed.key_by("by", "k"))
