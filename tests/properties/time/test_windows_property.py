"""Windows against a model that is given the same batch boundaries: any input, parallelism and kills."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.time_model import driven, modelled, scripts
from tidewheel import count, max_, mean, min_, session, sliding, sum_, tumbling
from tidewheel._time.windows import Fixed, Session, Windows
from tidewheel.sinks import collect

WINDOWS = [
    tumbling("10 ns"),
    tumbling("7 ns", offset="3 ns"),
    sliding("10 ns", "4 ns"),
    sliding("4 ns", "10 ns"),
    session("5 ns"),
]


def expected(windows: Windows, events: list[dict[str, Any]]) -> dict[tuple[str, int, int], list[int]]:
    """Return the numbers of the events in each window."""
    found: dict[tuple[str, int, int], list[int]] = {}
    if isinstance(windows, Session):
        for key in {event["key"] for event in events}:
            mine = sorted((e for e in events if e["key"] == key), key=lambda e: e["time"])
            groups: list[list[dict[str, Any]]] = []
            for event in mine:
                if groups and event["time"] - groups[-1][-1]["time"] < windows.gap:
                    groups[-1].append(event)
                else:
                    groups.append([event])
            for group in groups:
                at = (key, group[0]["time"], group[-1]["time"] + windows.gap)
                found[at] = sorted(event["number"] for event in group)
        return found
    for event in events:
        for start, end in windows.of(event["time"]):
            found.setdefault((event["key"], start, end), []).append(event["number"])
    return {at: sorted(numbers) for at, numbers in found.items()}


def build(windows):
    def program(streams, lates, out):
        fold = streams[0].window(
            "w", windows, lambda kept, row: [*kept, row.number], default=list, merge=lambda a, b: a + b
        )
        fold.sink("out", out)

    return program


@pytest.mark.parametrize("windows", WINDOWS, ids=str)
@settings(max_examples=25, deadline=None)
@given(script=scripts())
def test_windows_hold_messages_in_time_and_fire_with_the_first_later_epoch(windows, script):
    model = modelled(script)
    outputs, late = driven(script, build(windows))
    want = expected(windows, model.events())
    got = {(r["key"], r["start"], r["end"]): sorted(r["value"]) for batch in outputs for r in batch}
    assert got == want
    assert sum(map(len, outputs)) == len(want)
    assert sorted(r["number"] for r in late) == sorted(event["number"] for event in model.late)
    for number, batch in enumerate(outputs):
        for result in batch:
            at = model.batch_of(result["end"] - 1)
            assert (len(outputs) - 1 if at is None else at) == number


@settings(max_examples=15, deadline=None)
@given(one=scripts(ordered=True), other=scripts(ordered=True))
def test_with_input_in_order_the_results_do_not_depend_on_the_boundaries(one, other):
    events = [event for batch in one.batches for event in batch["in"]]
    again = [{"in": events[at : at + 1 + len(other.batches)]} for at in range(0, len(events), 1 + len(other.batches))]
    other.batches, other.bound = again, 0
    other.parallelism, other.killed = [2] * len(again), [False] * len(again)
    one.bound = 0

    def results(script):
        outputs, late = driven(script, build(session("5 ns")))
        assert late == []
        return sorted((r["key"], r["start"], r["end"], sorted(r["value"])) for batch in outputs for r in batch)

    assert results(one) == results(other)


@pytest.mark.parametrize("combined", [False, True])
@settings(max_examples=15, deadline=None)
@given(script=scripts())
def test_with_lateness_the_last_result_of_a_window_has_all_accepted_messages(combined, script):
    model = modelled(script)
    lost = collect()

    def program(streams, lates, out):
        late = lates[0].key_by("late-key", "key")
        # Behind a shuffle of its own, the window combines before it.
        both = streams[0].union("both", late)
        windows = (both.key_by("again", "key") if combined else both).window(
            "w", tumbling("10 ns"), allowed_lateness="15 ns", n=count()
        )
        windows.sink("out", out)
        windows.late.sink("lost", lost)

    outputs, _ = driven(script, program)
    last: dict[tuple[str, int], int] = {}
    for batch in outputs:
        for result in batch:
            at = (result["key"], result["start"])
            assert result["correction"] == (at in last)
            last[at] = result["n"]
    total = sum(len(batch["in"]) for batch in script.batches)
    assert sum(last.values()) + len(lost.records) == total
    assert {entry["number"] for entry in lost.records} <= {event["number"] for event in model.late}


@pytest.mark.parametrize("windows", WINDOWS, ids=str)
@settings(max_examples=20, deadline=None)
@given(script=scripts(), partitions=st.integers(1, 3))
def test_aggregates_equal_a_fold_over_each_message(windows, script, partitions):
    model = modelled(script)
    lost = collect()

    def program(streams, lates, out):
        aggregates = {
            "n": count(),
            "total": sum_("number"),
            "low": min_("number"),
            "high": max_("number"),
            "avg": mean("number"),
        }
        results = streams[0].window("w", windows, **aggregates)
        results.sink("out", out)
        results.late.sink("lost", lost)

    outputs, _ = driven(script, program, partitions)
    got = {
        (r["key"], r["start"], r["end"]): (r["n"], r["total"], r["low"], r["high"], r["avg"])
        for batch in outputs
        for r in batch
    }
    assert got == {
        at: (len(held), sum(held), min(held), max(held), sum(held) / len(held))
        for at, held in expected(windows, model.events()).items()
    }
    # What is in a gap between windows is not dropped silently either.
    gaps = [event for event in model.events() if isinstance(windows, Fixed) and not windows.of(event["time"])]
    assert sorted(event["number"] for event in lost.records) == sorted(event["number"] for event in gaps)
