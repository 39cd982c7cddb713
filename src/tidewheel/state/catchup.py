"""What a local copy lacks: a pure decision over the parts of a shard and what the copy has taken in."""

from __future__ import annotations

import msgspec

from tidewheel.errors import StateError
from tidewheel.state.refs import PartRef, ShardParts


class Applied(msgspec.Struct, frozen=True, array_like=True):
    """The last part that a copy took in."""

    sequence: int
    snapshot: bool
    checksum: int

    @classmethod
    def of(cls, part: PartRef, snapshot: bool) -> Applied:
        """Return what to remember of a part."""
        return cls(part.sequence, snapshot, part.file.checksum)


def lacking(parts: ShardParts, sequence: int, applied: Applied | None) -> list[PartRef]:
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
    _check_history(snapshot, deltas, sequence, applied)
    return [delta for delta in deltas if delta.sequence > applied.sequence]


def _check_history(snapshot: PartRef | None, deltas: tuple[PartRef, ...], sequence: int, applied: Applied) -> None:
    """Refuse a copy that took in another file for the same commit, or a commit that is not among the parts.

    A copy that came to a commit by its delta is the same as one that came there by a snapshot, whose file
    differs.
    """
    held = [part for part in (snapshot, *deltas) if part and part.sequence == applied.sequence]
    alike = [part for part in held if (part is snapshot) == applied.snapshot]
    if not held or (alike and all(part.file.checksum != applied.checksum for part in alike)):
        raise StateError(
            f"the copy is of another history: it holds a part of commit {applied.sequence} that the manifest "
            f"{sequence} does not name"
        )
