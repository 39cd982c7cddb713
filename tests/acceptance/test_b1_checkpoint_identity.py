"""B1: a checkpoint is an id (stream, sequence, time) + states, offsets, watermark, event count, metadata."""

import time

from tidewheel.checkpoints import CheckpointId, Manifest


def test_b1_a_checkpoint_holds_all_that_the_contract_names():
    state = Manifest(
        CheckpointId("orders", 42, created_at=1_700_000_000_000_000_000),
        operator_states={"sum": b"\x01"},
        source_offsets={"log": 4096, "topic": '{"topic":{"0":17}}'},
        epoch=999_000_000,
        event_count=42,
        metadata={"app_version": "1.2.3"},
    )
    assert (state.id.stream_id, state.id.sequence, state.id.created_at) == (
        "orders",
        42,
        1_700_000_000_000_000_000,
    )
    assert state.operator_states["sum"] == b"\x01"
    assert state.source_offsets["log"] == 4096
    assert (state.epoch, state.event_count, state.metadata["app_version"]) == (
        999_000_000,
        42,
        "1.2.3",
    )


def test_b1_a_checkpoint_is_stamped_with_the_time_when_it_is_made():
    before = time.time_ns()
    assert before <= CheckpointId("orders", 1).created_at <= time.time_ns()


def test_b1_equality_and_hash_are_those_of_stream_and_sequence():
    made_at = [CheckpointId("orders", 1, created_at=at) for at in (1, 2)]
    assert made_at[0] == made_at[1]
    assert len({*made_at, CheckpointId("orders", 2, 1), CheckpointId("payments", 1, 1)}) == 3
