"""When snapshots are due, and what a commit leaves of a shard's parts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewheel._state.compaction import MAX_DELTAS, STAGGER, due, merge, newest_sequence
from tidewheel._state.references import FileRef, PartRef, ShardParts
from tidewheel.errors import StateError


def part(sequence: int, size: int = 100, name: str = "f") -> PartRef:
    return PartRef(FileRef(name, size, sequence), sequence, size, 1)


def run(batches: int, delta_bytes: int, snapshot_bytes: int, shards: int = 64, every: int = 1) -> list[int]:
    """Commit batches that all touch every shard; return how many shards wrote a snapshot in each."""
    parts = dict.fromkeys(range(shards), ShardParts())
    written = []
    for sequence in range(every, batches * every + 1, every):
        now = due(parts, sequence)
        written.append(len(now))
        for shard, before in parts.items():
            taken = part(newest_sequence(before), snapshot_bytes) if shard in now else None
            parts[shard] = merge(before, [part(sequence, delta_bytes)], taken)
            assert len(parts[shard].deltas) <= MAX_DELTAS + STAGGER
    return written


def test_tiny_shards_write_a_snapshot_only_when_their_deltas_are_many() -> None:
    written = run(100, delta_bytes=50, snapshot_bytes=50)
    assert sum(written[: MAX_DELTAS - 1]) == 0
    assert sum(written) <= 64 * 100 / MAX_DELTAS


def test_heavy_deltas_bring_a_snapshot_sooner() -> None:
    assert sum(run(30, delta_bytes=1_000_000, snapshot_bytes=3_000_000)) > 64


def test_a_large_snapshot_waits_for_deltas_as_large() -> None:
    parts = ShardParts(part(1, 1_000_000), tuple(part(2 + n, 90_000) for n in range(12)))
    assert not any(due({0: ShardParts(parts.snapshot, parts.deltas[:11])}, sequence) for sequence in range(8))
    assert any(due({0: parts}, sequence) for sequence in range(8))


def test_shards_that_grow_alike_take_turns() -> None:
    written = run(200, delta_bytes=100_000, snapshot_bytes=500_000)
    assert max(written) <= 64 / STAGGER


def test_commits_that_are_no_batches_do_not_starve_a_shard() -> None:
    # With every second commit a claim or a restore, half of the shards' turns never fall on a batch.
    run(200, delta_bytes=50, snapshot_bytes=50, every=2)


def test_a_shard_without_deltas_is_never_due() -> None:
    for sequence in range(20):
        assert not due({0: ShardParts(), 1: ShardParts(part(1, 1))}, sequence)


def test_a_delta_follows_what_is_there() -> None:
    assert merge(ShardParts(), [part(1)]) == ShardParts(None, (part(1),))
    assert merge(ShardParts(part(1), (part(2),)), [part(5)]) == ShardParts(part(1), (part(2), part(5)))


def test_a_snapshot_takes_the_place_of_what_is_there() -> None:
    before = ShardParts(part(1), (part(2), part(4)))
    assert merge(before, [part(9)], part(4, name="s")) == ShardParts(part(4, name="s"), (part(9),))
    assert merge(before, (), part(4, name="s")) == ShardParts(part(4, name="s"))


def test_a_commit_that_added_nothing_changes_nothing() -> None:
    before = ShardParts(part(1), (part(2),))
    assert merge(before) == before


def test_levels_of_one_batch_add_a_delta_each() -> None:
    assert merge(ShardParts(), [part(3, name="a"), part(3, name="b")]).deltas[1].file.name == "b"


@pytest.mark.parametrize("deltas", [[part(4)], [part(3)], [part(5), part(6)]])
def test_deltas_that_are_not_of_the_next_commit_are_refused(deltas: list[PartRef]) -> None:
    with pytest.raises(StateError, match="not of one commit after 4"):
        merge(ShardParts(None, (part(4),)), deltas)


@pytest.mark.parametrize("sequence", [3, 5])
def test_a_snapshot_with_the_wrong_label_is_refused(sequence: int) -> None:
    with pytest.raises(StateError, match="newest_sequence"):
        merge(ShardParts(None, (part(4),)), [part(6)], part(sequence))


@given(st.lists(st.booleans(), max_size=60))
def test_parts_ascend_whatever_is_merged(snapshots: list[bool]) -> None:
    parts = ShardParts()
    for sequence, take in enumerate(snapshots, start=1):
        taken = part(newest_sequence(parts)) if take else None
        parts = merge(parts, [part(sequence)], taken)
        sequences = [delta.sequence for delta in parts.deltas]
        assert sequences == sorted(set(sequences))
        assert parts.snapshot is None or parts.snapshot.sequence < sequences[0]
        assert newest_sequence(parts) == sequence
