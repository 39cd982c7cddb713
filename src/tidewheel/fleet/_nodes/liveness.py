"""Decide which nodes are alive, by how long their leases were not renewed while this node was watching.

No clocks are compared. A lease expires when its version stayed the same for its whole ttl, counted by this node's own
checks. Time in which this node could not see renewals does not count: while it was disconnected from the cells, paused,
or its machine suspended. The others could not renew either, or did and this node has not yet received it.
"""

from __future__ import annotations

import msgspec

_MARGIN = 1.1
"""How much longer others wait than the holder counts, because clocks run at different speeds."""
_LOOKS = 3
"""The minimum number of checks before a lease expires, however far apart they are."""


class Standing(msgspec.Struct, frozen=True):
    """A lease's version, and for how many seconds this node has seen it unchanged."""

    version: int
    watched: float = 0.0


def watched(before: Standing | None, version: int, elapsed: float, ttl: float) -> Standing:
    """Return the standing of a lease after another check, `elapsed` seconds after the last one.

    A check adds at most a third of the ttl: a longer gap means that this node was paused.
    """
    if before is None or before.version != version:
        return Standing(version)
    return Standing(version, before.watched + min(elapsed, ttl / _LOOKS))


def is_lapsed(standing: Standing, ttl: float) -> bool:
    """Return whether a lease was not renewed for its whole ttl."""
    return standing.watched > ttl * _MARGIN
