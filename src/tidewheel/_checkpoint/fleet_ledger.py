"""What a manifest of a fleet's run says about shards. The fleet decides what goes in here; this is only how it is kept."""

from __future__ import annotations

import msgspec

from tidewheel._state.references import ShardParts


class HeldShard(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A shard that the run holds: its term, and the inbox position at which the run adopted it."""

    term: int
    position: int


class RevokedShard(msgspec.Struct, frozen=True):
    """A shard that was taken from the run: the run that takes it, and the term, position and state that it may adopt."""

    to: str
    term: int
    position: int
    parts: ShardParts = ShardParts()


class FleetLedger(msgspec.Struct, frozen=True):
    """The hand-over's part of a manifest. Batches carry it on unchanged."""

    held: dict[int, HeldShard] = {}
    revoked: dict[int, RevokedShard] = {}
    terms: dict[int, int] = {}
    """The highest term of each shard that was ever this run's."""
    closed_by: str | None = None
    """The token of the run that closed the chain; a closed chain adopts nothing."""
    is_last: bool = False
    """Whether the chain is about to be removed: nobody appends to it any more."""
