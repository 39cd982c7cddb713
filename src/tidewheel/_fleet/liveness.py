"""Which nodes are alive, judged by how long their leases stood still while this node was watching. Pure.

No clocks are compared. A lease lapses when its version stayed the same for its whole time, counted by this node's own
looks. Time in which this node could not see renewals does not count: not while it was cut off from the cells, and not while
it was paused or its machine suspended. The others could not renew either, or did and this node has yet to hear of it.
"""

from __future__ import annotations

import msgspec

_MARGIN = 1.1
"""How much longer others wait than the holder counts, for clocks that run at different speeds."""
_LOOKS = 3
"""The least number of looks that a lease's time takes, however far apart they are."""


class Standing(msgspec.Struct, frozen=True):
    """A lease's version, and for how many seconds this node has watched it stand still."""

    version: int
    watched: float = 0.0


def watched(before: Standing | None, version: int, elapsed: float, ttl: float) -> Standing:
    """Return the standing of a lease after another look, `elapsed` seconds after the last one.

    A look adds at most a third of the lease's time: a longer gap means that this node was paused.
    """
    if before is None or before.version != version:
        return Standing(version)
    return Standing(version, before.watched + min(elapsed, ttl / _LOOKS))


def is_lapsed(standing: Standing, ttl: float) -> bool:
    """Tell whether a lease has stood still for its whole time."""
    return standing.watched > ttl * _MARGIN
