"""The part of a manifest about a fleet run's shards. The fleet decides its content; this module only stores it."""

from __future__ import annotations

import msgspec

from tidewheel._state.references import ShardParts

ORIGIN = "origin"
"""The run of the chain that a fleet begins with, which has the name of the job."""


def run_of(stream: str) -> str:
    """Return the run of a chain's stream."""
    return stream.partition("/")[2] or ORIGIN


class HeldShard(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A shard that the run holds: its term, and the inbox position at which the run adopted it."""

    term: int
    position: int


class RevokedShard(msgspec.Struct, frozen=True):
    """A shard that was taken from the run: the new run, and the term, position and state that it can adopt."""

    to: str
    term: int
    position: int
    parts: ShardParts = ShardParts()


class FleetLedger(msgspec.Struct, frozen=True):
    """The hand-over part of a manifest. Batches copy it unchanged."""

    held: dict[int, HeldShard] = {}
    revoked: dict[int, RevokedShard] = {}
    terms: dict[int, int] = {}
    """The highest term of each shard that ever belonged to this run."""
    closed_by: str | None = None
    """The token of the run that closed the chain; a closed chain adopts no shards."""
    is_last: bool = False
    """Whether the chain is about to be deleted, so that nobody appends to it any more."""
