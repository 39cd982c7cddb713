import msgspec
import pytest

from support.checkpoint_strategies import full_state
from support.internals import FileRef
from tidewheel.checkpoints import CheckpointId, Manifest
from tidewheel.errors import ConfigError


def test_identity_is_stream_and_sequence_whenever_it_was_made():
    first, again = CheckpointId("s", 1, created_at=1), CheckpointId("s", 1, created_at=2)
    assert first == again
    assert (first != again) is False
    assert hash(first) == hash(again)
    assert first != CheckpointId("s", 2, created_at=1)
    assert first != CheckpointId("t", 1, created_at=1)


def test_order_is_that_of_stream_then_sequence():
    ids = [CheckpointId("b", 1, 0), CheckpointId("a", 10, 9), CheckpointId("a", 2, 99)]
    assert sorted(ids) == [CheckpointId("a", 2), CheckpointId("a", 10), CheckpointId("b", 1)]
    one, same, next_one = CheckpointId("a", 1, 5), CheckpointId("a", 1, 3), CheckpointId("a", 2, 1)
    assert one <= same <= next_one
    assert same >= one
    assert next_one > one
    assert not one < same
    assert not one > same


def test_an_identity_is_not_equal_to_other_things():
    assert CheckpointId("s", 1) != ("s", 1)


@pytest.mark.parametrize(("stream", "sequence"), [("", 1), ("s", -1), ("s", 2**63)])
def test_an_identity_that_cannot_be_is_refused(stream, sequence):
    with pytest.raises(ConfigError):
        CheckpointId(stream, sequence)


def test_a_checkpoint_is_made_from_its_identity_alone():
    state = Manifest(CheckpointId("s", 1))
    assert (state.epoch, state.event_count, state.n_shards, state.kind) == (None, 0, 64, "batch")


def test_two_checkpoints_made_from_defaults_share_no_mapping():
    one, two = Manifest(CheckpointId("s", 1)), Manifest(CheckpointId("s", 1))
    assert one.metadata is not two.metadata


def test_checkpoints_are_frozen_and_hash_as_their_identity():
    state = full_state()
    with pytest.raises(AttributeError):
        state.event_count = 1
    assert hash(state) == hash(state.id)
    assert state.replace(event_count=1) != state


def test_the_files_of_a_checkpoint_are_listed_once_each():
    state = full_state()
    assert {file.name for file in state.files() - state.replace(tables={}).files()} == {
        "state/1.table",
        "state/2.table",
    }
    state = state.replace(tables={})
    assert {file.name for file in state.files()} == {"state/1.snap", "state/2.delta"}
    assert len(state.files()) == 2
    only_driver = state.replace(shards={})
    assert only_driver.files() == {FileRef("state/2.delta", 300, 2**64 - 1)}


def test_full_state_leaves_no_field_at_its_default():
    """Round-trip tests rest on it: a field at its default would come back whether it was written or not."""
    state, plain = full_state(), Manifest(CheckpointId("orders", 2))
    same = [
        field.name
        for field in msgspec.structs.fields(state)
        if getattr(state, field.name) == getattr(plain, field.name)
    ]
    assert same == ["id"]
