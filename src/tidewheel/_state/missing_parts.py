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

    @classmethod
    def of(cls, part: PartRef, snapshot: bool) -> Applied:
        """Return what to remember of a part."""
        return cls(part.sequence, snapshot, part.file.checksum)


def missing_parts(parts: ShardParts, sequence: int, applied: Applied | None) -> list[PartRef]:
    """Return the parts that bring a copy to the manifest `sequence`, in the order in which to apply them.

    A snapshot among them comes first, and replaces everything that the copy holds. A `StateError` if the copy
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
    if not _knows(snapshot, deltas[first:place], applied):
        raise StateError(
            f"the copy is of another history: it holds a part of commit {applied.sequence} that the manifest "
            f"{sequence} does not name"
        )
    return list(deltas[place:])


def _knows(snapshot: PartRef | None, deltas: tuple[PartRef, ...], applied: Applied) -> bool:
    """Whether the manifest names what the copy took in; the deltas are those of the same commit.

    A copy that came to a commit by its delta is the same as one that came there by a snapshot, so the other
    kind of file is good enough; the same kind must be the same file.
    """
    at_snapshot = snapshot is not None and snapshot.sequence == applied.sequence
    alike = (snapshot,) if applied.snapshot and at_snapshot else () if applied.snapshot else deltas
    if alike:
        return any(part is not None and part.file.checksum == applied.checksum for part in alike)
    return bool(deltas) or at_snapshot
