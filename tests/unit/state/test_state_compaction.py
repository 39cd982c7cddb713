"""Which parts of a shard are merged, and which parts a commit keeps."""

from __future__ import annotations

from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.internals import FileRef, PartRef, ShardParts
from tidewheel._state.compaction import FAN, Merged, adopted, merge, merge_due, newest_sequence
from tidewheel._state.merge_runs import labelled
from tidewheel.errors import StateError

_checksums = count(1)


def part(sequence: int, size: int = 100, name: str = "f") -> PartRef:
    return PartRef(FileRef(name, size, sequence), sequence, size, 1)


class Growing:
    """A shard of equally likely keys, each of one byte, that is changed and merged: how much is written for what changes."""

    def __init__(self, keys: int, snapshot_every: int | None = None) -> None:
        self.keys, self.snapshot_every = keys, snapshot_every
        self.parts = ShardParts(part(1, keys))
        self.changed = self.written = self.most = 0
        self.sequence = 1

    def commit(self, size: int) -> None:
        self.sequence += 1
        self.changed, self.written = self.changed + size, self.written + size
        self.parts = merge(self.parts, [part(self.sequence, size)])
        plan = merge_due(self.parts, self.snapshot_every)
        if plan is not None:
            left = 1.0
            for run in plan.runs:
                left *= max(0.0, 1 - run.bytes / self.keys)
            size = self.keys if plan.whole else round(self.keys * (1 - left))
            result = labelled(plan, [PartRef(FileRef("m", size, next(_checksums)), 0, size, 1)])
            self.parts = adopted(self.parts, result) or pytest.fail("the runs are there")
            self.written += size
        self.most = max(self.most, len(self.parts.deltas))


def amplification(keys: int, size: int) -> float:
    shard = Growing(keys)
    for _ in range(3 * keys // size):
        shard.commit(size)
    return shard.written / shard.changed


def test_bytes_written_for_a_change_hardly_grow_with_the_shard() -> None:
    small, large = amplification(200_000, 100), amplification(2_000_000, 100)
    assert large <= 10
    assert large <= 1.3 * small


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=150))
@settings(max_examples=50)
def test_runs_stay_few_for_deltas_of_any_size(sizes: list[int]) -> None:
    shard = Growing(10**7)
    for size in sizes:
        shard.commit(size)
    # Seven of each of the seven tiers that there are from 1 to 10**6.
    assert shard.most <= 7 * (FAN - 1) + 1


def test_a_shard_is_merged_whole_once_its_runs_outweigh_it() -> None:
    below = ShardParts(part(1, 1_000_000), tuple(part(2 + n, 90_000 + n * 1_000) for n in range(7)))
    assert merge_due(below) is None
    above = ShardParts(part(1, 1_000_000), tuple(part(2 + n, 140_000) for n in range(8)))
    due = merge_due(above)
    assert due is not None
    assert due.whole
    assert due.runs == (above.snapshot, *above.deltas)


def test_only_the_runs_of_a_full_tier_are_merged() -> None:
    large = tuple(part(n, 5_000_000) for n in range(2, 5))
    small = tuple(part(n, 1_000) for n in range(5, 13))
    due = merge_due(ShardParts(part(1, 10**9), large + small))
    assert due is not None
    assert not due.whole
    assert due.runs == small


def test_a_tier_filled_by_a_merge_is_merged_at_the_same_time() -> None:
    older = tuple(part(n, 8_000) for n in range(2, 9))
    newer = tuple(part(n, 1_000) for n in range(9, 17))
    due = merge_due(ShardParts(part(1, 10**9), older + newer))
    assert due is not None
    assert due.runs == older + newer


def test_a_large_run_takes_the_smaller_ones_before_it_along() -> None:
    runs = (*(part(n, 10) for n in range(2, 9)), part(9, 10**6))
    due = merge_due(ShardParts(part(1, 10**9), runs))
    assert due is not None
    assert due.runs == runs


def test_the_deltas_of_one_commits_levels_are_one_run() -> None:
    pairs = tuple(part(n, 1_000, name) for n in range(2, 9) for name in "ab")
    assert merge_due(ShardParts(part(1, 10**9), pairs)) is None


def test_a_number_of_commits_can_be_asked_for_after_which_all_is_merged() -> None:
    assert merge_due(ShardParts(None, (part(1), part(2))), snapshot_every=3) is None
    due = merge_due(ShardParts(None, (part(1), part(2), part(3))), snapshot_every=3)
    assert due is not None
    assert due.whole


def test_a_shard_with_parts_of_another_job_is_merged_whole() -> None:
    deltas = (part(2, name="/parent/state/x"), *(part(n) for n in range(3, 10)))
    due = merge_due(ShardParts(part(1, 10**9), deltas))
    assert due is not None
    assert due.whole


def test_the_further_files_of_a_snapshot_are_no_runs() -> None:
    further = tuple(PartRef(FileRef(f"s{n}", 1, n), 4, 10**6, 1, 1) for n in range(9))
    assert merge_due(ShardParts(part(4, 10**6), further)) is None
    due = merge_due(ShardParts(part(4, 10**6), further + tuple(part(n, 10**7) for n in range(5, 13))))
    assert due is not None
    assert due.whole
    assert len(due.runs) == 18


@pytest.mark.parametrize("shard", [ShardParts(), ShardParts(part(1, 1))])
def test_a_shard_without_deltas_is_never_merged(shard: ShardParts) -> None:
    assert merge_due(shard) is None
    assert merge_due(shard, snapshot_every=1) is None


def test_commits_made_during_a_merge_follow_its_result() -> None:
    shard = ShardParts(part(1), (part(2), part(3), part(4), part(5)))
    run = PartRef(FileRef("m", 1, 9), 3, 1, 1, 2)
    assert adopted(shard, Merged((part(2), part(3)), (run,), False)) == ShardParts(part(1), (run, part(4), part(5)))
    whole = Merged((part(1), part(2), part(3)), (part(3, name="s"), run), True)
    assert adopted(shard, whole) == ShardParts(part(3, name="s"), (run, part(4), part(5)))


@pytest.mark.parametrize(
    "merged",
    [
        Merged((part(2), part(4)), (part(4, name="m"),), False),
        Merged((part(9), part(10)), (part(10, name="m"),), False),
        Merged((part(1, name="other"), part(2)), (part(2, name="m"),), True),
        Merged((part(2), part(3)), (part(3, name="m"),), True),
    ],
)
def test_a_merge_of_missing_runs_is_not_adopted(merged: Merged) -> None:
    assert adopted(ShardParts(part(1), (part(2), part(3), part(4))), merged) is None


def test_a_delta_follows_the_existing_parts() -> None:
    assert merge(ShardParts(), [part(1)]) == ShardParts(None, (part(1),))
    assert merge(ShardParts(part(1), (part(2),)), [part(5)]) == ShardParts(part(1), (part(2), part(5)))


def test_a_snapshot_replaces_the_existing_parts() -> None:
    before = ShardParts(part(1), (part(2), part(4)))
    assert merge(before, [part(9)], part(4, name="s")) == ShardParts(part(4, name="s"), (part(9),))
    assert merge(before, (), part(4, name="s")) == ShardParts(part(4, name="s"))


def test_a_commit_that_added_nothing_changes_nothing() -> None:
    before = ShardParts(part(1), (part(2),))
    assert merge(before) == before


def test_levels_of_one_batch_add_a_delta_each() -> None:
    assert merge(ShardParts(), [part(3, name="a"), part(3, name="b")]).deltas[1].file.name == "b"


@pytest.mark.parametrize("deltas", [[part(4)], [part(3)], [part(5), part(6)]])
def test_deltas_of_another_commit_than_the_next_are_refused(deltas: list[PartRef]) -> None:
    with pytest.raises(StateError, match="not of one commit after 4"):
        merge(ShardParts(None, (part(4),)), deltas)


@pytest.mark.parametrize("sequence", [3, 5])
def test_a_snapshot_with_the_wrong_label_is_refused(sequence: int) -> None:
    with pytest.raises(StateError, match="newest_sequence"):
        merge(ShardParts(None, (part(4),)), [part(6)], part(sequence))


@given(st.lists(st.booleans(), max_size=60))
def test_parts_ascend_after_any_merge(snapshots: list[bool]) -> None:
    parts = ShardParts()
    for sequence, take in enumerate(snapshots, start=1):
        taken = part(newest_sequence(parts)) if take else None
        parts = merge(parts, [part(sequence)], taken)
        sequences = [delta.sequence for delta in parts.deltas]
        assert sequences == sorted(set(sequences))
        assert parts.snapshot is None or parts.snapshot.sequence < sequences[0]
        assert newest_sequence(parts) == sequence
