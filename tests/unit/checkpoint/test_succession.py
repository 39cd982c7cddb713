import pytest

from tidewheel._checkpoint.succession import check_follows
from tidewheel.checkpoints import CheckpointId, Manifest
from tidewheel.errors import StateError


def state(sequence: int, **fields) -> Manifest:
    return Manifest(CheckpointId("job", sequence, 0), **fields)


def test_the_first_is_1_and_each_goes_up_by_one():
    check_follows(None, state(1))
    check_follows(state(1), state(2))
    for parent, child in [(None, 0), (None, 2), (1, 1), (1, 3), (2, 1)]:
        with pytest.raises(StateError, match="so the next is"):
            check_follows(None if parent is None else state(parent), state(child))


def test_the_number_of_shards_is_fixed():
    with pytest.raises(StateError, match="has 8 shards, but the job's state has 64"):
        check_follows(state(1), state(2, n_shards=8))


@pytest.mark.parametrize(("before", "after"), [(None, None), (None, -5), (None, 0), (0, 0), (0, 7)])
def test_an_epoch_may_stay_and_grow(before, after):
    check_follows(state(1, epoch=before), state(2, epoch=after))


@pytest.mark.parametrize(("before", "after"), [(0, None), (7, 6), (0, -1)])
def test_an_epoch_never_goes_back_except_to_a_restored_checkpoints(before, after):
    with pytest.raises(StateError, match="never goes back"):
        check_follows(state(1, epoch=before), state(2, epoch=after))
    check_follows(state(1, epoch=before), state(2, epoch=after, kind="restore"))
