"""Early results against a model that has all messages at hand: any input, parallelism and kills."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from properties.time.test_windows_property import expected
from support.time_model import driven, modelled, scripts
from tidewheel import count, session, sliding, sum_, tumbling

WINDOWS = [tumbling("10 ns"), tumbling("7 ns", offset="3 ns"), sliding("10 ns", "4 ns"), session("5 ns")]
EVERY = 6
"""The interval of early results, in ns."""


def modelled_results(windows, model, early):
    """Return the results of each batch, the flush last: key, start, end, final, and the numbers of the messages."""
    ticks = [None if epoch is None else (epoch + 1) // EVERY for epoch in model.carried]
    results, pending = [], set()
    for number in range(len(model.carried) + 1):
        flush = number == len(model.carried)
        events = [event for at, event in model.on_time["in"] if at <= number]
        pending |= {event["key"] for at, event in model.on_time["in"] if at == number}
        before = model.carried[number - 1] if number else None
        epoch = None if flush else model.carried[number]
        is_due = early == "batch" or (not flush and ticks[number] is not None and ticks[number] != ticks[number - 1])
        if number == 0:
            is_due = early == "batch"
        found = []
        for (key, start, end), numbers in expected(windows, events).items():
            is_over = flush or (epoch is not None and end - 1 <= epoch)
            was_over = before is not None and end - 1 <= before
            if is_over and not was_over:
                found.append((key, start, end, True, numbers))
            elif not is_over and is_due and key in pending:
                found.append((key, start, end, False, numbers))
        if is_due:
            pending = set()
        results.append(sorted(found))
    return results


@pytest.mark.parametrize("early", ["batch", f"{EVERY} ns"])
@pytest.mark.parametrize("windows", WINDOWS, ids=str)
@settings(max_examples=25, deadline=None)
@given(script=scripts())
def test_early_results_of_a_function_are_those_of_the_messages_so_far(early, windows, script):
    def program(streams, lates, out):
        fold = streams[0].window(
            "w", windows, lambda kept, row: [*kept, row.number], default=list, merge=lambda a, b: a + b, early=early
        )
        fold.sink("out", out)

    outputs, _ = driven(script, program)
    got = [sorted((r["key"], r["start"], r["end"], r["final"], sorted(r["value"])) for r in batch) for batch in outputs]
    assert got == modelled_results(windows, modelled(script), early)


@pytest.mark.parametrize("early", ["batch", f"{EVERY} ns"])
@pytest.mark.parametrize("windows", WINDOWS, ids=str)
@settings(max_examples=25, deadline=None)
@given(script=scripts())
def test_early_aggregates_are_those_of_the_messages_so_far(early, windows, script):
    def program(streams, lates, out):
        streams[0].window("w", windows, n=count(), total=sum_("number"), early=early).sink("out", out)

    outputs, _ = driven(script, program, 2)
    got = [sorted((r["key"], r["start"], r["end"], r["final"], r["n"], r["total"]) for r in batch) for batch in outputs]
    assert got == [
        sorted((*window, len(numbers), sum(numbers)) for *window, numbers in batch)
        for batch in modelled_results(windows, modelled(script), early)
    ]
