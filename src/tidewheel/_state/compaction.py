"""When a snapshot takes the place of a shard's deltas: pure decisions over references."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from tidewheel._state.references import PartRef, ShardParts
from tidewheel.errors import StateError

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
    """Return the shards that write a snapshot of their base state in the batch that will be `sequence`.

    A shard wants one when its deltas outweigh its snapshot (and `floor_bytes`, so that a tiny shard does not
    write one every batch) or number `max_deltas`. It gets it when its turn comes, every `stagger` commits, so
    that shards that grew alike do not all write in the same batch. At `max_deltas + stagger` deltas it waits
    no longer: turns may fall on commits that are not batches.

    >>> from tidewheel._state.references import FileRef
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


def newest_sequence(parts: ShardParts) -> int:
    """Return the sequence of the newest part, 0 if there is none: the label of the shard's next snapshot.

    The label is not the sequence of the base manifest: the shard has not changed since its newest part, and a
    local copy that took in that part must find itself at the snapshot, not behind it.
    """
    if parts.deltas:
        return parts.deltas[-1].sequence
    return parts.snapshot.sequence if parts.snapshot else 0


def merge(parts: ShardParts, deltas: Iterable[PartRef] = (), snapshot: PartRef | None = None) -> ShardParts:
    """Return a shard's parts after a commit that added deltas, a snapshot of the base state, both or nothing.

    Tasks of several levels may each add a delta of the same commit: they hold different tables. The snapshot
    takes the place of all that was there; it holds exactly the base state, so its sequence is
    `newest_sequence(parts)`.
    """
    base = newest_sequence(parts)
    deltas = tuple(deltas)
    if snapshot is not None and snapshot.sequence != base:
        raise StateError(
            f"snapshot {snapshot.file.name} is labelled {snapshot.sequence}, but the newest part of the shard "
            f"that it replaces is of {base}; label it with newest_sequence(parts)"
        )
    if any(delta.sequence <= base for delta in deltas) or len({delta.sequence for delta in deltas}) > 1:
        raise StateError(
            f"the deltas {[(delta.file.name, delta.sequence) for delta in deltas]} are not of one commit after "
            f"{base}, the shard's newest part; nothing may be committed twice or out of order"
        )
    if snapshot is not None:
        return ShardParts(snapshot, deltas)
    return ShardParts(parts.snapshot, parts.deltas + deltas)


def _wants(parts: ShardParts, max_deltas: int, floor_bytes: int) -> bool:
    if len(parts.deltas) >= max_deltas:
        return True
    snapshot_bytes = parts.snapshot.bytes if parts.snapshot else 0
    return sum(delta.bytes for delta in parts.deltas) > max(snapshot_bytes, floor_bytes)
