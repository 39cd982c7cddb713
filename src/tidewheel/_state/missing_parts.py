"""What a local copy lacks: a pure decision over the parts of a shard and what the copy has taken in."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from operator import attrgetter

import msgspec

from tidewheel._state.references import PartRef, ShardParts
from tidewheel.errors import StateError

_sequence = attrgetter("sequence")


class Applied(msgspec.Struct, frozen=True, array_like=True):
    """The last part that a copy took in."""

    sequence: int
    snapshot: bool
    checksum: int
    merged: bool = False

    @classmethod
    def of(cls, part: PartRef, snapshot: bool) -> Applied:
        """Return what to remember of a part."""
        return cls(part.sequence, snapshot, part.file.checksum, part.first > 0)


def missing_parts(parts: ShardParts, sequence: int, applied: Applied | None) -> list[PartRef]:
    """Return the parts that bring a copy to the manifest `sequence`, in the order in which to apply them.

    A snapshot among them comes first, and replaces everything that the copy holds. A merged delta may be of commits that the
    copy has taken in already: it has the newest value of each key, so taking it in whole is right. A `StateError` if the copy
    is ahead: it took in a part newer than the newest one in `parts` at or below `sequence`. Also if it is of
    another history: it took in a part that `parts` would have to name and does not.
    """
    snapshot, deltas = parts.snapshot, parts.deltas
    if deltas and deltas[-1].sequence > sequence:
        deltas = tuple(delta for delta in deltas if delta.sequence <= sequence)
    newest = deltas[-1] if deltas else snapshot
    if (
        applied is not None
        and newest is not None
        and newest.file.checksum == applied.checksum
        and newest.sequence == applied.sequence
    ):
        return []
    if snapshot and snapshot.sequence > sequence:
        raise StateError(
            f"the parts given for sequence {sequence} begin with a snapshot of {snapshot.sequence}, which is later"
        )
    if applied is None:
        return [snapshot, *deltas] if snapshot else list(deltas)
    if newest is None or applied.sequence > newest.sequence:
        raise StateError(
            f"the copy is ahead: it holds commit {applied.sequence}, but the newest part at sequence {sequence} "
            f"is of commit {newest.sequence if newest else 0}"
        )
    if snapshot and applied.sequence < snapshot.sequence:
        return [snapshot, *deltas]
    place = bisect_right(deltas, applied.sequence, key=_sequence)
    first = bisect_left(deltas, applied.sequence, hi=place, key=_sequence)
    if not _knows(snapshot, deltas[first:place], deltas[place : place + 1], applied):
        raise StateError(
            f"the copy is of another history: it holds a part of commit {applied.sequence} that the manifest "
            f"{sequence} does not name"
        )
    return list(deltas[place:])


def _knows(
    snapshot: PartRef | None, deltas: tuple[PartRef, ...], following: tuple[PartRef, ...], applied: Applied
) -> bool:
    """Whether the manifest names what the copy took in; the deltas are those of the same commit, and the one after them.

    A copy that came to a commit by its delta is the same as one that came there by a snapshot or a merged delta, so another
    kind of file is good enough; the same kind must be the same file. What was merged since is inside a delta that follows.
    """
    at_snapshot = snapshot is not None and snapshot.sequence == applied.sequence
    if applied.snapshot:
        alike: tuple[PartRef, ...] = (snapshot,) if snapshot is not None and at_snapshot else ()
    else:
        alike = tuple(delta for delta in deltas if (delta.first > 0) == applied.merged)
    if applied.merged and not applied.snapshot:
        # A tier may have been merged further: only a file that is named can be compared.
        alike = tuple(delta for delta in alike if delta.file.checksum == applied.checksum)
    if alike:
        return any(part.file.checksum == applied.checksum for part in alike)
    inside = any(0 < delta.first <= applied.sequence for delta in following)
    return bool(deltas) or at_snapshot or inside
