"""The types of the keys of steps, as recorded in commits."""

from __future__ import annotations

import pytest

from tidewheel import Job
from tidewheel._engine.key_kinds import check_joins, kinds_of_state
from tidewheel.errors import StepError
from tidewheel.sinks import discard
from tidewheel.sources import iterable
from tidewheel.testing import MemoryRun


def test_branches_that_part_and_meet_again_many_times_are_walked_once():
    job = Job("diamonds", state="memory:diamonds", n_shards=4)
    stream = job.source("in", iterable([{"user": "a"}])).key_by("by", "user")
    for number in range(40):
        left, right = (stream.map(f"{side}-{number}", lambda value: value) for side in ("left", "right"))
        stream = left.union(f"both-{number}", right)
    stream.stateful_map("count", lambda key, _, n: (n + 1, n + 1), default=0).sink("out", discard())
    assert kinds_of_state(job.plan(), {"by": "str"}) == {"count": "str"}


def test_stored_keys_keep_their_type_until_it_is_known_that_others_come_too():
    job = Job("two", state="memory:two", n_shards=4)
    records = job.source("in", iterable([]), type=dict)
    both = records.key_by("by-n", lambda r: r["n"]).union("both", records.key_by("by-t", lambda r: r["t"]))
    both.stateful_map("count", lambda key, _, n: (n + 1, n + 1), default=0).sink("out", discard())
    plan, stored = job.plan(), {"count": "str"}
    assert kinds_of_state(plan, {}, stored) == kinds_of_state(plan, {"by-t": "str"}, stored) == stored
    assert kinds_of_state(plan, {"by-n": "int"}, stored) == {}
    assert kinds_of_state(plan, {"by-n": "int", "by-t": "str"}, stored) == {}
    with pytest.raises(StepError, match=r"'count': the keys in its stored state are of type str, .* are of type int"):
        kinds_of_state(plan, {"by-n": "int", "by-t": "int"}, stored)


def joined(name: str) -> Job:
    """Orders and payments, of which the keys may be numbers on one side and text on the other."""
    job = Job(name, state=f"memory:{name}", n_shards=4)
    orders, payments = (
        job.source(side, iterable([]), type=dict)
        .assign_timestamps(f"{side}-at", lambda record: record["at"], unit="s")
        .limit_out_of_orderness(f"{side}-late", "0 s")
        .key_by(f"by-{side}", lambda record: record["id"])
        for side in ("orders", "payments")
    )
    orders.interval_join("paid", payments, before="10 s", after="10 s").sink("out", discard())
    return job


def test_a_join_with_keys_of_different_types_is_refused():
    with MemoryRun(joined("paid")) as run:
        run.batch({"orders": [{"id": 7, "at": 1}]})
        with pytest.raises(StepError, match=r"'paid': its left stream has keys of type int, .* str; .*convert"):
            run.batch({"payments": [{"id": "7", "at": 2}]})


def test_a_join_is_accepted_if_some_keys_may_match():
    plan = joined("open").plan()
    check_joins(plan, {})
    check_joins(plan, {"by-orders": "int"})
    check_joins(plan, {"by-orders": "str", "by-payments": "str"})
    job = Job("mixed", state="memory:mixed", n_shards=4)
    timed = (
        job.source("in", iterable([]), type=dict)
        .assign_timestamps("at", lambda record: record["at"], unit="s")
        .limit_out_of_orderness("late", "0 s")
    )
    numbers, texts = (
        timed.key_by("by-number", lambda record: record["n"]),
        timed.key_by("by-text", lambda record: record["t"]),
    )
    numbers.union("both", texts).interval_join("joined", texts, before="1 s", after="1 s").sink("out", discard())
    check_joins(job.plan(), {"by-number": "int", "by-text": "str"})


def meeting(name: str) -> Job:
    job = Job(name, state=f"memory:{name}", n_shards=4)
    one, other = (job.source(side, iterable([]), type=dict).key_by(f"by-{side}", "id") for side in ("a", "b"))
    one.union("both", other).stateful_map("count", lambda key, _, n: (n + 1, n + 1), default=0).sink("out", discard())
    return job


@pytest.mark.parametrize("key", [1.0, True])
def test_numbers_of_two_types_in_a_union_over_two_batches_are_refused(key):
    with MemoryRun(meeting(f"meeting-{key}")) as run:
        run.batch({"a": [{"id": 1}]})
        with pytest.raises(StepError, match=r"step 'count': the keys that 'by-a', 'by-b' give are of the types"):
            run.batch({"b": [{"id": key}]})
    with (
        MemoryRun(meeting(f"meeting-{key}")) as run,
        pytest.raises(StepError, match=r"Convert the keys to one type in the key functions"),
    ):
        run.batch({"b": [{"id": key}]})


def test_text_and_numbers_may_be_in_one_union():
    with MemoryRun(meeting("meeting-text")) as run:
        run.batch({"a": [{"id": 1}]})
        run.batch({"b": [{"id": "1"}]})
