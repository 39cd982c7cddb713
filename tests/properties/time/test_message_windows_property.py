"""Windows that messages end, against a model that has all messages of a key in a list."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from tidewheel import Job, agg, counted, sum_, triggered
from tidewheel.sinks import collect
from tidewheel.testing import run_in_memory

_fresh = itertools.count()
BATCHES = st.lists(st.lists(st.tuples(st.sampled_from("abc"), st.integers(-9, 9)), max_size=25), min_size=1, max_size=6)


def results(batches, windows, **fold):
    """Return the values of the windows of each key, in order."""
    job = Job("model", n_shards=4, state=f"memory:message-model-{next(_fresh)}")
    job.source("in", lambda spark: None).key_by("by", "key").window("w", windows, **fold).sink("out", collect())
    given = [{"in": [{"key": key, "n": n} for key, n in batch]} for batch in batches]
    found: dict[str, list] = {}
    for row in run_in_memory(job, given, parallelism=2).outputs["out"]:
        found.setdefault(row["key"], []).append(row)
    return found


def by_key(batches):
    numbers: dict[str, list[int]] = {}
    for key, n in itertools.chain.from_iterable(batches):
        numbers.setdefault(key, []).append(n)
    return numbers


def counted_model(numbers, length, every):
    """Return the last `length` numbers at each place where a window ends, and the rest at the end."""
    ends = [end for end in range(1, len(numbers) + 1) if (end - length) % every == 0]
    windows = [numbers[max(0, end - length) : end] for end in ends]
    last = ends[-1] if ends else 0
    if last < len(numbers):
        # The window that would have been complete next.
        windows.append(numbers[max(0, last + every - length) if ends else 0 :])
    return windows


@settings(max_examples=60, deadline=None)
@given(batches=BATCHES, length=st.integers(1, 7), data=st.data())
def test_counted_windows_have_the_last_messages(batches, length, data):
    every = data.draw(st.integers(1, length))
    want = {key: counted_model(numbers, length, every) for key, numbers in by_key(batches).items()}
    aggregates = results(
        batches, counted(length, every=every), total=sum_("n"), all=agg.collect("n", limit=99), most=agg.max("n")
    )
    assert {key: [row["all"] for row in rows] for key, rows in aggregates.items()} == want
    for row in itertools.chain.from_iterable(aggregates.values()):
        assert (row["total"], row["most"]) == (sum(row["all"]), max(row["all"]))
    folded = results(batches, counted(length, every=every), add=lambda kept, row: [*kept, row.n], default=list)
    assert {key: [row["value"] for row in rows] for key, rows in folded.items()} == want


@settings(max_examples=40, deadline=None)
@given(batches=BATCHES, limit=st.integers(0, 20))
def test_a_trigger_ends_windows_where_its_condition_is_true(batches, limit):
    want = {}
    for key, numbers in by_key(batches).items():
        windows = [[]]
        for n in numbers:
            windows[-1].append(n)
            if sum(map(abs, windows[-1])) >= limit:
                windows.append([])
        want[key] = [window for window in windows if window]
    folded = results(
        batches,
        triggered(lambda kept, row: sum(map(abs, kept)) >= limit),
        add=lambda kept, row: [*kept, row.n],
        default=list,
    )
    assert {key: [row["value"] for row in rows] for key, rows in folded.items()} == want
