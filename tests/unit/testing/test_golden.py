"""golden: a correct program passes under all faults; a wrong one gets the differences and the way to see them again."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewheel import Job, count, sum_
from tidewheel._testing.golden import disturbed
from tidewheel._testing.play import play_in_memory
from tidewheel._testing.script import Batch, Flush
from tidewheel.sinks import collect, discard
from tidewheel.sources import files
from tidewheel.testing import golden

RECORDS = [{"user": f"user-{number % 5}", "n": number} for number in range(60)]


def program(step=lambda user, record, total: (total + record["n"], total + record["n"])):
    job = Job("program", n_shards=8, keep=2, collect_every=3, snapshot_every=2)
    users = job.source("in", files("/data"), type=dict).key_by("by-user", "user")
    users.stateful_map("sum", step, default=0).sink("sums", collect())
    users.aggregate("totals", total=sum_("n"), rows=count()).sink("totals-out", discard())
    return job


def test_a_sound_program_passes_and_gives_the_plain_result():
    result = golden(program, {"in": RECORDS}, seed=3, runs=6)
    assert result.states["sum"]["user-1"] == sum(range(1, 60, 5))
    assert len(result.outputs["sums"]) == 60


def test_a_job_may_be_given_directly():
    job = program()
    golden(job, {"in": RECORDS}, runs=2)
    assert job.graph.nodes[3].operator.sink.records == []


def test_state_kept_outside_of_the_key_is_found_out():
    def make():
        calls = []

        def leaking(user, record, total):
            calls.append(record)
            return len(calls), total

        return program(leaking)

    with pytest.raises(AssertionError) as caught:
        golden(make, {"in": RECORDS}, seed=5)
    text = str(caught.value)
    assert "of seed 5 differs from the plain run" in text
    assert "output 'sums', key 'user-" in text
    assert "batch: " in text


def test_results_that_depend_on_batches_need_a_batch_size():
    def counting_batches():
        job = Job("batches", n_shards=4)
        keyed = job.source("in", files("/data"), type=dict).key_by("by-user", "user")
        totals = keyed.aggregate("totals", total=sum_("n")).stateful_map("n", lambda k, v, n: (n + 1, n + 1), default=0)
        totals.sink("out", collect())
        return job

    with pytest.raises(AssertionError, match="state 'n'"):
        golden(counting_batches, {"in": RECORDS})
    golden(counting_batches, {"in": RECORDS}, batch_size=7, runs=4)


def test_a_comparison_of_an_unknown_sink_is_refused():
    with pytest.raises(ValueError, match="compare names the sink other; there are sums, totals-out"):
        golden(program, {"in": RECORDS}, compare={"other": "last"})


@given(
    st.integers(),
    st.dictionaries(st.sampled_from(["a", "b"]), st.lists(st.integers()), min_size=1),
    st.none() | st.integers(1, 5),
)
def test_every_record_is_in_one_batch_in_its_order(seed, inputs, batch_size):
    todo = disturbed(random.Random(seed), inputs, batch_size, 4, True)
    for name, records in inputs.items():
        given_ = [record for step in todo if isinstance(step, Batch) for record in step.inputs.get(name, ())]
        assert given_ == records
    assert isinstance(todo[-1], Flush)


def test_a_crash_after_a_batch_without_records_loses_none():
    job = Job("quiet-batches")
    numbers = job.source("in", files("/data"), type=dict).key_by("by-parity", lambda record: record["n"] % 2, value="n")
    numbers.stateful_map("sum", lambda key, n, total: (total + n, total + n), default=0).sink("out", discard())
    todo = [
        Batch({"in": [{"n": 1}, {"n": 2}]}),
        Batch({"in": []}),
        Batch({"in": [{"n": 3}, {"n": 4}]}, ("task.reported",)),
    ]
    result = play_in_memory(job, todo, 1, 1, None, None)
    assert result.states["sum"] == {0: 6, 1: 4}
