"""The parts that a copy lacks, for every relation of a copy to a manifest."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.internals import FileRef, PartRef, ShardParts
from tidewheel._state.missing_parts import UNKNOWN, Applied, Missing, missing_parts
from tidewheel._state.references import Stretch
from tidewheel.errors import StateError


def part(sequence: int, kind: str = "delta", run: str = "r", first: int | None = None) -> PartRef:
    made = () if first is None else (Stretch(first, sequence, run),)
    return PartRef(FileRef(f"state/{sequence:020}-{run}-{kind}", 1, 7), sequence, 1, 1, first or 0, made)


DELTAS = ShardParts(None, (part(3), part(5), part(6)))
BOTH = ShardParts(part(4, "snapshot", first=1), (part(6), part(9)))
MERGED = ShardParts(part(2, "snapshot", first=1), (part(5, "a", first=3), part(5, "b", first=3), part(7)))


def lacking(*parts: PartRef | None, replace: bool = False) -> Missing:
    return Missing(tuple(one for one in parts if one is not None), replace)


def test_an_empty_copy_lacks_everything() -> None:
    assert missing_parts(DELTAS, 6, None) == lacking(*DELTAS.deltas)
    assert missing_parts(BOTH, 9, None) == lacking(BOTH.snapshot, *BOTH.deltas)
    assert not missing_parts(ShardParts(), 9, None)


def test_a_copy_lacks_the_deltas_after_its_own() -> None:
    assert missing_parts(DELTAS, 6, Applied(3, "r")) == lacking(part(5), part(6))
    assert missing_parts(BOTH, 9, Applied(6, "r")) == lacking(part(9))


def test_a_copy_at_the_newest_part_lacks_nothing() -> None:
    assert not missing_parts(DELTAS, 6, Applied(6, "r"))
    assert not missing_parts(DELTAS, 60, Applied(6, "r"))


def test_parts_after_the_sequence_do_not_count() -> None:
    assert missing_parts(DELTAS, 5, Applied(3, "r")) == lacking(part(5))
    assert not missing_parts(DELTAS, 5, Applied(5, "r"))


def test_a_copy_older_than_the_snapshot_starts_over() -> None:
    assert missing_parts(BOTH, 9, Applied(3, "r")) == lacking(BOTH.snapshot, *BOTH.deltas, replace=True)


def test_a_copy_as_new_as_the_snapshot_does_not_load_it() -> None:
    assert missing_parts(BOTH, 9, Applied(4, "r")) == lacking(*BOTH.deltas)
    assert not missing_parts(ShardParts(BOTH.snapshot), 4, Applied(4, "r"))


def test_several_deltas_of_one_commit_belong_together() -> None:
    parts = ShardParts(None, (part(3), part(5, "level1"), part(5, "level2")))
    assert missing_parts(parts, 5, Applied(3, "r")) == lacking(part(5, "level1"), part(5, "level2"))
    assert not missing_parts(parts, 5, Applied(5, "r"))


@pytest.mark.parametrize("sequence", [3, 4])
def test_a_copy_inside_a_merged_part_takes_in_all_files_of_the_merge(sequence: int) -> None:
    assert missing_parts(MERGED, 7, Applied(sequence, "r")) == lacking(*MERGED.deltas)
    assert missing_parts(MERGED, 7, Applied(5, "r")) == lacking(part(7))


@pytest.mark.parametrize(
    ("parts", "sequence"), [(DELTAS, 6), (DELTAS, 60), (BOTH, 9), (ShardParts(), 12), (ShardParts(part(4)), 4)]
)
def test_a_task_whose_run_has_gone_on_must_end(parts: ShardParts, sequence: int) -> None:
    with pytest.raises(StateError, match=rf"ahead: it holds commit 10 of this run.*sequence {sequence}"):
        missing_parts(parts, sequence, Applied(10, "r"), "r")
    with pytest.raises(StateError, match="ahead"):
        missing_parts(DELTAS, 5, Applied(6, "r"), "r")


@pytest.mark.parametrize("parts", [DELTAS, BOTH, MERGED, ShardParts()])
@pytest.mark.parametrize(
    "applied", [UNKNOWN, Applied(10, "r"), *(Applied(sequence, "other") for sequence in range(1, 12))]
)
def test_a_copy_of_another_history_is_replaced(parts: ShardParts, applied: Applied) -> None:
    """The commits of an abandoned future have the numbers of those that took their place."""
    there = (*(() if parts.snapshot is None else (parts.snapshot,)), *parts.deltas)
    assert missing_parts(parts, 11, applied, "now") == Missing(there, replace=True)


def test_a_copy_of_a_run_that_continued_elsewhere_is_replaced() -> None:
    """The backup was made in the middle of the run: both histories have commits of it."""
    parts = ShardParts(None, (part(6, "merged", first=2), part(9, run="later")))
    assert missing_parts(parts, 9, Applied(7, "r"), "later").replace
    assert missing_parts(parts, 9, Applied(6, "r"), "later") == lacking(part(9, run="later"))


def test_a_merged_part_without_a_record_of_its_commits_is_known_by_its_name() -> None:
    old = part(5, "merged")
    old = PartRef(old.file, 5, 1, 1, first=2)
    parts = ShardParts(None, (old, part(6)))
    assert missing_parts(parts, 6, Applied.of(old)) == lacking(part(6))
    assert missing_parts(parts, 6, Applied(5, "r")).replace


def test_a_snapshot_after_the_sequence_is_refused() -> None:
    with pytest.raises(StateError, match="snapshot of 4, which is later"):
        missing_parts(BOTH, 3, None)


@given(st.sets(st.integers(1, 40), min_size=1), st.integers(0, 40), st.integers(0, 60), st.booleans())
def test_applying_missing_parts_ends_at_the_newest_part(
    sequences: set[int], cut: int, sequence: int, snapshot: bool
) -> None:
    ordered = sorted(sequences)
    place = min(cut, len(ordered) - 1)
    parts = ShardParts(
        part(ordered[place], "snapshot", first=ordered[0]) if snapshot else None,
        tuple(map(part, ordered[place + 1 :] if snapshot else ordered)),
    )
    known = [s for s in ordered if s <= sequence]
    if snapshot and ordered[place] > sequence:
        return
    for start in (None, *known):
        todo = missing_parts(parts, sequence, None if start is None else Applied(start, "r")).parts
        end = todo[-1].sequence if todo else start or 0
        assert end == (known[-1] if known else 0)
        assert [one.sequence for one in todo] == sorted({one.sequence for one in todo})
