"""After a failure: restart from the last commit, or give up."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidewheel._spark.restarts import LOSSES, Again, Restarts
from tidewheel.errors import ConfigError, FencedError, StateError, StepError, TidewheelError

FETCH = Exception(
    "Job aborted due to stage failure: ResultStage 9 (collect) has failed the maximum allowable number of times: 1. Most recent "
    "failure reason: org.apache.spark.shuffle.MetadataFetchFailedException: Missing an output location for shuffle 3"
)


def test_a_lost_executor_is_survived_by_default_with_a_warning():
    again = Restarts(0, 1.0).after(FETCH, 7, 3)
    assert again is not None
    assert (
        again.why
        == f"an executor, or its part of a shuffle, was lost; batch 3 runs again from commit 7 (1 of {LOSSES})"
    )


def test_a_worker_that_started_too_late_counts_as_lost_with_a_warning():
    late = Exception("[STREAM_FAILED] Query [id = 1] terminated with exception: Python worker failed to connect back.")
    again = Restarts(0, 1.0).after(late, 7, None)
    assert again is not None
    assert again.why == f"a Python worker did not start in time; the run begins again from commit 7 (1 of {LOSSES})"


def test_losses_without_a_commit_between_them_are_bounded():
    restarts = Restarts(0, 1.0)
    found = [restarts.after(FETCH, 7, 3) for _ in range(LOSSES + 1)]
    assert all(found[:-1])
    assert found[-1] is None


def test_a_commit_restarts_the_count_of_losses():
    restarts = Restarts(0, 1.0)
    for sequence in range(3 * LOSSES):
        assert restarts.after(FETCH, sequence, sequence) is not None


def test_losses_are_not_counted_as_failures_of_the_program():
    restarts = Restarts(1, 1.0)
    restarts.after(FETCH, 1, 0)
    told = "the store does not answer; restart 1 of 1, in 1 s, from commit 1"
    assert restarts.after(TidewheelError("the store does not answer"), 1, 0) == Again(1.0, told)
    assert restarts.after(TidewheelError("the store does not answer"), 1, 0) is None


def test_failures_are_survived_as_often_as_asked_with_a_wait_that_doubles():
    restarts = Restarts(3, 0.5)
    found = [restarts.after(TidewheelError("no"), 1, 0) for _ in range(4)]
    assert [again and again.seconds for again in found] == [0.5, 1.0, 2.0, None]


@given(st.integers(0, 5), st.lists(st.integers(0, 8), max_size=20))
def test_failures_are_counted_from_the_last_commit_on(allowed, failures_by_commit):
    """A run is given up at the first commit after which more failures come than are allowed, and at no other."""
    restarts = Restarts(allowed, 1.0)
    for sequence, failures in enumerate(failures_by_commit):
        found = [restarts.after(TidewheelError("no"), sequence, sequence) for _ in range(failures)]
        assert [again is not None for again in found] == [number < allowed for number in range(failures)]
        if failures > allowed:
            return
        assert [again.seconds for again in found] == [float(2**number) for number in range(failures)]


@given(st.lists(st.sampled_from(["lost", "failed", "commit"]), max_size=60), st.integers(0, 4))
def test_losses_and_failures_are_counted_separately_since_the_last_commit(events, allowed):
    restarts, sequence, lost, failed = Restarts(allowed, 1.0), 1, 0, 0
    for event in events:
        if event == "commit":
            sequence, lost, failed = sequence + 1, 0, 0
            continue
        again = restarts.after(FETCH if event == "lost" else TidewheelError("no"), sequence, sequence)
        # What goes beyond the losses that are free counts as a failure.
        free = event == "lost" and lost < LOSSES
        lost, failed = (lost + 1, failed) if free else (lost, failed + 1)
        assert (again is not None) == (failed <= allowed)
        if again is None:
            return


def test_a_cause_missing_in_the_error_is_shown():
    again = Restarts(1, 1.0).after(ConnectionRefusedError("[Errno 111]"), 4, 2, "Spark's JVM has ended")
    assert again == Again(1.0, "Spark's JVM has ended; restart 1 of 1, in 1 s, from commit 4")


def test_a_repeated_program_error_is_detected_despite_other_failures():
    restarts = Restarts(9, 1.0)
    assert restarts.after(StepError("step 'sum', key 'a': ValueError"), 1, 4) is not None
    assert restarts.after(TidewheelError("the store does not answer"), 1, 4) is not None
    assert restarts.after(StepError("step 'sum', key 'a': ValueError"), 1, 4) is None


def test_a_program_error_that_repeats_on_a_batch_is_not_tried_again():
    restarts = Restarts(9, 1.0)
    error = StepError("step 'sum', key 'a': ValueError")
    assert restarts.after(error, 1, 4) is not None
    assert restarts.after(error, 1, 4) is None


def test_permanent_errors_are_not_retried():
    for error in (FencedError("taken over"), StateError("other offsets"), ConfigError("no such bucket")):
        assert Restarts(9, 1.0).after(error, 1, 0) is None


def test_a_program_may_speak_of_lost_executors_itself():
    assert Restarts(0, 1.0).after(StepError("the user's function: ExecutorLostFailure"), 1, 0) is None
