import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewheel._checkpoint.triggers import Progress, Triggers, due
from tidewheel.errors import ConfigError

SECOND = 10**9


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({}, "needs a trigger"),
        ({"events": 0}, "events must be above 0, not 0"),
        ({"batches": -1}, "batches must be above 0"),
        ({"seconds": 0.0}, "seconds must be above 0"),
    ],
)
def test_triggers_that_cannot_work_are_refused(given, text):
    with pytest.raises(ConfigError, match=text):
        Triggers(**given)


@pytest.mark.parametrize(
    ("progress", "expected"),
    [
        (Progress(events=2, batches=1, since=0), False),
        (Progress(events=3, batches=1, since=0), True),
        (Progress(events=1, batches=2, since=0), True),
        (Progress(events=1, batches=1, since=-4 * SECOND), True),
        (Progress(events=0, batches=9, since=-99 * SECOND), False),
    ],
)
def test_a_checkpoint_is_due_when_any_trigger_is_reached_and_there_is_an_event_for_it(progress, expected):
    assert due(Triggers(events=3, batches=2, seconds=5), progress, now=SECOND) is expected


@given(st.lists(st.none() | st.integers(-5, 5)))
def test_an_epoch_never_goes_back_and_none_is_not_0(marks):
    progress = Progress()
    for mark in marks:
        before = progress.epoch
        progress = progress.advanced(0, sequence=None, events=1, batches=0, epoch=mark)
        assert before is None or (progress.epoch is not None and progress.epoch >= before)
    told = [mark for mark in marks if mark is not None]
    assert progress.epoch == (max(told) if told else None)


def test_time_counts_from_the_first_event_and_then_from_the_last_checkpoint():
    progress = Progress().advanced(7, sequence=1, events=1, batches=0, epoch=None)
    assert progress.since == 7
    assert progress.advanced(9, sequence=2, events=1, batches=0, epoch=None).since == 7
    assert progress.checkpointed(20) == Progress(1, 1, None, 0, 0, 20)
