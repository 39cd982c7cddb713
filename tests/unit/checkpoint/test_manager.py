import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewheel.checkpoints import CheckpointManager, CheckpointStore
from tidewheel.errors import ConfigError


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({}, "needs a trigger"),
        ({"every_events": 0}, "events must be above 0, not 0"),
        ({"every_batches": -1}, "batches must be above 0"),
        ({"every": "0 s"}, "above 0"),
    ],
)
def test_triggers_that_cannot_work_are_refused(given, text):
    with pytest.raises(ConfigError, match=text):
        CheckpointManager(CheckpointStore.open("memory:triggers"), **given)


@given(st.lists(st.none() | st.integers(-5, 5), min_size=1))
def test_an_epoch_never_goes_back_and_none_is_not_0(marks):
    manager = CheckpointManager(CheckpointStore.open("memory:epochs", keep=1), every_events=len(marks))
    first = 0 if (found := manager.recover("s")) is None else found.sequence + 1
    before = None if found is None else found.epoch
    taken = [manager.on_event("s", first + number, mark) for number, mark in enumerate(marks)][-1]
    assert taken.epoch == max((mark for mark in (before, *marks) if mark is not None), default=None)
