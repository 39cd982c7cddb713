"""Early results of windows: how they are marked and replaced, and what a changed program does."""

from __future__ import annotations

import itertools

import pytest

from tidewheel import Job, WindowResult, count, session, tumbling
from tidewheel.errors import GraphError
from tidewheel.sinks import collect
from tidewheel.testing import MemoryRun

_fresh = itertools.count()
FOLDS = {
    "aggregates": {"n": count()},
    "function": {"add": lambda n, row: n + 1, "default": 0, "merge": lambda a, b: a + b},
}


def built(state, out, windows=None, **options):
    job = Job("early", state=state)
    timed = job.source("in", lambda spark: None).event_time("at", unit="ns", max_delay="0 s", name="clock")
    late = timed.union("all", timed.late) if "allowed_lateness" in options else timed
    late.key_by("by", "user").window("w", windows or tumbling("10 ns"), **options).sink("out", out)
    return job


def given(batches, **options):
    """Run batches of times, and return start, number of messages, final and correction of each result, by batch."""
    out = collect()
    results = []
    with MemoryRun(built(f"memory:early-{next(_fresh)}", out, **options)) as run:
        for times in batches:
            seen = len(out.records)
            run.batch({"in": [{"user": "ada", "at": at} for at in times]})
            results.append(sorted(shown(record) for record in out.records[seen:]))
    return results


def shown(record):
    return record["start"], record["n"] if "n" in record else record["value"], record["final"], record["correction"]


@pytest.mark.parametrize("fold", FOLDS.values(), ids=FOLDS)
def test_a_window_that_ends_in_the_batch_is_emitted_once(fold):
    assert given([[1], [12], [13]], early="batch", **fold)[1:] == [
        [(0, 1, False, False), (10, 1, False, False)],
        [(0, 1, True, False), (10, 2, False, False)],
    ]


@pytest.mark.parametrize("fold", FOLDS.values(), ids=FOLDS)
def test_a_late_message_corrects_a_final_result(fold):
    results = given([[1], [12], [13], [2]], early="1 s", allowed_lateness="20 ns", **fold)
    assert results[-1] == [(0, 2, True, True)]


@pytest.mark.parametrize("fold", FOLDS.values(), ids=FOLDS)
def test_a_key_without_new_messages_is_not_emitted_again(fold):
    assert given([[1], [], []], early="batch", **fold) == [[(0, 1, False, False)], [], []]


@pytest.mark.parametrize("fold", FOLDS.values(), ids=FOLDS)
def test_early_can_be_added_changed_and_removed(fold):
    state, out = f"memory:early-{next(_fresh)}", collect()
    for number, options in enumerate([{}, {"early": "4 ns"}, {"early": "batch"}, {}]):
        with MemoryRun(built(state, out, session("100 ns"), **options, **fold)) as run:
            run.batch({"in": [{"user": "ada", "at": 10 * number}]})
    with MemoryRun(built(state, out, session("100 ns"), **fold)) as run:
        run.flush()
    assert [(record["n"] if "n" in record else record["value"], record.get("final")) for record in out.records] == [
        (2, False),
        (3, False),
        (4, None),
    ]


def test_rows_without_early_have_no_column_final():
    state, out = f"memory:early-{next(_fresh)}", collect()
    with MemoryRun(built(state, out, n=count())) as run:
        run.batch({"in": [{"user": "ada", "at": 1}]})
        run.flush()
    assert list(out.records[0]) == ["user", "start", "end", "n", "correction"]


def test_a_result_without_early_is_final():
    assert WindowResult(0, 10, 3).final


def test_an_aggregate_can_have_the_name_early():
    out = collect()
    with MemoryRun(built(f"memory:early-{next(_fresh)}", out, early=count())) as run:
        run.batch({"in": [{"user": "ada", "at": 1}]})
        run.flush()
    assert out.records[0]["early"] == 1


@pytest.mark.parametrize("early", ["sometimes", "0 s", 5])
def test_early_is_a_duration_or_batch(early):
    with pytest.raises(GraphError, match="step 'w': early"):
        built("memory:early-refused", collect(), early=early, n=count())


def test_an_aggregate_cannot_have_the_name_final_with_early():
    with pytest.raises(GraphError, match="final"):
        built("memory:early-refused", collect(), early="batch", final=count())
