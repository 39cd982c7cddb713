"""When a shard's deltas are replaced by a snapshot: pure decisions over references."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tidewheel.errors import StateError
from tidewheel.state.refs import PartRef, ShardParts

MAX_DELTAS: Final = 32
STAGGER: Final = 8
FLOOR_BYTES: Final = 64 * 1024


def due(
    shards: Mapping[int, ShardParts],
    sequence: int,
    max_deltas: int = MAX_DELTAS,
    stagger: int = STAGGER,
    floor_bytes: int = FLOOR_BYTES,
) -> frozenset[int]:
    """Return the shards that write a snapshot of their base state in the batch that will be commit `sequence`.

    A shard wants one when its deltas outweigh its snapshot (and `floor_bytes`, so that a tiny shard does not write one
    every batch) or number `max_deltas`. It gets it when its turn comes, every `stagger` commits, so that shards that grew
    alike do not all write in the same batch; at `max_deltas + stagger` deltas it no longer waits for its turn.

    >>> from tidewheel.state.refs import FileRef
    >>> deltas = tuple(PartRef(FileRef("f", 1, 0), s, 100, 1) for s in range(1, 33))
    >>> due({0: ShardParts(None, deltas), 1: ShardParts(None, deltas[:5])}, sequence=40)
    frozenset({0})
    """
    return frozenset(
        shard
        for shard, parts in shards.items()
        if len(parts.deltas) >= max_deltas + stagger
        or ((sequence + shard) % stagger == 0 and _wants(parts, max_deltas, floor_bytes))
    )


def _wants(parts: ShardParts, max_deltas: int, floor_bytes: int) -> bool:
    if len(parts.deltas) >= max_deltas:
        return True
    kept = parts.snapshot.bytes if parts.snapshot else 0
    return sum(delta.bytes for delta in parts.deltas) > max(kept, floor_bytes)


def newest(parts: ShardParts, sequence: int | None = None) -> PartRef | None:
    """Return the part that was written last (at or before `sequence`, if given), or `None` for an empty shard."""
    for delta in reversed(parts.deltas):
        if sequence is None or delta.sequence <= sequence:
            return delta
    snapshot = parts.snapshot
    return snapshot if snapshot and (sequence is None or snapshot.sequence <= sequence) else None


def newest_sequence(parts: ShardParts) -> int:
    """Return the sequence of the part that was written last, 0 for an empty shard: what its next snapshot is labelled with.

    The label is not the sequence of the base manifest: the shard has not changed since its newest part, and a local
    copy that applied that part must find itself at the snapshot, not behind it.
    """
    part = newest(parts)
    return part.sequence if part else 0


def merge(parts: ShardParts, delta: PartRef | None = None, snapshot: PartRef | None = None) -> ShardParts:
    """Return a shard's parts after a commit that added a delta, or a snapshot of the base state, or both, or neither.

    The snapshot takes the place of everything before it; it must hold exactly the base state, so its sequence is
    `newest_sequence(parts)`.
    """
    base = newest_sequence(parts)
    if snapshot is not None:
        if snapshot.sequence != base:
            raise StateError(
                f"snapshot {snapshot.file.name} is labelled {snapshot.sequence}, but the newest part of the shard it replaces is "
                f"{base}; label it with newest_sequence(parts)"
            )
        parts = ShardParts(snapshot, ())
    if delta is not None:
        if delta.sequence <= base:
            raise StateError(
                f"delta {delta.file.name} of {delta.sequence} does not follow the shard's newest part, {base}"
            )
        parts = ShardParts(parts.snapshot, (*parts.deltas, delta))
    return parts
