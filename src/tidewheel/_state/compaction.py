"""Decide which parts of a shard to merge, and which parts remain after a commit.

The deltas of a shard are runs of sorted keys, oldest first. Runs of about the same size are a *tier*. When a tier has
`FAN` runs they are merged into one, which is about as large as a run of the next tier. So each changed byte is written
once per tier, whatever the size of the shard. When all runs together outweigh the snapshot, everything is merged into a
new snapshot.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate, groupby
from math import log
from operator import attrgetter
from typing import Final

import msgspec

from tidewheel._state.references import PartRef, ShardParts
from tidewheel.errors import StateError

FAN: Final = 8
"""The number of runs of a tier that are merged, and the size ratio of tiers."""
FLOOR_BYTES: Final = 64 * 1024
"""Runs below this size never outweigh a small snapshot."""

_sequence = attrgetter("sequence")


class Merge(msgspec.Struct, frozen=True):
    """Neighbouring runs of a shard to merge, oldest first."""

    runs: tuple[PartRef, ...]
    whole: bool
    """Whether these are all parts of the shard, so that the result is its new snapshot."""


class Merged(msgspec.Struct, frozen=True):
    """The result of a merge: the merged runs, and the parts with the same content, which have no key in common."""

    runs: tuple[PartRef, ...]
    parts: tuple[PartRef, ...]
    whole: bool


def merge_due(
    parts: ShardParts,
    snapshot_every: int | None = None,
    fan: int = FAN,
    floor_bytes: int = FLOOR_BYTES,
) -> Merge | None:
    """Return the runs of a shard to merge now, if any.

    With `snapshot_every` a shard is merged completely after that many commits that changed it, and never otherwise.
    Without it, runs are merged by tiers, and completely when they outweigh the snapshot. A shard with parts of another
    job, as in a fork, is merged completely at the first opportunity.

    >>> from tidewheel._state.references import FileRef
    >>> deltas = tuple(PartRef(FileRef("f", 1, 0), s, 100, 1) for s in range(1, 10))
    >>> len(merge_due(ShardParts(None, deltas)).runs), merge_due(ShardParts(None, deltas[:7]))
    (9, None)
    """
    enough = fan if snapshot_every is None else snapshot_every
    if len(parts.deltas) < enough:
        return None
    begin = 0 if parts.snapshot is None else sum(delta.sequence <= parts.snapshot.sequence for delta in parts.deltas)
    commits = [tuple(group) for _, group in groupby(parts.deltas[begin:], key=_sequence)]
    if len(commits) < enough:
        return None
    base = () if parts.snapshot is None else (parts.snapshot, *parts.deltas[:begin])
    sizes = [sum(run.bytes for run in runs) for runs in commits]
    if (
        snapshot_every is not None
        or sum(sizes) > max(sum(part.bytes for part in base), floor_bytes)
        or any(part.file.name.startswith("/") for part in (*base, *parts.deltas))
    ):
        return Merge((*base, *parts.deltas[begin:]), True)
    chosen = _tiers_due(sizes, fan)
    if not chosen:
        return None
    stop = len(commits) - sum(newer for newer, _ in chosen[:1])
    start = stop - sum(count for _, count in chosen)
    return Merge(tuple(run for runs in commits[start:stop] for run in runs), False)


def _tiers_due(sizes: list[int], fan: int) -> list[tuple[int, int]]:
    """Return the tiers to merge, newest first: the number of runs newer than the tier, and its number of runs.

    A run that is larger than older ones moves them into its own tier: merging must keep the order.
    """
    tiers = list(accumulate((int(log(max(size, 1), fan) + 1e-9) for size in reversed(sizes)), max))
    chosen: list[tuple[int, int]] = []
    newer = 0
    for _, group in groupby(tiers):
        count = len(list(group))
        # The result of the previous tier adds one run to this tier.
        if count + bool(chosen) >= fan:
            chosen.append((newer, count))
        elif chosen:
            break
        newer += count
    return chosen


def newest_sequence(parts: ShardParts) -> int:
    """Return the sequence of the newest part, 0 if there is none: the label of a snapshot of all parts.

    The label is not the sequence of the base manifest: the shard has not changed since its newest part, and a local
    copy that has applied that part must be at the snapshot, not behind it.
    """
    if parts.deltas:
        return parts.deltas[-1].sequence
    return parts.snapshot.sequence if parts.snapshot else 0


def adopted(parts: ShardParts, merged: Merged) -> ShardParts | None:
    """Return a shard's parts with merged runs replaced by the result; None if the runs no longer exist."""
    if merged.whole:
        count = len(merged.runs) if parts.snapshot is None else len(merged.runs) - 1
        there = parts.deltas[:count] if parts.snapshot is None else (parts.snapshot, *parts.deltas[:count])
        if there != merged.runs:
            return None
        return ShardParts(merged.parts[0], merged.parts[1:] + parts.deltas[count:])
    if merged.runs[0] not in parts.deltas:
        return None
    start = parts.deltas.index(merged.runs[0])
    stop = start + len(merged.runs)
    if parts.deltas[start:stop] != merged.runs:
        return None
    return ShardParts(parts.snapshot, parts.deltas[:start] + merged.parts + parts.deltas[stop:])


def merge(parts: ShardParts, deltas: Iterable[PartRef] = (), snapshot: PartRef | None = None) -> ShardParts:
    """Return a shard's parts after a commit that added deltas, a snapshot of the base state, both or nothing.

    Tasks of several levels may each add a delta of the same commit, with different tables. The snapshot replaces all
    earlier parts; it contains exactly the base state, so its sequence is `newest_sequence(parts)`.
    """
    base = newest_sequence(parts)
    deltas = tuple(deltas)
    if snapshot is not None and snapshot.sequence != base:
        raise StateError(
            f"snapshot {snapshot.file.name} is labelled {snapshot.sequence}, but the newest part of the shard "
            f"that it replaces is of {base}; label it with newest_sequence(parts)"
        )
    if deltas and (
        deltas[0].sequence <= base
        or (len(deltas) > 1 and any(delta.sequence != deltas[0].sequence for delta in deltas))
    ):
        raise StateError(
            f"the deltas {[(delta.file.name, delta.sequence) for delta in deltas]} are not of one commit after "
            f"{base}, the shard's newest part; nothing may be committed twice or out of order"
        )
    if snapshot is not None:
        return ShardParts(snapshot, deltas)
    return ShardParts(parts.snapshot, parts.deltas + deltas)
