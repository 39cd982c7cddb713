"""split, branch, clone, union: several streams of one, and one of several."""

from __future__ import annotations

import pytest

from tidewheel import Job
from tidewheel.errors import GraphError, StepError
from tidewheel.sinks import collect
from tidewheel.testing import run_in_memory


def job_of():
    return Job("parts", state="memory:parts")


def test_split_routes_by_the_function_and_counts_unrouted_messages():
    job = job_of()
    numbers = job.source("in", lambda spark: None).map("n", lambda row: row.value)
    even, small = numbers.split("parts", 2, lambda n: [0] * (n % 2 == 0) + [1] * (n < 3))
    even.sink("even", collect())
    small.sink("small", collect())
    result = run_in_memory(job, {"in": [1, 2, 3, 4, 5]})
    assert [r["value"] for r in result.outputs["even"]] == [2, 4]
    assert [r["value"] for r in result.outputs["small"]] == [1, 2]
    assert result.checkpoint.counts["parts/dropped"] == 2


def test_a_single_number_is_accepted_and_an_unknown_one_refused():
    job = job_of()
    numbers = job.source("in", lambda spark: None).map("n", lambda row: row.value)
    for at, stream in enumerate(numbers.split("parts", 2, lambda n: n)):
        stream.sink(f"out-{at}", collect())
    assert [r["value"] for r in run_in_memory(job, {"in": [0, 1, 1]}).outputs["out-1"]] == [1, 1]
    with pytest.raises(StepError, match=r"step 'parts', record 2: there is no output 2; there are 0 to 1"):
        run_in_memory(job, {"in": [2]})


def test_a_branch_takes_predicates_and_a_keyed_stream_stays_keyed():
    job = job_of()
    keyed = job.source("in", lambda spark: None).key_by("by", "k", value="v")
    low, high = keyed.branch("by-size", lambda v: v < 5, lambda v: v > 3)
    low.stateful_map("low-sum", lambda key, v, total: (total + v, total + v), default=0).sink("low", collect())
    high.sink("high", collect())
    result = run_in_memory(job, {"in": [{"k": "a", "v": 2}, {"k": "a", "v": 4}, {"k": "b", "v": 9}]})
    assert [(r["k"], r["value"]) for r in result.outputs["low"]] == [("a", 2), ("a", 6)]
    assert [(r["k"], r["v"] if "v" in r else r["value"]) for r in result.outputs["high"]] == [("a", 4), ("b", 9)]


def test_a_union_has_all_messages_also_of_streams_of_different_depth():
    job = job_of()
    source = job.source("in", lambda spark: None)
    keyed = source.key_by("by", "k", value="v")
    sums = keyed.stateful_map("sum", lambda key, v, total: (total + v, total + v), default=0)
    doubled = sums.map("double", lambda v: v * 2)
    again = source.key_by("again", "k", value="v")
    doubled.union("both", again).sink("out", collect())
    result = run_in_memory(job, {"in": [{"k": "a", "v": 1}, {"k": "b", "v": 5}]}, parallelism=2)
    assert sorted(r["value"] if "value" in r else r["v"] for r in result.outputs["out"]) == [1, 2, 5, 10]


def test_a_union_of_a_keyed_stream_and_one_without_keys_is_refused():
    job = job_of()
    source = job.source("in", lambda spark: None)
    with pytest.raises(GraphError, match="step 'both': a union is of streams that all have keys, or none of them"):
        source.union("both", source.key_by("by", "k"))


def test_a_clone_is_the_same_stream():
    job = job_of()
    one, other = job.source("in", lambda spark: None).clone()
    one.sink("one", collect())
    other.sink("other", collect())
    result = run_in_memory(job, {"in": [1, 2]})
    assert [r["value"] for r in result.outputs["one"]] == [r["value"] for r in result.outputs["other"]] == [1, 2]
