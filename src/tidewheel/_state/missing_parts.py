"""Decide which parts of a shard a local copy lacks."""

from __future__ import annotations

import msgspec

from tidewheel._state.references import PartRef, ShardParts
from tidewheel.errors import StateError


class Applied(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The newest commit in a copy: its sequence, and the token of the run that made it.

    The two identify the commit, and with it the copy's content: a run makes a commit over one base only. It does not
    matter whether the copy was built from deltas, merged parts or a snapshot.
    """

    sequence: int
    run: str

    @classmethod
    def of(cls, part: PartRef) -> Applied:
        """Return the newest commit in a part."""
        newest = part.commits[-1]
        return cls(newest.last, newest.run)


UNKNOWN = Applied(-1, "")
"""The commit of a copy whose record cannot be read: no manifest names it."""


class Missing(msgspec.Struct, frozen=True):
    """The parts that bring a copy up to date, in the order in which to apply them."""

    parts: tuple[PartRef, ...] = ()
    replace: bool = False
    """Whether they replace all content of the copy."""

    def __bool__(self) -> bool:
        return bool(self.parts) or self.replace


def missing_parts(parts: ShardParts, sequence: int, applied: Applied | None, run: str = "") -> Missing:
    """Return the parts that bring a copy to the manifest `sequence`, which names these parts of the shard.

    If the copy has a commit that the parts do not contain, it belongs to another history, for example because the state
    URL was restored from a backup: everything is replaced. The same happens if the commit is too old for the parts to
    list it. A merged part may contain commits that the copy already has. It has the newest value of each key, so the
    copy applies all of it.

    Raises `StateError` if `run`, the calling run, has itself made a newer commit that the copy has: the caller is then
    a task of an older batch, which must end.
    """
    snapshot = parts.snapshot
    if snapshot and snapshot.sequence > sequence:
        raise StateError(
            f"the parts given for sequence {sequence} begin with a snapshot of {snapshot.sequence}, which is later"
        )
    deltas = parts.deltas
    if deltas and deltas[-1].sequence > sequence:
        deltas = tuple(delta for delta in deltas if delta.sequence <= sequence)
    there = deltas if snapshot is None else (snapshot, *deltas)
    if applied is None:
        return Missing(there)
    # Search backwards: most copies lack only the last few parts.
    for place in range(len(there) - 1, -1, -1):
        if not _contains(there[place], applied):
            continue
        if Applied.of(there[place]) == applied:
            return Missing(there[place + 1 :])
        # Parts of one merge have the same commits and different keys: the copy needs all of them.
        while place and _contains(there[place - 1], applied):
            place -= 1
        return Missing(there[place:], replace=there[place] is snapshot)
    newest = there[-1].sequence if there else 0
    if applied.run == run and applied.sequence > newest:
        raise StateError(
            f"the copy is ahead: it holds commit {applied.sequence} of this run, but the newest part at sequence {sequence} is "
            f"of commit {newest}"
        )
    return Missing(there, replace=True)


def _contains(part: PartRef, applied: Applied) -> bool:
    return any(
        made.first <= applied.sequence <= made.last and made.run == applied.run for made in reversed(part.commits)
    )
