"""Patterns against a model that looks forward from each first message."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from tidewheel import Job, Pattern
from tidewheel.sinks import collect
from tidewheel.testing import run_in_memory

_fresh = itertools.count()
WITHIN = 8
EVENTS = st.lists(st.tuples(st.sampled_from("kl"), st.sampled_from("abcx"), st.integers(0, 25)), max_size=30)


def expected(events, least, most, without):
    """Return the matches of `a` least to most times, followed by `b`, as the numbers of their messages."""
    found = []
    for first, (kind, at) in enumerate(events):
        if kind != "a":
            continue
        taken, last = [first], None
        for number, (other, time) in enumerate(events[first + 1 :], first + 1):
            if time > at + WITHIN:
                break
            if len(taken) >= least and other == "b":
                last = number
                break
            if len(taken) >= least and other == without:
                break
            if other == "a" and len(taken) < most:
                taken.append(number)
        if last is not None:
            found.append((taken, last))
    return found


@settings(max_examples=80, deadline=None)
@given(events=EVENTS, size=st.integers(1, 30), least=st.integers(1, 2), more=st.integers(0, 2), without=st.booleans())
def test_matches_are_those_of_the_model(events, size, least, more, without):
    ended = {"without": lambda event, matched: event.kind == "c"} if without else {}
    pattern = Pattern("a", lambda event, matched: event.kind == "a", times=(least, least + more)).then(
        "b", lambda event, matched: event.kind == "b", **ended
    )
    job = Job("model", n_shards=4, state=f"memory:match-model-{next(_fresh)}")
    timed = job.source("in", lambda spark: None).event_time("at", unit="ns", max_delay="25 ns")
    matches = timed.key_by("by", "key").match("m", pattern, within=f"{WITHIN} ns")
    numbers = matches.map("n", lambda m: [each.number for step in ("a", "b") for each in m.values[step]])
    numbers.sink("out", collect())
    rows = [{"key": k, "kind": kind, "at": at, "number": n} for n, (k, kind, at) in enumerate(events)]
    batches = [{"in": rows[at : at + size]} for at in range(0, len(rows), size)] or [{"in": []}]
    out = run_in_memory(job, batches, parallelism=2).outputs["out"]
    want = []
    for key in "kl":
        own = sorted((row for row in rows if row["key"] == key), key=lambda row: row["at"])
        for taken, last in expected([(row["kind"], row["at"]) for row in own], least, least + more, "c" * without):
            want.append([own[number]["number"] for number in [*taken, last]])
    assert sorted(row["value"] for row in out) == sorted(want)
