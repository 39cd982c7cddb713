"""What a copy lacks: every case of where a copy and a manifest can stand to each other."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewheel._state.missing_parts import Applied, missing_parts
from tidewheel._state.references import FileRef, PartRef, ShardParts
from tidewheel.errors import StateError


def part(sequence: int, kind: str = "delta") -> PartRef:
    name = f"{kind}-{sequence}"
    return PartRef(FileRef(name, 1, hash(name) & 0xFFFF_FFFF), sequence, 1, 1)


def delta_applied(sequence: int) -> Applied:
    return Applied.of(part(sequence), snapshot=False)


def snapshot_applied(sequence: int) -> Applied:
    return Applied.of(part(sequence, "snapshot"), snapshot=True)


DELTAS = ShardParts(None, (part(3), part(5), part(6)))
BOTH = ShardParts(part(4, "snapshot"), (part(6), part(9)))


def test_an_empty_copy_lacks_everything() -> None:
    assert missing_parts(DELTAS, 6, None) == list(DELTAS.deltas)
    assert missing_parts(BOTH, 9, None) == [BOTH.snapshot, *BOTH.deltas]
    assert missing_parts(ShardParts(), 9, None) == []


def test_a_copy_lacks_the_deltas_after_its_own() -> None:
    assert missing_parts(DELTAS, 6, delta_applied(3)) == [part(5), part(6)]
    assert missing_parts(BOTH, 9, delta_applied(6)) == [part(9)]


def test_a_copy_at_the_newest_part_lacks_nothing_however_far_the_sequence_has_moved() -> None:
    assert missing_parts(DELTAS, 6, delta_applied(6)) == []
    assert missing_parts(DELTAS, 60, delta_applied(6)) == []


def test_parts_after_the_sequence_do_not_count() -> None:
    assert missing_parts(DELTAS, 5, delta_applied(3)) == [part(5)]
    assert missing_parts(DELTAS, 5, delta_applied(5)) == []


def test_a_copy_older_than_the_snapshot_starts_over() -> None:
    assert missing_parts(BOTH, 9, delta_applied(3)) == [BOTH.snapshot, *BOTH.deltas]
    assert missing_parts(BOTH, 9, snapshot_applied(2)) == [BOTH.snapshot, *BOTH.deltas]


def test_a_copy_that_came_to_the_snapshot_by_deltas_does_not_load_it() -> None:
    assert missing_parts(BOTH, 9, delta_applied(4)) == list(BOTH.deltas)
    assert missing_parts(ShardParts(part(4, "snapshot")), 4, delta_applied(4)) == []


def test_a_copy_that_loaded_the_snapshot_serves_a_manifest_from_before_it() -> None:
    assert missing_parts(ShardParts(None, (part(3), part(4))), 4, snapshot_applied(4)) == []


def test_several_deltas_of_one_commit_belong_together() -> None:
    parts = ShardParts(None, (part(3), part(5, "level1"), part(5, "level2")))
    assert missing_parts(parts, 5, delta_applied(3)) == [part(5, "level1"), part(5, "level2")]
    assert missing_parts(parts, 5, Applied.of(part(5, "level2"), snapshot=False)) == []


@pytest.mark.parametrize(
    ("parts", "sequence"), [(DELTAS, 6), (DELTAS, 60), (BOTH, 9), (ShardParts(), 12), (ShardParts(part(4)), 4)]
)
def test_a_copy_with_a_newer_part_is_ahead(parts: ShardParts, sequence: int) -> None:
    with pytest.raises(StateError, match=rf"ahead: it holds commit 10.*sequence {sequence}"):
        missing_parts(parts, sequence, delta_applied(10))


def test_a_copy_with_a_part_after_the_sequence_is_ahead() -> None:
    with pytest.raises(StateError, match="ahead"):
        missing_parts(DELTAS, 5, delta_applied(6))


def test_a_copy_with_a_commit_the_manifest_lacks_is_of_another_history() -> None:
    with pytest.raises(StateError, match=r"another history.*commit 4"):
        missing_parts(DELTAS, 6, delta_applied(4))


@pytest.mark.parametrize("parts", [DELTAS, ShardParts(None, (part(3), part(5), part(6), part(8)))])
def test_a_copy_with_another_file_for_a_commit_is_of_another_history(parts: ShardParts) -> None:
    with pytest.raises(StateError, match=r"another history.*commit 6"):
        missing_parts(parts, 9, Applied(6, False, 1))


def test_a_snapshot_after_the_sequence_is_refused() -> None:
    with pytest.raises(StateError, match="snapshot of 4, which is later"):
        missing_parts(BOTH, 3, None)


@given(st.sets(st.integers(1, 40), min_size=1), st.integers(0, 40), st.integers(0, 60), st.booleans())
def test_applying_what_is_lacking_ends_at_the_newest_part(
    sequences: set[int], cut: int, sequence: int, snapshot: bool
) -> None:
    ordered = sorted(sequences)
    place = min(cut, len(ordered) - 1)
    parts = ShardParts(
        part(ordered[place], "snapshot") if snapshot else None,
        tuple(map(part, ordered[place + 1 :] if snapshot else ordered)),
    )
    known = [s for s in ordered if s <= sequence]
    if snapshot and ordered[place] > sequence:
        return
    for start in (None, *known):
        todo = missing_parts(parts, sequence, None if start is None else delta_applied(start))
        end = todo[-1].sequence if todo else start or 0
        assert end == (known[-1] if known else 0)
        assert [one.sequence for one in todo] == sorted({one.sequence for one in todo})
